"""No row waits for ever (I3): what is past its deadline is settled, timed out after the chain was asked, or given to a person.

| state past its deadline | what happens |
|---|---|
| queued | timed_out, a minute after readiness should have done it |
| processing, never signed | failure |
| processing, signed before | needs_review |
| tx_in_flight | receipts asked: applied, left to the sender (reverted), or needs_review |
| receipt_received | the gateway asked: no answer -> timed_out; an answer -> read again and applied, else a little more time; needs_review when that is over, also without a word that can be believed |

Decisions carry the duty's lease; facts of the chain need no fence. The network is never used inside a transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from psycopg import Connection

from requests_app.crash_points import crash_point
from requests_app.errors import StaleEpoch
from requests_app.models.reviews import ReasonCode
from requests_app.states import REQUEST_KINDS, Actor, Kind, Status, Verb
from requests_app.store import leases, sweep
from requests_app.store.session import transaction
from requests_app.store.sweep import Overdue
from requests_app.transitions import generic
from requests_app.transitions.generic import Change
from workers.duties import chain_evidence
from workers.leases import HeldLease
from workers.shift import ShiftContext

log = logging.getLogger("relayer.sweep")

INTERVAL: Final = 5.0
BATCH: Final = 500
READINESS_GRACE_SECONDS: Final = 60.0
MORE_TIME_SECONDS: Final = 120.0
PATIENCE: Final = 2.0  # how many times its state's deadline a row may stay on the strength of "the chain knows more"

READINESS_TEXT: Final = "Ciphertext not ready for decryption on the gateway chain"
RESPONSE_TEXT: Final = "Gateway chain did not respond within the expected timeframe"
ABANDONED_TEXT: Final = "Not sent before the deadline; no transaction exists"
SIGNED_TEXT: Final = "the deadline passed with a signed transaction on record"
NO_RECEIPT_TEXT: Final = "no receipt for any stored transaction before the deadline"
NO_ANSWER_TEXT: Final = "the gateway says that it answered, but the answer cannot be read"
NO_WORD_TEXT: Final = "no node that can know it says whether the gateway has answered"


def run(context: ShiftContext, lease: HeldLease) -> int:
    """Settle the overdue rows of all kinds; how many were looked at."""
    rows = sweep.overdue(context.conn, BATCH)
    if not rows:
        return 0
    duty = _Duty(context, lease)
    handled = 0
    for kind in REQUEST_KINDS:
        for status, act in duty.actions().items():
            mine = [row for row in rows if row.kind is kind and row.status is status]
            if mine and not context.stopping():
                handled += act(kind, mine)
    return handled


class _Duty:
    """One run: the rows of one kind and one state at a time."""

    def __init__(self, context: ShiftContext, lease: HeldLease) -> None:
        self._context, self._lease, self._conn = context, lease, context.conn

    def actions(self) -> Mapping[Status, Callable[[Kind, Sequence[Overdue]], int]]:
        """What is done with rows of each state. A row in review has no deadline: it waits for a person."""
        return {
            Status.QUEUED: self._queued,
            Status.PROCESSING: self._processing,
            Status.TX_IN_FLIGHT: self._in_flight,
            Status.RECEIPT_RECEIVED: self._unanswered,
        }

    def _queued(self, kind: Kind, rows: Sequence[Overdue]) -> int:
        late = [row for row in rows if row.late_seconds >= READINESS_GRACE_SECONDS]
        return self._end(Verb.EXPIRE_READINESS, kind, late, "readiness_check_timed_out", READINESS_TEXT)

    def _processing(self, kind: Kind, rows: Sequence[Overdue]) -> int:
        unsigned = [row for row in rows if not row.has_attempt]
        ended = self._end(Verb.ABANDON, kind, unsigned, "internal_server_error", ABANDONED_TEXT)
        return ended + self._park(kind, [row for row in rows if row.has_attempt], SIGNED_TEXT, {})

    def _in_flight(self, kind: Kind, rows: Sequence[Overdue]) -> int:
        found = chain_evidence.receipts(self._context, kind, [row.id for row in rows])
        # A receipt was applied, or its revert waits for depth with the sender: some more time, but not for ever.
        pending = found.mined | found.reverted
        self._more_time(
            kind, Status.TX_IN_FLIGHT, [row for row in rows if row.id in pending and not self._too_old(row)]
        )
        unproven = pending | found.unknown
        lost = [row for row in rows if row.id not in unproven or self._too_old(row)]
        return len(found.mined) + self._park(kind, lost, NO_RECEIPT_TEXT, found.evidence)

    def _unanswered(self, kind: Kind, rows: Sequence[Overdue]) -> int:
        found = chain_evidence.answers(self._context, kind, rows)
        silent = [row for row in rows if row.id in found.silent]
        ended = self._end(Verb.EXPIRE_RESPONSE, kind, silent, "response_timed_out", RESPONSE_TEXT)
        told = [row for row in rows if row.id in found.answered | found.doubtful]
        self._more_time(kind, Status.RECEIPT_RECEIVED, [row for row in told if not self._too_old(row)])
        old = [row for row in rows if row.id not in found.silent and self._too_old(row)]
        unread = [row for row in old if row.id in found.answered]
        unsaid = [row for row in old if row.id not in found.answered]
        return ended + self._park(kind, unread, NO_ANSWER_TEXT, {}) + self._park(kind, unsaid, NO_WORD_TEXT, {})

    def _too_old(self, row: Overdue) -> bool:
        allowed = generic.deadline_seconds(row.status)
        return allowed is not None and row.spent_seconds > PATIENCE * allowed

    def _end(self, verb: Verb, kind: Kind, rows: Sequence[Overdue], label: str, detail: str) -> int:
        if not rows:
            return 0
        with self._fenced(kind, rows) as (conn, ids):
            changes = [Change(row_id, label=label, detail=detail) for row_id in sorted(ids)]
            ended = generic.apply(conn, verb, kind, changes, Actor.SWEEP, epoch=self._lease.epoch)
            sweep.drop_jobs(conn, kind, [row.id for row in ended])
        _report(verb.value, kind, len(ended))
        return len(ended)

    def _park(self, kind: Kind, rows: Sequence[Overdue], detail: str, evidence: Mapping[int, Mapping[str, Any]]) -> int:
        if not rows:
            return 0
        with self._fenced(kind, rows) as (conn, ids):
            cases = {row.id: {**_circumstances(row), **evidence.get(row.id, {})} for row in rows if row.id in ids}
            parked = generic.park(
                conn, kind, cases, ReasonCode.OUTCOME_UNKNOWN, Actor.SWEEP, detail=detail, epoch=self._lease.epoch
            )
            sweep.drop_jobs(conn, kind, [row.id for row in parked])
        _report("park", kind, len(parked))
        return len(parked)

    def _more_time(self, kind: Kind, status: Status, rows: Iterable[Overdue]) -> None:
        ids = [row.id for row in rows]
        if ids:
            crash_point("before_extend_deadlines_commit")
            sweep.extend_deadlines(self._conn, kind, ids, status, MORE_TIME_SECONDS)
            crash_point("after_extend_deadlines_commit")

    @contextmanager
    def _fenced(self, kind: Kind, rows: Sequence[Overdue]) -> Iterator[tuple[Connection[Any], set[int]]]:
        """One transaction under the duty's lease, with the rows that stand as they did when they were read, locked.

        Raises StaleEpoch before anything is written.
        """
        with transaction(self._conn):
            if not leases.fence(self._conn, self._lease.resource, self._lease.instance, self._lease.epoch):
                raise StaleEpoch
            yield self._conn, sweep.still_overdue(self._conn, kind, [row.id for row in rows], rows[0].status)
            crash_point("before_overdue_commit")
        crash_point("after_overdue_commit")


def _circumstances(row: Overdue) -> dict[str, Any]:
    return {
        "state": row.status.value,
        "late_seconds": round(row.late_seconds),
        "spent_seconds": round(row.spent_seconds),
    }


def _report(what: str, kind: Kind, count: int) -> None:
    if count:
        log.warning("overdue rows", extra={"action": f"overdue_{what}", "kind": kind.slug, "count": count})
