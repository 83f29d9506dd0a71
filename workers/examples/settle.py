"""The example of three payments (reference queue_settle 1.6): one is sent, one worker dies, one node is down.

Queue, states, journal and worker are the production's; the node and the clock are scripted. Without the attempt log nobody can say
whether the third payment was broadcast, so a person is asked; with it the same bytes go out again, and nobody is.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from psycopg import Connection

from requests_app.errors import RelayerError
from requests_app.ledger import Chained, Head
from requests_app.states import IntentState, Kind
from requests_app.store import accounts, intents, leases, ledger, queue, scratch, signing
from requests_app.store.attempts import Outgoing
from requests_app.store.intents import SETTLE, Intent
from requests_app.store.queue import NORMAL, Delivery, Subject, Verdict
from requests_app.store.signing import Fence
from requests_app.transitions.intents import Terms, authorize, create
from requests_app.transitions.sending import Held, Price, Wanted
from workers.broadcast import Sent
from workers.chain.errors import SendClass
from workers.senders import Examined, Trace
from workers.senders import Verdict as Simulated
from workers.settle_routes import make_settler
from workers.settling import AttemptLog, Handled, Item

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
LEASE_SECONDS: Final = 30.0
NAMES: Final = ("pi_0001", "pi_0002", "pi_0003")
TERMS: Final = Terms(
    "evm:31337",
    "0x5FbDB2315678afecb367f032d93F642f64180aa3",
    "0x70997970C51812dc3A010C7d01b50e0d17dc79C8",
    "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC",
    100_000_000,
)
# What the reference gives for the journal after the example: three holds, at T, T and T+30 s.
HEAD: Final = Head(3, bytes.fromhex("206247ac03d10e2cf4c4d8dc48edfd4a7487cc51bbfff288beb14beda12abcea"))
_FIRST_HASH: Final = 0xAA
_CHAIN_ID: Final = 31337
_ADDRESS: Final = bytes.fromhex("f39fd6e51aad88f6f4ce6ab8827279cfffb92266")
_RESOURCE: Final = "signer:example"


class Result(NamedTuple):
    """What the example printed, where the journal ended, and what the queue said to the dead worker's late acknowledgement."""

    lines: list[str]
    head: Head
    late_ack: Verdict


class ScriptedNode:
    """A sender (`workers.senders.Sender`) to a node that is up or down and gives its transactions the hashes 0xaa, 0xab, ..."""

    def __init__(self, fence: Fence, signer_id: int) -> None:
        self.fence = fence
        self.signer_id = signer_id
        self.up = True
        self.taken: list[bytes] = []

    def examine(self, items: Sequence[Item]) -> list[Examined]:
        """Everything may be sent."""
        return [
            Examined(Simulated.READY, wanted=Wanted(Held(_subject(item), item.receipt), _ADDRESS, b"", 100_000))
            for item in items
        ]

    def price(self) -> Price | None:
        """Fees that nobody pays."""
        return Price(1, 1)

    def sign(self, wanted: Wanted, nonce: int, price: Price) -> tuple[bytes, bytes]:
        """Bytes that name the payment, and the hash that belongs to the nonce."""
        return f"payment {wanted.held.subject.id} at {nonce}".encode(), bytes([_FIRST_HASH + nonce])

    def transmit(self, items: Sequence[Outgoing]) -> list[Sent]:
        """Take the bytes, or refuse the connection. Without the attempt log the node gives the hash."""
        if not self.up:
            return [Sent(item, SendClass.UNKNOWN, "rpc: connection refused", False) for item in items]
        sent = []
        for item in items:
            named = item if item.tx_hash else item._replace(tx_hash=bytes([_FIRST_HASH + len(self.taken)]))
            self.taken.append(named.tx_hash)
            sent.append(Sent(named, SendClass.ACCEPTED, None, False))
        return sent

    def react(self, sent: Sequence[Sent]) -> None:
        """Nothing: its signer is nobody's."""

    def find(self, items: Sequence[Outgoing]) -> list[Trace | None] | None:
        """It knows nothing of what it did not take."""
        return [Trace(None) if item.tx_hash in self.taken else None for item in items]


