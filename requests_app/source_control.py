"""Lifting the halt of a source from the desk: a command, in one transaction with the check of the account (design 5.1.6)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from psycopg import Connection

from requests_app.crash_points import crash_point
from requests_app.models.commands import CommandKind
from requests_app.signer_control import Told
from requests_app.store import commands as store
from requests_app.store.commands import SINGLETON, NewCommand, Target
from requests_app.store.session import fetch_one, transaction


def lift_halt(conn: Connection[Any], *, source_id: int, token: UUID, reason: str, reviewer_id: int) -> Told:
    """Write the command; `token` is the form's own number, so that a double click is one command. Raises CommandConflict."""
    with transaction(conn):
        reviewer = fetch_one(conn, "commands", "lock_reviewer", {"id": reviewer_id})
        if reviewer is None or not reviewer.is_active:
            return Told.FORBIDDEN
        source = fetch_one(conn, "commands", "find_source", {"id": source_id})
        if source is None:
            return Told.NOT_FOUND
        command_id = f"source:{source_id}:{token}"
        known = fetch_one(conn, "commands", "payload_hash", {"command_id": command_id}) is not None
        if not known and source.halted is None:
            return Told.STALE
        person = str(reviewer.username)
        command = NewCommand(
            command_id, CommandKind.REDRIVE, Target.SOURCE, source_id, SINGLETON, person, {"reason": reason}
        )
        written = store.enqueue(conn, command)
        crash_point("before_lift_halt_commit")
    crash_point("after_lift_halt_commit")
    return Told.COMMANDED if written else Told.REPEATED
