"""What the two machines share: an empty beginning, and all invariants at once."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test
from psycopg import Connection

from requests_app.management.commands.relayer_check_invariants import looks
from requests_app.store import invariants
from requests_app.store.invariants import INVARIANTS, Violation

TABLES = (
    "queue_job", "dead_letter", "review_case", "tx_attempt", "nonce_slot", "signer", "exec_lease", "ledger_leg", "ledger_entry",
    "ledger_balance", "intent_transition", "payment_intent", "usage_billed", "usage_settled", "usage_unsettled", "client_account",
)  # fmt: skip


def begin(conn: Connection[Any]) -> None:
    """No payments, no journal, no signers."""
    deletes = "; ".join(f"DELETE FROM {table}" for table in TABLES)
    conn.execute(f"BEGIN; SET LOCAL session_replication_role = replica; {deletes}; COMMIT")


def violations(conn: Connection[Any], only: set[str] | None = None) -> list[Violation]:
    """Whatever breaks an invariant now."""
    chosen = [one for one in INVARIANTS if only is None or one.name in only]
    return [found for look in looks(conn, chosen, 1000) for found in invariants.check(conn, *look)]


def live(machine: type[RuleBasedStateMachine], conn: Connection[Any], examples: int, steps: int) -> None:
    """Let a machine run on this connection."""
    limits = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(type("Machine", (machine,), {"conn": conn}), settings=limits)
