"""Dead letters: jobs that poisoned, or used up their attempts (reference queue_settle 2.7).

Only a person moves one, once: back to its queue as it was, before all others (`redrive`), or away (`drop`). No sweep makes a new job
for a subject with a parked letter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from psycopg import Connection

from requests_app.models.jobs import LetterStatus
from requests_app.states import Kind
from requests_app.store.queue import RESCUE, Receipt, Subject
from requests_app.store.session import fetch_all, fetch_one, run


class GivenUp(NamedTuple):
    """A leased job that is not tried again, why, and the state its row is left in."""

    receipt: Receipt
    reason: str
    state: str | None


class Redriven(NamedTuple):
    """What became of a redrive. `queued` False: the subject had a job again already."""

    subject: Subject
    job_key: str
    queued: bool


def park_jobs(conn: Connection[Any], given_up: Sequence[GivenUp]) -> list[int]:
    """Jobs into dead letters, in the caller's transaction or one of its own; the ids of jobs whose receipt was current.

    Raises ValueError for an empty reason.
    """
    if not given_up:
        return []
    if not all(one.reason.strip() for one in given_up):
        raise ValueError("a job is given up for a reason")
    parameters = {
        "id": [one.receipt.job_id for one in given_up],
        "attempt": [one.receipt.attempt for one in given_up],
        "reason": [one.reason for one in given_up],
        "state": [one.state for one in given_up],
    }
    return [row.id for row in fetch_all(conn, "letters", "park_jobs", parameters)]


def redrive(conn: Connection[Any], letter_id: int, by: str) -> Redriven | None:
    """Put a parked letter's job back, unchanged but first in its queue; None when the letter is not parked (any more).

    In the caller's transaction: letter and job change together.
    """
    row = fetch_one(
        conn, "letters", "resolve_letter", {"id": letter_id, "status": LetterStatus.REDRIVEN.value, "by": by}
    )
    if row is None:
        return None
    parameters = {
        "queue": row.queue,
        "job_key": row.job_key,
        "kind": row.kind,
        "subject_id": row.subject_id,
        "tenant_id": row.tenant_id,
        "priority": RESCUE,
    }
    queued = run(conn, "letters", "requeue", parameters) == 1
    return Redriven(Subject(Kind(row.kind), row.subject_id), row.job_key, queued)


def drop(conn: Connection[Any], letter_id: int, by: str) -> bool:
    """Close a parked letter without a job; False when it is not parked (any more)."""
    parameters = {"id": letter_id, "status": LetterStatus.DROPPED.value, "by": by}
    return fetch_one(conn, "letters", "resolve_letter", parameters) is not None
