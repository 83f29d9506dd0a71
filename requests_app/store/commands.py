"""The command box: enqueue, find, claim, consume; and what a command needs to know of its target (design 5.1.6)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

from psycopg import Connection

from requests_app.errors import RelayerError
from requests_app.models.commands import CommandKind
from requests_app.models.signing import AttemptKind, AttemptState, SlotState
from requests_app.states import IntentState, Kind, Status
from requests_app.store.queue import Subject
from requests_app.store.session import Row, fetch_all, fetch_one, run
from requests_app.store.signing import Fence

SINGLETON: Final = "singleton:commands"  # the resource of commands that need no signer
CLAIM_SECONDS: Final = 60.0
LIMIT: Final = 16


class Outcome(StrEnum):
    """How a command ended."""

    APPLIED = "applied"
    SUPERSEDED = "superseded"  # the target had moved on since the decision
    REJECTED = "rejected"  # a precondition does not hold
    FAILED = "failed"  # it broke; nothing was changed


class CommandConflict(RelayerError):
    """This command id exists with another content."""

    label = "conflict"
    http_status = 409


@dataclass(frozen=True, slots=True)
class NewCommand:
    """A command to write. `resource`: whose holder carries it out; `expected_status`: what the decision was based on."""

    command_id: str
    kind: CommandKind
    target_kind: int
    target_id: int
    resource: str
    requested_by: str
    payload: Mapping[str, Any] = field(default_factory=dict)
    expected_status: Status | IntentState | None = None
    epoch: int | None = None

    @property
    def digest(self) -> bytes:
        """What makes two commands of one id the same."""
        content = [
            self.kind,
            int(self.target_kind),
            self.target_id,
            self.resource,
            self.expected_status,
            dict(self.payload),
        ]
        return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).digest()


class OpenCommand(NamedTuple):
    """A command that this process may carry out now."""

    command_id: str
    kind: CommandKind
    target_kind: int
    target_id: int
    resource: str
    expected_status: str | None
    epoch: int | None
    payload: Mapping[str, Any]
    requested_by: str
    state: str
    attempts: int

    @property
    def subject(self) -> Subject:
        """The request it is about. Raises ValueError when it is about something else."""
        return Subject(Kind(self.target_kind), self.target_id)


class SlotView(NamedTuple):
    """The nonce of a subject with what was offered for it. Fees are wei a gas, `raw` the newest bytes of its call.

    `reverted`: a call of ours has taken the nonce and reverted, final.
    """

    signer_id: int
    nonce: int
    state: SlotState
    chain_id: int
    address: bytes
    attempts: int
    seq: int
    max_fee: int
    max_priority: int
    sent: bool
    raw: bytes | None
    reverted: bool = False

    @property
    def resource(self) -> str:
        """The lease of its signer."""
        return signer_resource(self.chain_id, self.address)

    @property
    def open(self) -> bool:
        """Whether a transaction may still be mined at it."""
        return self.state in (SlotState.SIGNED, SlotState.LIVE)


class CommandAttempt(NamedTuple):
    """The transaction that a command has already signed."""

    nonce: int
    seq: int
    tx_hash: bytes
    raw: bytes
    state: AttemptState
    kind: AttemptKind


def signer_resource(chain_id: int, address: bytes) -> str:
    """The lease of a signer."""
    return f"signer:{chain_id}:0x{address.hex()}"


def enqueue(conn: Connection[Any], command: NewCommand) -> bool:
    """Write a command in the caller's transaction; False when the same one is there already. Raises CommandConflict."""
    parameters = {
        "command_id": command.command_id, "kind": command.kind.value, "target_kind": int(command.target_kind),
        "target_id": command.target_id, "resource": command.resource,
        "expected_status": command.expected_status.value if command.expected_status else None, "epoch": command.epoch,
        "payload": json.dumps(dict(command.payload)), "payload_hash": command.digest, "requested_by": command.requested_by,
    }  # fmt: skip
    if fetch_one(conn, "commands", "enqueue", parameters) is not None:
        return True
    known = fetch_one(conn, "commands", "payload_hash", {"command_id": command.command_id})
    if known is None or bytes(known.payload_hash) != command.digest:
        raise CommandConflict(f"command {command.command_id} exists with another content")
    return False


