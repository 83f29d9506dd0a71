"""Pause and resume of a signer from the desk: a command to its owner, in one transaction with the check of the account."""

from __future__ import annotations

from enum import StrEnum
from typing import Any
from uuid import UUID

from psycopg import Connection

from requests_app.crash_points import crash_point
from requests_app.models.commands import CommandKind
from requests_app.models.signing import SignerStatus
from requests_app.store import commands as store
from requests_app.store.commands import NewCommand, Target
from requests_app.store.session import fetch_one, transaction


class SignerDeed(StrEnum):
    """What may be told to a signer."""

    PAUSE = "pause"
    RESUME = "resume"


class Told(StrEnum):
    """What became of it."""

    COMMANDED = "commanded"
    REPEATED = "repeated"  # the same form was sent before
    STALE = "stale"  # the signer is no longer in the state that the form showed
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"


KINDS = {SignerDeed.PAUSE: CommandKind.PAUSE_SIGNER, SignerDeed.RESUME: CommandKind.RESUME_SIGNER}
FROM = {
    SignerDeed.PAUSE: frozenset({SignerStatus.ACTIVE}),
    SignerDeed.RESUME: frozenset({SignerStatus.PAUSED, SignerStatus.BLOCKED}),
}


def tell_signer(
    conn: Connection[Any], *, signer_id: int, deed: SignerDeed, token: UUID, reason: str, reviewer_id: int
) -> Told:
    """Write the command; `token` is the form's own number, so that a double click is one command. Raises CommandConflict."""
    with transaction(conn):
        reviewer = fetch_one(conn, "commands", "lock_reviewer", {"id": reviewer_id})
        if reviewer is None or not reviewer.is_active:
            return Told.FORBIDDEN
        signer = fetch_one(conn, "commands", "find_signer_of", {"id": signer_id})
        if signer is None:
            return Told.NOT_FOUND
        command_id = f"signer:{signer_id}:{token}"
        known = fetch_one(conn, "commands", "payload_hash", {"command_id": command_id}) is not None
        if not known and SignerStatus(signer.status) not in FROM[deed]:
            return Told.STALE
        command = NewCommand(
            command_id,
            KINDS[deed],
            Target.SIGNER,
            signer_id,
            store.signer_resource(signer.chain_id, bytes(signer.address)),
            str(reviewer.username),
            {"reason": reason},
        )
        written = store.enqueue(conn, command)
        crash_point("before_tell_signer_commit")
    crash_point("after_tell_signer_commit")
    return Told.COMMANDED if written else Told.REPEATED
