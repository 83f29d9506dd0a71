"""Payment intents and journal of a seeded database. Written with indexes and the journal's own guards in place: the chain verifies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import psycopg

from requests_app.ledger import GENESIS, Entry, Head, chained, hold_of, post_of, void_of
from requests_app.states import IntentActor, IntentState
from requests_app.store.ledger import insert_placed
from requests_app.store.seeding.layout import SPAN_SECONDS, PaymentPlan, chunks
from requests_app.store.session import fetch_all, fetch_only, run

CHAIN: Final = "evm:31337"
TOKEN: Final = "0x5FbDB2315678afecb367f032d93F642f64180aa3"  # noqa: S105 - a token's address
PAYMENT_WEIGHT: Final = 2.0
_HELD_AFTER: Final = timedelta(seconds=8)  # the third step of a seeded payment
_FAILED: Final = "proven not to move money any more"


class _Seeded(NamedTuple):
    """A seeded payment as the journal sees it (`ledger.Payment`)."""

    public_id: str
    ref: bytes
    chain: str
    token: str
    payer: str
    merchant: str
    amount: int
    tx_hash: bytes | None
    updated_at: datetime


def fill_payments(
    conn: psycopg.Connection[Any],
    plan: PaymentPlan,
    base: datetime,
    clients: Sequence[int],
    signers: Sequence[int],
    progress: Callable[[str, float], None],
) -> None:
    """Write the plan's intents in the caller's transaction, ended before `base`. Needs the empty tables of payments and the journal."""
    slots, head = 0, Head(0, GENESIS)
    for first, last in chunks(plan.last):
        parameters = {
            "lo": first,
            "hi": last,
            "finished": plan.finished,
            "states": plan.states,
            "cuts": plan.cuts,
            "span": SPAN_SECONDS,
            "base": base,
            "chain": CHAIN,
            "token": TOKEN,
            "clients": list(clients),
            "client_count": len(clients),
            "signers": list(signers),
            "signer_count": len(signers),
            "slots_before": slots,
        }
        slots += fetch_only(conn, "seed_payments", "seed_payments", parameters).slots
        placed = chained(head, _entries(conn, first, last))
        if placed:
            insert_placed(conn, placed)
            head = Head(placed[-1].seq, placed[-1].hash)
        progress("payments", (last - first + 1) * PAYMENT_WEIGHT)
    run(conn, "seed_payments", "seed_balances")


def _entries(conn: psycopg.Connection[Any], first: int, last: int) -> Iterator[Entry]:
    """The journal entries of a range of seeded payments: a hold, and what became of it."""
    for row in fetch_all(conn, "seed_payments", "seeded", {"lo": first, "hi": last}):
        tx_hash = bytes(row.tx_hash) if row.tx_hash is not None else None
        one = _Seeded(
            row.public_id, bytes(row.ref), row.chain, row.token, row.payer, row.merchant, int(row.amount), tx_hash, row.updated_at
        )  # fmt: skip
        yield hold_of(one._replace(updated_at=row.created_at + _HELD_AFTER))
        if row.state == IntentState.SETTLED.value:
            yield post_of(one)
        elif row.state == IntentState.FAILED.value:
            yield void_of(one, IntentActor.RELAYER, memo=_FAILED)
