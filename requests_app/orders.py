"""Orders from the page of a signer, a source or a payment: a command, in one transaction with the check of the account (design 5.1.6, I11)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from psycopg import Connection

from requests_app.crash_points import crash_point
from requests_app.models.commands import CommandKind, Target
from requests_app.reviewers import lock_reviewer
from requests_app.states import Kind
from requests_app.store import commands as store
from requests_app.store.commands import NewCommand
from requests_app.store.session import Row, fetch_one, transaction

_FINDS: Final[dict[int, str]] = {
    Target.SIGNER: "find_signer_of",
    Target.SOURCE: "find_source",
    Kind.PAYMENT: "find_payment",
}


class Told(StrEnum):
    """What became of an order."""

    COMMANDED = "commanded"
    REPEATED = "repeated"  # the same form was sent before
    STALE = "stale"  # the target is no longer in the state that the form showed
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"


@dataclass(frozen=True, slots=True)
class Order:
    """What is ordered. `resource`: whose holder carries it out; `fits`: whether the target is in the state that the form showed."""

    kind: CommandKind
    resource: str
    fits: bool
    payload: Mapping[str, Any] = field(default_factory=dict)


def give(
    conn: Connection[Any],
    target: Target | Kind,
    target_id: int,
    order: Callable[[Row], Order],
    *,
    token: UUID,
    reason: str,
    reviewer_id: int,
) -> Told:
    """Write the command that `order` makes of the target's locked row.

    `token` is the form's own number, by which a double click is one command. Raises CommandConflict when the form was sent before with
    another content.
    """
    with transaction(conn):
        by = lock_reviewer(conn, reviewer_id)
        if by is None:
            return Told.FORBIDDEN
        row = fetch_one(conn, "commands", _FINDS[target], {"id": target_id})
        if row is None:
            return Told.NOT_FOUND
        made = order(row)
        command_id = f"{target.name.lower()}:{target_id}:{token}"
        known = fetch_one(conn, "commands", "payload_hash", {"command_id": command_id}) is not None
        if not known and not made.fits:
            return Told.STALE
        payload = {**made.payload, "reason": reason}
        written = store.enqueue(conn, NewCommand(command_id, made.kind, target, target_id, made.resource, by, payload))
        crash_point("before_order_commit")
    crash_point("after_order_commit")
    return Told.COMMANDED if written else Told.REPEATED
