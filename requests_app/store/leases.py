"""Execution leases: claim, renew, release, fence (design 5.1 no. 4 and 5; reference engine_spike section 2).

A lease is named by its resource and has one holder at a time. The epoch, which grows by one at every take-over, is what fences:
a write carries (resource, instance, epoch) and changes nothing when that triple is no longer the row's. Durations are seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from zlib import crc32

from psycopg import Connection

from requests_app.store.session import fetch_all, fetch_one, run

_EPOCHS = 2**31  # advisory keys are two signed 32-bit numbers


class LeaseRow(NamedTuple):
    """What a candidate sees of a lease."""

    epoch: int
    instance: str
    expired: bool


class Approached(NamedTuple):
    """What a candidate found who would take a lease. `gone`: the holder's session is, and its liveness lock is the candidate's now."""

    epoch: int
    expired: bool
    gone: bool


class LeaseRef(NamedTuple):
    """One lease as a holder knows it."""

    resource: str
    epoch: int


def look_at_lease(conn: Connection[Any], resource: str) -> LeaseRow | None:
    """The lease of a resource, or None when nobody has ever asked for it."""
    row = fetch_one(conn, "leases", "look_at_lease", {"resource": resource})
    return LeaseRow(*row) if row else None


def approach_lease(conn: Connection[Any], resource: str, after: int | None, *, hint: bool) -> Approached | None:
    """A candidate's look: the lease's epoch, whether it has ended, and else whether its holder's session is gone.

    `after`: only as the successor of that epoch. `hint` False: only the end counts. The liveness lock of a session that is gone is
    this session's afterwards: `drop_liveness` gives it back. None when nobody has ever asked for the lease.
    """
    params = {"resource": resource, "key": _key(resource), "epochs": _EPOCHS, "after": after, "hint": hint}
    row = fetch_one(conn, "leases", "approach_lease", params)
    return Approached(*row) if row else None


def open_lease(conn: Connection[Any], resource: str) -> None:
    """Have a row for the resource; an existing one stays as it is."""
    run(conn, "leases", "open_lease", {"resource": resource})


def try_liveness(conn: Connection[Any], resource: str, epoch: int) -> bool:
    """Take the liveness lock of (resource, epoch) on this session if it is free. Never waits."""
    row = fetch_one(conn, "leases", "try_liveness", _liveness(resource, epoch))
    return bool(row and row.obtained)


def drop_liveness(conn: Connection[Any], resource: str, epoch: int) -> bool:
    """Give the liveness lock of (resource, epoch) back. False when this session does not hold it."""
    row = fetch_one(conn, "leases", "drop_liveness", _liveness(resource, epoch))
    return bool(row and row.dropped)


def claim_lease(
    conn: Connection[Any], resource: str, instance: str, epoch: int, seconds: float, *, gone: bool, how: str
) -> int | None:
    """Take over the lease that stands at `epoch`: the new epoch, or None when it moved on or its holder is alive."""
    params = {
        "resource": resource, "instance": instance, "epoch": epoch, "seconds": seconds, "gone": gone, "how": how,
    }  # fmt: skip
    row = fetch_one(conn, "leases", "claim_lease", params)
    return int(row.epoch) if row else None


def renew_leases(conn: Connection[Any], instance: str, leases: Sequence[LeaseRef], seconds: float) -> set[LeaseRef]:
    """Extend leases of one instance by `seconds` from now: those that are still its own."""
    params = {
        "instance": instance,
        "resources": [lease.resource for lease in leases],
        "epochs": [lease.epoch for lease in leases],
        "seconds": seconds,
    }
    return {LeaseRef(*row) for row in fetch_all(conn, "leases", "renew_leases", params)}


def release_lease(conn: Connection[Any], resource: str, instance: str, epoch: int) -> bool:
    """End a lease now. False when it was no longer this holder's."""
    params = {"resource": resource, "instance": instance, "epoch": epoch}
    return run(conn, "leases", "release_lease", params) == 1


def fence(conn: Connection[Any], resource: str, instance: str, epoch: int) -> bool:
    """Whether the triple still stands; locks the lease until the end of the caller's transaction, so that it goes on standing.

    Meaningful only inside a transaction. Statements that can carry the same SELECT in a materialized CTE save a round trip.
    """
    params = {"resource": resource, "instance": instance, "epoch": epoch}
    return fetch_one(conn, "leases", "fence", params) is not None


def idle_leases(conn: Connection[Any], prefix: str, seconds: float) -> list[LeaseRef]:
    """Leases whose resource starts with `prefix` and that ended more than `seconds` ago."""
    rows = fetch_all(conn, "leases", "idle_leases", {"prefix": prefix, "seconds": seconds})
    return [LeaseRef(*row) for row in rows]


def forget_holds(conn: Connection[Any], seconds: float, limit: int) -> int:
    """Delete at most `limit` reviewers' holds on cases that ended more than `seconds` ago: how many."""
    return run(conn, "leases", "forget_holds", {"seconds": seconds, "limit": limit})


def _liveness(resource: str, epoch: int) -> dict[str, int]:
    return {"key": _key(resource), "epoch": epoch % _EPOCHS}


def _key(resource: str) -> int:
    key = crc32(resource.encode())
    return key - 2**32 if key >= 2**31 else key