def waits(conn: Connection[Any], resource: str) -> bool:
    """Whether there is an open command of this resource that nobody carries out."""
    return fetch_one(conn, "commands", "waits", {"resource": resource}) is not None


def due(conn: Connection[Any], fence: Fence, limit: int = LIMIT) -> list[OpenCommand]:
    """Lock the oldest open commands of the fence's resource, in the caller's transaction; none without the lease."""
    rows = fetch_all(conn, "commands", "due", {**fence._asdict(), "limit": limit})
    return [
        OpenCommand(
            row.command_id, CommandKind(row.kind), row.target_kind, row.target_id, row.resource,
            row.expected_status, *row[6:],
        )
        for row in rows
    ]  # fmt: skip


def claim(conn: Connection[Any], fence: Fence, ids: Sequence[str], seconds: float = CLAIM_SECONDS) -> int:
    """Mark commands whose effect leaves the database as being carried out; after `seconds` another may take them."""
    if not ids:
        return 0
    return run(conn, "commands", "claim", {"ids": list(ids), "instance": fence.instance, "seconds": seconds})


def consume(conn: Connection[Any], fence: Fence, command_id: str, outcome: Outcome, result: Mapping[str, Any]) -> bool:
    """End a command, once, in the caller's transaction; whether it was open."""
    parameters = {
        "command_id": command_id, "instance": fence.instance, "epoch": fence.epoch, "outcome": outcome.value,
        "result": json.dumps(dict(result), default=str),
    }  # fmt: skip
    return fetch_one(conn, "commands", "consume", parameters) is not None


def find_source(conn: Connection[Any], source_id: int) -> Row | None:
    """A source, locked, as an order about it needs it: source_id, halted, chain_id; None for an unknown one."""
    return fetch_one(conn, "commands", "find_source", {"id": source_id})


def without_limit(conn: Connection[Any]) -> None:
    """No time limit for the statements of this transaction."""
    fetch_one(conn, "commands", "without_limit")


def unheld_signer(conn: Connection[Any], own: Collection[str], patience: float) -> str | None:
    """The lease of a signer with an open command, none of `own`, that nobody has held for `patience` seconds; None: there is none."""
    row = fetch_one(conn, "commands", "unheld_signer", {"own": sorted(own), "patience": float(patience)})
    return row.resource if row else None


def reject_all(conn: Connection[Any], fence: Fence, result: Mapping[str, Any]) -> list[str]:
    """End every open command of the fence's resource as rejected: which. None without the lease."""
    parameters = {**fence._asdict(), "outcome": Outcome.REJECTED.value, "result": json.dumps(dict(result))}
    return [row.command_id for row in fetch_all(conn, "commands", "reject_all", parameters)]


def slot_of(conn: Connection[Any], subject: Subject) -> SlotView | None:
    """The subject's nonce that is not dead, else its last one."""
    row = fetch_one(conn, "commands", "slot_of", {"kind": subject.kind.value, "id": subject.id})
    if row is None:
        return None
    return SlotView(
        row.signer_id, row.nonce, SlotState(row.state), row.chain_id, bytes(row.address), row.attempts, row.seq or 0,
        int(row.max_fee or 0), int(row.max_priority or 0), row.sent, bytes(row.raw) if row.raw else None,
        row.reverted,
    )  # fmt: skip


def attempt_of_command(conn: Connection[Any], command_id: str) -> CommandAttempt | None:
    """The transaction that a command has signed before, if it has."""
    row = fetch_one(conn, "commands", "attempt_of_command", {"command_id": command_id})
    if row is None:
        return None
    return CommandAttempt(
        row.nonce, row.seq, bytes(row.tx_hash), bytes(row.raw_tx), AttemptState(row.state), AttemptKind(row.kind)
    )


def reopen_attempts(conn: Connection[Any], signer_id: int, nonce: int) -> int:
    """Have the open attempts of a nonce broadcast again at once: how many."""
    return run(conn, "commands", "reopen_attempts", {"signer": signer_id, "nonce": nonce})
