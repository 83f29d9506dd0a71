"""What the chain says of signed transactions, with what follows for payments in the same transaction. Facts: not fenced.

Requests of the gateway follow the log; their jobs go when they are broadcast. A payment is confirming as soon as a node has it,
and its job goes only then: until that it comes back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from psycopg import Connection

from requests_app.crash_points import crash_point
from requests_app.models.signing import AttemptKind, AttemptState
from requests_app.states import Kind
from requests_app.store import attempts as store
from requests_app.store import queue
from requests_app.store.attempts import Found, Outgoing, SendOutcome
from requests_app.store.intents import Intent
from requests_app.store.queue import Receipt, Subject
from requests_app.store.session import transaction
from requests_app.transitions import payment_ends, settling
from requests_app.transitions.payment_ends import RevertedPayment

CALLS: Final = (AttemptKind.PAY, AttemptKind.REPLACE)


class Jobs(NamedTuple):
    """What becomes of the jobs of a broadcast: those that are done whatever the node said, and payments' by intent id, which are
    done when a node has the bytes, else put off so many seconds."""

    done: Sequence[Receipt] = ()
    payments: Mapping[int, tuple[Receipt, float]] = {}


NO_JOBS: Final = Jobs()
_NO_INTENTS: Final[Mapping[int, Intent]] = {}


class Mined(NamedTuple):
    """A receipt, or the absence of one, of an attempt of `subject`. `purpose`: what the attempt was made for."""

    found: Found
    subject: Subject
    tx_hash: bytes
    purpose: AttemptKind


def record_sends(
    conn: Connection[Any],
    signer_id: int,
    sent: Sequence[tuple[Outgoing, SendOutcome]],
    jobs: Jobs = NO_JOBS,
    known: Mapping[int, Intent] = _NO_INTENTS,
) -> int:
    """TX2: what the node said to each broadcast, settling -> confirming for payments that it took, and the jobs; how many attempts
    were still open. `known`: payments as TX1 left them, which need not be read again. A no-op that was taken confirms nothing."""
    outcomes = [outcome for _, outcome in sent]
    payments = [(item, outcome) for item, outcome in sent if item.subject.kind is Kind.PAYMENT]
    if not payments:
        crash_point("before_record_requests_commit")
        open_attempts = store.record_sends(conn, signer_id, outcomes, jobs.done)
        crash_point("after_record_requests_commit")
        return open_attempts
    taken = {
        item.subject.id: item.tx_hash
        for item, outcome in payments
        if outcome.state is AttemptState.ACCEPTED and item.purpose in CALLS
    }
    with transaction(conn):
        open_attempts = store.record_sends(conn, signer_id, outcomes)
        settling.confirm(conn, [(known[one], tx_hash) for one, tx_hash in taken.items() if one in known])
        settling.note_taken(conn, {one: tx_hash for one, tx_hash in taken.items() if one not in known})
        done = [receipt for one, (receipt, _) in jobs.payments.items() if one in taken]
        back = [pair for one, pair in jobs.payments.items() if one not in taken]
        queue.ack_jobs(conn, [*jobs.done, *done])
        queue.nack_jobs(conn, [receipt for receipt, _ in back], [delay for _, delay in back])
        crash_point("before_record_payments_commit")
    crash_point("after_record_payments_commit")
    return open_attempts


def record_lookups(conn: Connection[Any], signer_id: int, mined: Sequence[Mined]) -> int:
    """Receipts on the attempts, and settling -> confirming for payments whose call was mined with success; how many changed."""
    paid = {
        one.subject.id: one.tx_hash
        for one in mined
        if one.subject.kind is Kind.PAYMENT and one.purpose in CALLS and one.found.settled and one.found.status == 1
    }
    if not paid:
        crash_point("before_record_receipts_commit")
        changed = store.record_lookups(conn, signer_id, [one.found for one in mined])
        crash_point("after_record_receipts_commit")
        return changed
    with transaction(conn):
        changed = store.record_lookups(conn, signer_id, [one.found for one in mined])
        settling.note_mined(conn, paid)
        crash_point("before_record_mined_commit")
    crash_point("after_record_mined_commit")
    return changed


def revert_payments(
    conn: Connection[Any], signer_id: int, reverted: Sequence[tuple[Found, RevertedPayment]]
) -> list[Subject]:
    """Mined payments with status 0 that the chain can no longer take back: attempts and slots mined, the payments judged."""
    if not reverted:
        return []
    with transaction(conn):
        store.record_lookups(conn, signer_id, [found for found, _ in reverted])
        moved = payment_ends.revert(conn, [one for _, one in reverted])
        crash_point("before_revert_payments_commit")
    crash_point("after_revert_payments_commit")
    return [Subject(Kind.PAYMENT, one.intent.id) for one in moved]
