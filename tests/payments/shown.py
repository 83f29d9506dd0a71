"""Payments as a chain shows them: intents of ours with hold, slot and attempt in the database, and the events a node would answer."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import psycopg
from psycopg import Connection

from requests_app.config import config
from requests_app.ledger import hold_of
from requests_app.states import IntentActor, IntentState
from requests_app.store import envelopes, intents, ledger
from requests_app.store.intents import Intent
from requests_app.store.signing import Fence
from requests_app.transitions.intents import Change, move
from tests.listen import world
from tests.listen.stub_chain import CHAIN_ID, StubChain, running
from tests.listen.world import FENCE, SOURCE, block_hash
from tests.payments.journal import entries_of
from tests.payments.terms import MERCHANT, PAYER, TERMS, USDC, add_account, add_authorized
from workers.apply import Applier
from workers.chain import payment_events
from workers.chain.clients import Clients
from workers.chain.events import REQUEST_KINDS, Envelope, decode_logs
from workers.chain.keccak import topic
from workers.facts import Contracts, Reader
from workers.thresholds import Thresholds

TERMS_HERE = TERMS._replace(chain=f"evm:{CHAIN_ID}")
TOKEN, FROM, TO = (bytes.fromhex(text[2:]) for text in (USDC, PAYER, MERCHANT))
AMOUNT = TERMS.amount
STRANGER = b"\x55" * 20
CONTRACTS = Contracts(world.DECRYPTION, world.INPUTS, frozenset({TOKEN}))
_serial = itertools.count(1)


def clean(conn: Connection[Any]) -> None:
    """An empty log of the chain that the payments settle on, its lease held by this test."""
    conn.execute("TRUNCATE envelope_meta, envelope_blob")
    conn.execute(
        "INSERT INTO exec_lease (resource, instance, epoch, lease_until) VALUES ('listener:1','test',1,'infinity'), "
        "('singleton:duty','test',7,'infinity')"
    )
    envelopes.add_source(conn, SOURCE, name="gateway", chain_id=CHAIN_ID, start_block=1, band_blocks=1000)


def account(conn: Connection[Any]) -> int:
    """The one account of these payments."""
    row = conn.execute("SELECT id FROM client_account WHERE name = 'shop'").fetchone()
    return int(row[0]) if row else add_account(conn, "shop")


def authorized(conn: Connection[Any], count: int = 1, **terms: Any) -> list[Intent]:
    """Intents with an authorization and a job."""
    owner = account(conn)
    return [add_authorized(conn, owner, terms=TERMS_HERE._replace(**terms)) for _ in range(count)]


def settling(conn: Connection[Any], count: int = 1, **terms: Any) -> list[tuple[Intent, bytes]]:
    """Intents past TX1: held, with an open slot and the hash of an accepted attempt each."""
    owned = authorized(conn, count, **terms)
    with conn.transaction():
        moved = [
            one.intent
            for one in move(conn, IntentState.SETTLING, [Change.of(one) for one in owned], IntentActor.RELAYER)
        ]
        hashes = attempts(conn, moved)
        ledger.append(conn, [hold_of(one) for one in moved])
    conn.execute("DELETE FROM queue_job")
    return list(zip(moved, hashes, strict=True))


def confirming(conn: Connection[Any], count: int = 1, **terms: Any) -> list[tuple[Intent, bytes]]:
    """Intents past TX2: a node has taken their transaction."""
    pairs = settling(conn, count, **terms)
    with conn.transaction():
        changes = [Change.of(one, tx_hash=tx_hash) for one, tx_hash in pairs]
        moved = move(conn, IntentState.CONFIRMING, changes, IntentActor.RELAYER)
    return [(one.intent, tx_hash) for one, (_, tx_hash) in zip(moved, pairs, strict=True)]


def attempts(conn: Connection[Any], owned: Sequence[Intent], *, seq: int = 1) -> list[bytes]:
    """A live slot and an accepted attempt for each; their hashes."""
    signer = conn.execute(
        "INSERT INTO signer (chain_id,address,next_nonce) VALUES (%s,%s,0) "
        "ON CONFLICT (chain_id,address) DO UPDATE SET next_nonce = signer.next_nonce RETURNING id",
        (CHAIN_ID, b"\x01" * 20),
    ).fetchone()[0]
    nonces, hashes = [next(_serial) for _ in owned], [os.urandom(32) for _ in owned]
    conn.execute(
        "INSERT INTO nonce_slot (signer_id,nonce,kind,subject_id,state,opened_epoch) "
        "SELECT %s,n,4,i,'live',1 FROM unnest(%s::bigint[],%s::bigint[]) t(n,i)",
        (signer, nonces, [one.id for one in owned]),
    )
    conn.execute(
        "INSERT INTO tx_attempt (signer_id,nonce,seq,tx_hash,raw_tx,max_fee_per_gas,max_priority_fee,gas_limit,state,epoch,last_sent_at) "
        "SELECT %s,n,%s,h,'\\x02',1,1,21000,'accepted',1,clock_timestamp() FROM unnest(%s::bigint[],%s::bytea[]) t(n,h)",
        (signer, seq, nonces, hashes),
    )
    return hashes


def raw_log(signature: str, at: tuple[int, int], tx_hash: bytes, topics: Sequence[bytes], body: bytes = b"", *, token: bytes = TOKEN,
            fork: int = 0) -> dict[str, Any]:  # fmt: skip
    """A log as a node shows it; short topics are padded. `at` is (block, log index)."""
    return {
        "address": "0x" + token.hex(),
        "topics": ["0x" + one.hex() for one in (topic(signature), *(one.rjust(32, b"\0") for one in topics))],
        "data": "0x" + body.hex(), "blockNumber": hex(at[0]), "logIndex": hex(at[1]),
        "blockHash": "0x" + block_hash(at[0], fork).hex(), "transactionHash": "0x" + tx_hash.hex(), "removed": False,
    }  # fmt: skip


def used(
    intent: Intent, at: tuple[int, int], tx_hash: bytes, *, authorizer: bytes = FROM, payee: bytes | None = TO, amount: int = AMOUNT,
    token: bytes = TOKEN, fork: int = 0,
) -> list[Envelope]:  # fmt: skip
    """What executing the authorization of an intent leaves in the log; payee None: no money moves."""
    block, index = at
    raws = [raw_log(payment_events.USED, at, tx_hash, [authorizer, intent.ref], token=token, fork=fork)]
    if payee is not None:
        value = amount.to_bytes(32, "big")
        place = (block, index + 1)
        raws.append(
            raw_log(payment_events.TRANSFER, place, tx_hash, [authorizer, payee], value, token=token, fork=fork)
        )
    return decode_logs(raws).envelopes


def canceled(intent: Intent, at: tuple[int, int], tx_hash: bytes) -> Envelope:
    """The payer makes the authorization unusable."""
    (found,) = decode_logs([raw_log(payment_events.CANCELED, at, tx_hash, [FROM, intent.ref])]).envelopes
    return found


def applier(*, page: int = 1000, contracts: Contracts = CONTRACTS) -> Applier:
    return Applier(SOURCE, Reader(contracts, Thresholds(9, None)), page=page)


def record(conn: Connection[Any], lo: int, hi: int, found: Sequence[Envelope], fork: int = 0) -> None:
    """Store blocks lo..hi with these events."""
    last = block_hash(hi, fork)
    envelopes.record_range(conn, SOURCE, lo, hi, found, FENCE, last, request_kinds=REQUEST_KINDS)


def show(conn: Connection[Any], lo: int, hi: int, found: Sequence[Envelope], fork: int = 0) -> None:
    """Store blocks lo..hi with these events and apply them."""
    record(conn, lo, hi, found, fork)
    applier().catch_up(conn)


def now(conn: Connection[Any], intent: Intent) -> Intent:
    """The intent as it stands."""
    return intents.read_intents(conn, [intent.id])[0]


def stands(conn: Connection[Any], intent: Intent) -> tuple[IntentState, int, bytes | None]:
    """(state, version, hash) as they stand."""
    one = now(conn, intent)
    return one.state, one.version, one.tx_hash


def way(conn: Connection[Any], intent: Intent) -> list[tuple[str, str]]:
    """(state, actor) of every transition."""
    return [(row.to_state.value, row.actor) for row in intents.history(conn, intent.id)]


def case(conn: Connection[Any], intent: Intent) -> Any:
    """(reason code, evidence) of the open case, or None."""
    return conn.execute(
        "SELECT reason_code, evidence FROM review_case WHERE kind = 4 AND subject_id = %s AND status = 'open'",
        (intent.id,),
    ).fetchone()


def entries(conn: Connection[Any], intent: Intent) -> list[str]:
    """The kinds of the intent's entries in the journal."""
    return [one.entry.kind.value for one in entries_of(conn, intent.ref)]


