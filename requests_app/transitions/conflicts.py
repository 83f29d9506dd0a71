"""Requests and payments that a contradiction of the log names go to a person (reference queue_settle 4.9; envelopes 6.3).

Which of two events at one position is true cannot be told here. Rows that wait for their transaction or its answer are parked; rows that
have ended stay as they are (I4), but get a case to be taken note of. Lock order: lease, conflicts, rows in key order, intents.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from psycopg import Connection

from requests_app.crash_points import crash_point
from requests_app.errors import StaleEpoch
from requests_app.models.reviews import ReasonCode
from requests_app.states import FINAL, INTENT_FINAL, REQUEST_KINDS, Actor, Kind
from requests_app.store import conflicts as store
from requests_app.store import intents as intent_store
from requests_app.store import leases, reorgs, sweep
from requests_app.store.conflicts import Unreviewed
from requests_app.store.envelopes import INDEX_BITS
from requests_app.store.queue import Subject
from requests_app.store.session import transaction
from requests_app.store.signing import Fence
from requests_app.transitions import generic, payment_ends

DETAIL: Final = "two different events were read at one position of the log, and one of them names it"
ENDED: Final = "it has ended and stays as it is; one of the two events names it"
Evidence = Mapping[Subject, Mapping[str, Any]]


class Reviewed(NamedTuple):
    """What a run did: conflicts seen, subjects that went to review, cases of those that had ended."""

    conflicts: int
    parked: list[Subject]
    noted: int


def review(conn: Connection[Any], fence: Fence, limit: int) -> Reviewed:
    """Give what new conflicts name to a person, each conflict once, in one transaction. Raises StaleEpoch with nothing written."""
    with transaction(conn):
        if not leases.fence(conn, fence.resource, fence.instance, fence.epoch):
            raise StaleEpoch(fence.resource)
        done = show(conn, fence.epoch, limit)
        crash_point("before_review_conflicts_commit")
    crash_point("after_review_conflicts_commit")
    return done


def show(conn: Connection[Any], epoch: int, limit: int) -> Reviewed:
    """As `review`, in a transaction of the caller, who holds a lease."""
    found = store.lock_unreviewed(conn, limit)
    if not found:
        return Reviewed(0, [], 0)
    evidence = _evidence(found, store.named_subjects(conn, [one.id for one in found]))
    parked, noted = _requests(conn, evidence, epoch)
    paid, closed = _payments(conn, evidence, epoch)
    store.mark_reviewed(conn, [one.id for one in found])
    return Reviewed(len(found), parked + paid, noted + closed)


def _requests(conn: Connection[Any], evidence: Evidence, epoch: int) -> tuple[list[Subject], int]:
    parked: list[Subject] = []
    noted = 0
    for kind in REQUEST_KINDS:
        mine = _of(kind, evidence)
        standing = reorgs.lock_rows(conn, kind, set(mine))
        moved = generic.park(
            conn, kind, mine, ReasonCode.ENVELOPE_CONFLICT, Actor.SWEEP, detail=DETAIL, epoch=epoch
        )  # fmt: skip
        sweep.drop_jobs(conn, kind, [row.id for row in moved])
        parked += [Subject(kind, row.id) for row in moved]
        noted += _note(conn, kind, mine, (key for key, status in standing.items() if status in FINAL))
    return parked, noted


def _payments(conn: Connection[Any], evidence: Evidence, epoch: int) -> tuple[list[Subject], int]:
    mine = _of(Kind.PAYMENT, evidence)
    if not mine:
        return [], 0
    moved = payment_ends.park(conn, mine, ReasonCode.ENVELOPE_CONFLICT, DETAIL, epoch)
    ids = [one.intent.id for one in moved]
    intent_store.drop_settle(conn, ids)
    ended = (one.id for one in intent_store.lock_intents(conn, sorted(mine)) if one.state in INTENT_FINAL)
    return [Subject(Kind.PAYMENT, one) for one in ids], _note(conn, Kind.PAYMENT, mine, ended)


def _note(conn: Connection[Any], kind: Kind, mine: Mapping[int, Mapping[str, Any]], ended: Iterable[int]) -> int:
    """Cases of rows that have ended: how many had none."""
    evidence = {key: {**mine[key], "note": ENDED} for key in ended}
    return generic.open_reviews(conn, kind, evidence, ReasonCode.ENVELOPE_CONFLICT)


def _of(kind: Kind, evidence: Evidence) -> dict[int, Mapping[str, Any]]:
    return {subject.id: found for subject, found in evidence.items() if subject.kind is kind}


def _evidence(found: Sequence[Unreviewed], named: Sequence[tuple[int, Subject]]) -> Evidence:
    """What to show of each subject: the first conflict that names it, and how many do."""
    by_id = {one.id: one for one in found}
    evidence: dict[Subject, dict[str, Any]] = {}
    for conflict_id, subject in named:
        shown = evidence.setdefault(subject, {**_shown(by_id[conflict_id]), "conflicts": 0})
        shown["conflicts"] += 1
    return evidence


def _shown(one: Unreviewed) -> dict[str, Any]:
    return {
        "conflict": one.id,
        "source": one.source_id,
        "block": one.position >> INDEX_BITS,
        "log_index": one.position & (1 << INDEX_BITS) - 1,
        "stored_digest": f"0x{one.have.hex()}",
        "got_digest": f"0x{one.got.hex()}",
        "stored_tx_hash": f"0x{one.have_tx_hash.hex()}" if one.have_tx_hash else None,
        "got_tx_hash": f"0x{one.got_tx_hash.hex()}" if one.got_tx_hash else None,
    }
