"""The stub node of the sender's tests with a payment token on it, and processes that settle payments there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest

from requests_app.config import config
from requests_app.store import intents, invariants
from requests_app.store.intents import Intent
from requests_app.store.invariants import Violation
from requests_app.transitions import intents as transitions
from tests.payments.journal import entries_of
from tests.payments.terms import TERMS, USDC, add_account, authorization
from tests.send.conftest import Context, node, start
from tests.send.node import CHAIN_ID, Fault, Node, parse
from workers.chain.keccak import selector, topic
from workers.chain.payment_events import CANCELED, USED
from workers.chain.payments import AUTHORIZATION_STATE, ERRORS
from workers.lane import Lane
from workers.payments import LaneSender
from workers.settle_routes import make_settler
from workers.settling import Handled
from workers.signers import SignerPool, sync

__all__ = ["node", "start"]
CHAIN = f"evm:{CHAIN_ID}"
SELECTORS = {refusal: selector(signature) for signature, refusal in ERRORS.items()}
TOKEN = {"address": USDC, "name": "USD Coin", "version": "2", "symbol": "USDC", "decimals": 6}


@dataclass
class Token:
    """The token contract behind the stub: which authorizations are over, by which transaction, in which block."""

    node: Node
    over: dict[bytes, tuple[bytes, int, bool]] = field(default_factory=dict)
    quiet: bool = False  # the log does not show what the state says

    def use(self, ref: bytes, tx_hash: bytes, *, canceled: bool = False) -> None:
        """Somebody carries the authorization out, or the payer cancels it, in the newest block."""
        self.over[ref] = (tx_hash, self.node.block, canceled)

    def call(self, call: dict[str, Any], tag: str) -> str:
        """authorizationState: at a block, as it was then."""
        raw = bytes.fromhex(call["data"][2:])
        assert raw[:4] == AUTHORIZATION_STATE.selector
        block = {"latest": self.node.block, "finalized": self.node.finalized}.get(tag)
        found = self.over.get(raw[36:68])
        used = found is not None and found[1] <= (int(tag, 16) if block is None else block)
        return "0x" + int(used).to_bytes(32, "big").hex()

    def logs(self, query: dict[str, Any]) -> list[dict[str, Any]]:
        """eth_getLogs of one ref."""
        ref = bytes.fromhex(query["topics"][2][0][2:])
        found = self.over.get(ref)
        if found is None or self.quiet:
            return []
        tx_hash, block, canceled = found
        return [
            {
                "address": query["address"][0], "blockNumber": hex(block), "logIndex": "0x0", "data": "0x", "removed": False,
                "topics": ["0x" + topic(CANCELED if canceled else USED).hex(), query["topics"][1][0], query["topics"][2][0]],
                "transactionHash": "0x" + tx_hash.hex(), "blockHash": "0x" + block.to_bytes(32, "big").hex(),
            }
        ]  # fmt: skip

    def by_hash(self, tx_hash: str) -> dict[str, Any] | None:
        """eth_getTransactionByHash."""
        tx = self.node.known.get(bytes.fromhex(tx_hash[2:]))
        if tx is None:
            return None
        mined = None if tx.block is None else "0x" + tx.block.to_bytes(32, "big").hex()
        return {
            "hash": tx_hash, "from": "0x" + tx.sender.hex(), "to": "0x" + tx.to.hex(), "nonce": hex(tx.nonce), "input": "0x",
            "blockHash": mined, "blockNumber": None if tx.block is None else hex(tx.block),
        }  # fmt: skip


@pytest.fixture
def token(node: Node, settings: Any) -> Token:
    """The token, configured."""
    settings.PAYMENT_TOKENS = [TOKEN]
    config.cache_clear()
    made = Token(node)
    node.on_call = made.call
    node.eth_getLogs = made.logs  # type: ignore[attr-defined]
    node.eth_getTransactionByHash = made.by_hash  # type: ignore[attr-defined]
    return made


@dataclass
class Shop:
    """A client with payments, and what is to be said of them."""

    conn: psycopg.Connection[Any]
    account: int
    spoiled: bool = False  # the test itself has written nonsense into the books

    def pay(self, count: int = 1, **changes: Any) -> list[Intent]:
        """Authorized payments with their jobs."""
        made = [transitions.create(self.conn, self.account, TERMS._replace(chain=CHAIN)) for _ in range(count)]
        return [
            transitions.authorize(self.conn, self.account, one.public_id, authorization(one, **changes)).intent
            for one in made
        ]

    def now(self, *payments: Intent) -> list[Intent]:
        """As they stand."""
        return intents.read_intents(self.conn, [one.id for one in payments])

    def states(self, *payments: Intent) -> list[str]:
        return [one.state.value for one in self.now(*payments)]

    def entries(self, payment: Intent) -> list[str]:
        """The kinds of its journal entries."""
        return [one.entry.kind.value for one in entries_of(self.conn, payment.ref)]

    def jobs(self) -> int:
        row = self.conn.execute("SELECT count(*) FROM queue_job WHERE queue = 'settle'").fetchone()
        return int(row[0]) if row else 0

    def visible(self) -> None:
        """Every put off or leased job is due now."""
        self.conn.execute("UPDATE queue_job SET visible_at = clock_timestamp() - interval '1 second'")

    def age(self, payment: Intent, seconds: float) -> None:
        """As if it had come into its state so long ago."""
        self.conn.execute(
            "UPDATE payment_intent SET updated_at = updated_at - make_interval(secs => %s) WHERE id = %s",
            (seconds, payment.id),
        )

    def reason(self, payment: Intent) -> str:
        """Of its open case."""
        row = self.conn.execute(
            "SELECT reason_code FROM review_case WHERE kind = 4 AND subject_id = %s AND status = 'open'", (payment.id,)
        ).fetchone()
        return str(row[0]) if row else "none"


@pytest.fixture
def shop(conn: psycopg.Connection[Any], token: Token) -> Iterator[Shop]:
    """The shop; whatever a test did with its payments, the invariants of states, books and nonces hold at its end."""
    made = Shop(conn, add_account(conn))
    yield made
    assert made.spoiled or violations(conn) == []


def violations(conn: psycopg.Connection[Any]) -> list[Violation]:
    """Rows that break an invariant."""
    ends = invariants.spans(conn)
    return [found for one in invariants.INVARIANTS for found in invariants.check(conn, one, 0, ends[one.over][1])]


@dataclass
class Worker:
    """A process with one held signer."""

    context: Context
    lane: Lane

    def work(self, limit: int = 100) -> list[Handled]:
        """One run of the settle worker."""
        seconds = 30.0
        sender = LaneSender(self.context, self.lane)  # type: ignore[arg-type]
        settler = make_settler(self.context.conn, sender, self.context.instance, lease_seconds=seconds)
        return settler.run(limit)


@pytest.fixture
def worker(start: Callable[[], Context]) -> Callable[[], Worker]:
    """Start a process that holds the signer."""

    def make() -> Worker:
        context = start()
        gateway = config().gateway
        pool = SignerPool(gateway.chain_id, gateway.signer_keys)
        (lane,) = pool.lanes(context)  # type: ignore[arg-type]
        assert sync(context, lane)  # type: ignore[arg-type]
        return Worker(context, lane)

    return make


def sent_payments(node: Node) -> list[bytes]:
    """The refs that were offered to the node, a ref for each different transaction."""
    return [parse(raw).data[4 + 5 * 32 : 4 + 6 * 32] for raw in dict.fromkeys(node.raws) if len(parse(raw).data) > 4]


def refusing(selector: bytes, text: str = "execution reverted") -> Callable[[dict[str, Any]], int]:
    """An estimate that reverts with a custom error."""

    def refuse(call: dict[str, Any]) -> int:
        raise Fault(text, 3, "0x" + (selector + bytes(64)).hex())

    return refuse


def outcomes(handled: list[Handled]) -> list[str]:
    """How the deliveries of a run ended."""
    return [one.outcome.value for one in handled]


def letters(shop: Shop) -> list[tuple[Any, ...]]:
    """Status, the payment's state, and deliveries of every dead letter."""
    return shop.conn.execute("SELECT status, subject_state, attempts FROM dead_letter ORDER BY id").fetchall()