def observed(conn: psycopg.Connection[Any]) -> list[tuple[int, bytes | None]]:
    """(block, payee) of what is observed."""
    return [
        (row[0] >> 20, row[1])
        for row in conn.execute("SELECT position, payee FROM payment_observation ORDER BY position")
    ]


class Clock:
    """The database's clock, told by the test: its connection finds this clock_timestamp() before the real one."""

    def __init__(self, conn: Connection[Any], start: datetime) -> None:
        self._conn = conn
        conn.execute("CREATE SCHEMA IF NOT EXISTS injected")
        conn.execute(
            "CREATE OR REPLACE FUNCTION injected.clock_timestamp() RETURNS timestamptz LANGUAGE sql STABLE AS "
            "$$ SELECT current_setting('test.now')::timestamptz $$"
        )
        conn.execute("SET search_path = public, injected, pg_catalog")  # tables that are made belong to public
        self.now = start
        self.forward(0)

    def forward(self, seconds: float) -> None:
        """Let time pass."""
        self.now += timedelta(seconds=seconds)
        self._conn.execute("SELECT set_config('test.now', %s, false)", (self.now.isoformat(),))


class Context:
    """What a duty sees of a process."""

    def __init__(self, conn: Connection[Any], clients: Clients) -> None:
        self.conn, self.clients, self.instance = conn, clients, "test"

    def stopping(self) -> bool:
        return False