class Example:
    """One run over an empty, migrated database, in which nothing else works."""

    def __init__(self, conn: Connection[Any], policy: AttemptLog = AttemptLog.OFF) -> None:
        self._conn = conn
        scratch.follow_clock(conn, START)
        self.lines: list[str] = []
        account = accounts.create_account(conn, "example")
        if account is None:
            raise RelayerError("the example needs an empty database")
        self._account: int = account.id
        self.node = self._node()
        self._settler = make_settler(conn, self.node, "worker", policy, lease_seconds=LEASE_SECONDS)
        self._dead: Delivery | None = None

    def run(self) -> Result:
        """The twelve steps of the reference."""
        first = create(self._conn, self._account, TERMS, public_id=NAMES[0])
        self._authorize(first)
        self.enqueue(first)
        for name in NAMES[1:]:
            self._authorize(create(self._conn, self._account, TERMS, public_id=name))
        self.work()
        self._die()
        self.node.up = False
        self.work()
        self.at(30)
        self.node.up = True
        self.work()
        late_ack = self.late_ack()
        self.work()
        self.at(330)
        self.work()
        self.enqueue(first)
        self.work()
        self._conclude()
        return Result(self.lines, ledger.head(self._conn), late_ack)

    def at(self, seconds: float) -> None:
        """The clock stands so long after the start."""
        scratch.set_clock(self._conn, START + timedelta(seconds=seconds))

    def work(self) -> list[Handled]:
        """One run of the worker, of one delivery at most."""
        handled = self._settler.run(limit=1)
        self.lines += [one.line for one in handled]
        return handled

    def enqueue(self, intent: Intent) -> None:
        """The payment's job into the queue, if it is not there."""
        self._note_enqueued(intent, bool(intents.enqueue_settle(self._conn, [intent.id], NORMAL)))

    def late_ack(self) -> Verdict:
        """The dead worker comes back and acknowledges what it once leased."""
        if self._dead is None:
            raise RelayerError("nobody has died yet")
        return queue.ack_jobs(self._conn, [self._dead.receipt])[0]

    def _authorize(self, intent: Intent) -> None:
        signed = {
            "valid_after": "0", "valid_before": "4102444800", "nonce": f"0x{intent.ref.hex()}", "signature": f"0x{'11' * 65}"
        }  # fmt: skip
        self._note_enqueued(intent, authorize(self._conn, self._account, intent.public_id, signed).queued)

    def _note_enqueued(self, intent: Intent, queued: bool) -> None:
        said = "queued" if queued else "no-op (already queued)"
        self.lines.append(f"enqueue {intent.public_id}/settle  {said}")

    def _die(self) -> None:
        """Another worker leases one job and is never heard of again."""
        (self._dead,) = queue.lease_jobs(self._conn, SETTLE, 1, "another worker", LEASE_SECONDS)

    def _node(self) -> ScriptedNode:
        """A node, and a signer whose lease is ours for longer than the example takes."""
        conn = self._conn
        leases.open_lease(conn, _RESOURCE)
        found = leases.look_at_lease(conn, _RESOURCE)
        taken = None
        if found is not None:
            taken = leases.claim_lease(conn, _RESOURCE, "worker", found.epoch, 3600.0, gone=True, how="example")
        if taken is None:
            raise RelayerError("somebody else works in this database")
        fence = Fence(_RESOURCE, "worker", taken)
        signing.ensure_signers(conn, _CHAIN_ID, [_ADDRESS])
        synced = signing.sync_signer(conn, fence, _CHAIN_ID, _ADDRESS, latest=0, pending=0, balance=10**18)
        return ScriptedNode(fence, synced.signer.id)

    def _conclude(self) -> None:
        """What is left: the queue, the journal, the payments."""
        waiting = len(queue.lease_jobs(self._conn, SETTLE, len(NAMES) + 1, "auditor", 0.0))
        self.lines.append(f"queue: {waiting} job(s) left")
        self.lines += [entry_line(one) for one in ledger.journal(self._conn)]
        found = [intents.find_intent(self._conn, name) for name in NAMES]
        self.lines += [intent_line(one) for one in found if one is not None]


def entry_line(one: Chained) -> str:
    """An entry of the journal in one line."""
    entry = one.entry
    legs = "".join(f"  {_short(leg.account)} {leg.amount:+d}" for leg in entry.legs)
    return f"#{one.seq}  {entry.kind} 0x{entry.ref.hex()[:8]}…  by {entry.by} {legs}"


def intent_line(intent: Intent) -> str:
    """A payment in one line."""
    widest = max(len(state) for state in IntentState)
    shown = f"0x{intent.tx_hash.hex()}" if intent.tx_hash else ""
    return f"{intent.public_id} {intent.state:<{widest}} v{intent.version} tx={shown}"


def _short(account: str) -> str:
    side, _, address = account.partition(":")
    return f"{side}:{address[:6]}…{address[-4:]}"


def _subject(item: Item) -> Subject:
    return Subject(Kind.PAYMENT, item.case.intent.id)
