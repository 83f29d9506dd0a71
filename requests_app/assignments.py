"""Who works on a review case: the lease `review:<case>`, claimed and renewed only for an active account (design 5.5.3).

A decision carries the lease's epoch, so that a page that lost the case decides nothing.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from psycopg import Connection

from requests_app.decisions import Held
from requests_app.reviewers import lock_reviewer
from requests_app.store import leases
from requests_app.store.session import transaction

SECONDS: Final = 90.0
RENEW_SECONDS: Final = 20
PREFIX: Final = "desk:"


class Assigned(NamedTuple):
    """A live hold on a case: the reviewer's name and the epoch."""

    reviewer: str
    epoch: int

    @property
    def held(self) -> Held:
        """The hold as a decision carries it."""
        return Held(instance_of(self.reviewer), self.epoch)


def resource_of(case_id: int) -> str:
    """The lease's name."""
    return f"review:{case_id}"


def instance_of(reviewer: str) -> str:
    """How a reviewer is named in the lease."""
    return f"{PREFIX}{reviewer}"


def assigned(conn: Connection[Any], case_id: int) -> Assigned | None:
    """Who has the case now; None when nobody has."""
    row = leases.look_at_lease(conn, resource_of(case_id))
    return Assigned(row.instance.removeprefix(PREFIX), row.epoch) if row is not None and not row.expired else None


def assign(conn: Connection[Any], case_id: int, reviewer_id: int) -> Assigned | None:
    """Claim the case, or renew what the reviewer has: the hold, whose it is now, or None for a disabled account."""
    with transaction(conn):
        name = lock_reviewer(conn, reviewer_id)
        if name is None:
            return None
        resource, instance = resource_of(case_id), instance_of(name)
        leases.open_lease(conn, resource)
        row = leases.look_at_lease(conn, resource)
        if row is not None and not row.expired:
            if row.instance == instance:
                leases.renew_leases(conn, instance, [leases.LeaseRef(resource, row.epoch)], SECONDS)
            return Assigned(row.instance.removeprefix(PREFIX), row.epoch)
        if row is not None:
            epoch = leases.claim_lease(conn, resource, instance, row.epoch, SECONDS, gone=False, how="assigned")
            if epoch is not None:
                return Assigned(name, epoch)
    return assigned(conn, case_id)


def renew(conn: Connection[Any], case_id: int, reviewer_id: int, epoch: int) -> bool:
    """Keep the case while its page is open; False when it is somebody else's, or the account was disabled."""
    with transaction(conn):
        name = lock_reviewer(conn, reviewer_id)
        if name is None:
            return False
        ref = leases.LeaseRef(resource_of(case_id), epoch)
        return ref in leases.renew_leases(conn, instance_of(name), [ref], SECONDS)


def give_up(conn: Connection[Any], case_id: int, reviewer: str, epoch: int) -> bool:
    """End the hold now, so that a colleague need not wait."""
    return leases.release_lease(conn, resource_of(case_id), instance_of(reviewer), epoch)
