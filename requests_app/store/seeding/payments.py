"""Payment intents and journal of a seeded database. Written with indexes and the journal's own guards in place: the entries balance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

import psycopg

from requests_app.store.seeding.layout import SPAN_SECONDS, PaymentPlan, chunks
from requests_app.store.session import fetch_only, run

CHAIN: Final = "evm:31337"
TOKEN: Final = "0x5FbDB2315678afecb367f032d93F642f64180aa3"  # noqa: S105 - a token's address
PAYMENT_WEIGHT: Final = 2.0


def fill_payments(
    conn: psycopg.Connection[Any],
    plan: PaymentPlan,
    base: datetime,
    clients: Sequence[int],
    signers: Sequence[int],
    progress: Callable[[str, float], None],
) -> None:
    """Write the plan's intents in the caller's transaction, ended before `base`. Needs the empty tables of payments and the journal."""
    slots = entries = 0
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
            "seq_before": entries,
        }
        row = fetch_only(conn, "seed_payments", "seed_payments", parameters)
        slots, entries = slots + row.slots, entries + row.entries
        progress("payments", (last - first + 1) * PAYMENT_WEIGHT)
    run(conn, "seed_payments", "seed_balances")