class Lease:
    """A duty's lease as `clean` stored it."""

    resource, instance, epoch, lost = "singleton:duty", "test", 7, False


DUTY = Fence(Lease.resource, Lease.instance, Lease.epoch)


@contextmanager
def chain_behind(conn: Connection[Any], chain: StubChain, settings: Any) -> Iterator[Context]:
    """The context of a duty whose node is this chain, with the token configured."""
    settings.DECRYPTION_ADDRESS, settings.INPUT_VERIFICATION_ADDRESS = (
        f"0x{world.DECRYPTION.hex()}",
        f"0x{world.INPUTS.hex()}",
    )
    settings.GATEWAY_SIGNER_KEYS, settings.HOST_CHAINS, settings.FEE_TOKEN_ADDRESS = [], [], ""
    settings.GATEWAY_CHAIN_ID, settings.USER_DECRYPT_SHARES_THRESHOLD = CHAIN_ID, 9
    settings.PAYMENT_TOKENS = [{"address": USDC, "name": "Devnet USD", "version": "1", "symbol": "USDC", "decimals": 6}]
    with running(chain) as (clients, node):
        settings.GATEWAY_RPC_URLS = [node.url]
        config.cache_clear()
        clients.gateway.config = replace(clients.gateway.config, tokens=config().gateway.tokens)
        yield Context(conn, clients)
    config.cache_clear()
