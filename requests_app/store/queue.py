"""The work queue: enqueue, lease, and what a worker does with a lease (design 2.3; reference queue_settle 2).

Delivery is at least once. A job is a pointer and says nothing of its subject's state, so `lease_requests` reads the rows
again with the lease. A worker that gets `stale` or `not_found` does nothing further: whatever it wrote is idempotent.
Times are the database's; delays and lease lengths are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple
from uuid import UUID

from psycopg import Connection

from requests_app import sql
from requests_app.states import Kind, ReqType, Status
from requests_app.store.session import Row, fetch_all, fetch_tuples, run
from requests_app.store.turns import Pair, Turns

READY: Final = "ready"  # decrypts that wait for host ACL and gateway readiness
SEND: Final = "send"  # requests that wait for a nonce
NORMAL: Final = 100
RESCUE: Final = 0
# A decrypt that the host ACL allows and the gateway is not ready for. Behind everything that was never asked about: however many
# of these are due at once, a new request does not wait for them.
DEFERRED: Final = 200
_KINDS: Final = {kind.value: kind for kind in Kind}
_made: Final = tuple.__new__


class Verdict(StrEnum):
    """What became of a receipt."""

    OK = "ok"
    STALE = "stale"  # the job is there, but was leased again since
    NOT_FOUND = "not_found"  # the job is gone


class Receipt(NamedTuple):
    """The handle of one lease of one job."""

    job_id: int
    attempt: int


class Subject(NamedTuple):
    """What a job points at."""

    kind: Kind
    id: int


class Delivery(NamedTuple):
    """One leased job."""

    receipt: Receipt
    subject: Subject
    tenant_id: int


class LeasedRequest(NamedTuple):
    """One leased job with its request as it stands now. `status` None: no such row. `body` is the canonical payload.

    `turn`: priority and tenant of the job.
    """

    receipt: Receipt
    subject: Subject
    status: Status | None
    ext_job_id: UUID | None
    req_type: ReqType | None
    body: Mapping[str, Any] | None
    overdue: bool
    effective: bool
    has_slot: bool
    turn: Pair = (NORMAL, 0)

    @property
    def deferred(self) -> bool:
        """Whether it has been put off by `defer_jobs`."""
        return self.turn[0] >= DEFERRED


def enqueue_jobs(
    conn: Connection[Any], queue: str, subjects: Sequence[tuple[Subject, int]], *, priority: int = NORMAL
) -> int:
    """Put (subject, tenant) pairs into a queue; how many were not there already, leased or waiting."""
    if not subjects:
        return 0
    parameters = {
        "queue": queue,
        "priority": priority,
        "kind": [subject.kind.value for subject, _ in subjects],
        "subject": [subject.id for subject, _ in subjects],
        "tenant": [tenant for _, tenant in subjects],
    }
    return run(conn, "queue", "enqueue_jobs", parameters)


def lease_jobs(
    conn: Connection[Any], queue: str, limit: int, owner: str, seconds: float, *, turns: Turns | None = None
) -> list[Delivery]:
    """At most `limit` visible jobs, hidden from others for `seconds`. Attempts count at lease.

    By priority, then in turn by tenant, each tenant's oldest first. A loop keeps its `turns` from lease to lease.
    """

    def fetch(claim: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        lease = {**parameters, "owner": owner, "seconds": float(seconds)}
        return fetch_tuples(conn, "queue", "lease_jobs", lease, claim=claim, leased=sql.statement("queue", "leased"))

    rows = (turns or Turns(queue)).take(conn, limit, DEFERRED, DEFERRED, fetch)
    return [delivery_of(*row) for row in rows]


def delivery_of(_priority: int, tenant: int, id: int, attempt: int, kind: int, subject: int) -> Delivery:
    """A row of `lease_jobs`. Made past the classes' own constructors, which took half the time: a lease makes hundreds."""
    return _made(Delivery, (_made(Receipt, (id, attempt)), _made(Subject, (_KINDS[kind], subject)), tenant))


def lease_requests(
    conn: Connection[Any],
    queue: str,
    limit: int,
    owner: str,
    seconds: float,
    *,
    deferred: bool = True,
    turns: Turns | None = None,
) -> list[LeasedRequest]:
    """As `lease_jobs`, with row, payload and effectiveness of the clients read again in the same statement.

    `deferred` False leaves out the jobs that were put off by `defer_jobs`.
    """

    def fetch(claim: str, parameters: dict[str, Any]) -> list[Row]:
        lease = {**parameters, "owner": owner, "seconds": float(seconds)}
        return fetch_all(conn, "queue", "lease_requests", lease, claim=claim, leased=sql.statement("queue", "leased"))

    rows = (turns or Turns(queue)).take(conn, limit, DEFERRED if deferred else DEFERRED - 1, DEFERRED, fetch)
    return [
        LeasedRequest(
            Receipt(row.id, row.attempt),
            Subject(Kind(row.kind), row.subject_id),
            Status(row.status) if row.status else None,
            row.ext_job_id,
            ReqType(row.req_type) if row.req_type else None,
            row.body,
            bool(row.overdue),
            row.effective,
            row.has_slot,
            (row.priority, row.tenant_id),
        )
        for row in rows
    ]


def ack_jobs(conn: Connection[Any], receipts: Sequence[Receipt]) -> list[Verdict]:
    """Delete the jobs whose receipts are current. One verdict a receipt, in order."""
    return _verdicts(conn, "ack_jobs", receipts)


def nack_jobs(conn: Connection[Any], receipts: Sequence[Receipt], delays: Sequence[float]) -> list[Verdict]:
    """Release the jobs; each becomes visible again after its own delay. The attempts stay counted."""
    return _verdicts(conn, "nack_jobs", receipts, delay=[float(delay) for delay in delays])


def defer_jobs(
    conn: Connection[Any], receipts: Sequence[Receipt], seconds: float, grid_seconds: float
) -> list[Verdict]:
    """Release the jobs behind all others, visible again after `seconds` at the next multiple of `grid_seconds`.

    The common moments keep batches together: jobs that were put off one by one come back as one batch.
    """
    return _verdicts(conn, "defer_jobs", receipts, seconds=float(seconds), grid=float(grid_seconds), priority=DEFERRED)


def extend_jobs(conn: Connection[Any], receipts: Sequence[Receipt], seconds: float) -> list[Verdict]:
    """Keep the jobs hidden for `seconds` from now."""
    return _verdicts(conn, "extend_jobs", receipts, seconds=seconds)


def move_jobs(conn: Connection[Any], receipts: Sequence[Receipt], queue: str) -> list[Verdict]:
    """Hand the jobs over to another queue, visible at once, with a new id and no attempts."""
    return _verdicts(conn, "move_jobs", receipts, queue=queue)


def release_orphans(conn: Connection[Any]) -> int:
    """Make the jobs of processes that are gone visible at once; how many."""
    return run(conn, "queue", "release_orphans")


def _verdicts(conn: Connection[Any], name: str, receipts: Sequence[Receipt], **more: Any) -> list[Verdict]:
    if not receipts:
        return []
    job_ids, attempts = map(list, zip(*receipts, strict=True))
    parameters = {"id": job_ids, "attempt": attempts, **more}
    verdicts = [Verdict.OK] * len(receipts)
    for row in fetch_all(conn, "queue", name, parameters, missed=sql.statement("queue", "missed")):
        verdicts[row.place] = Verdict.STALE if row.present else Verdict.NOT_FOUND
    return verdicts
