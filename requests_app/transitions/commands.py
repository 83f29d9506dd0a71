"""What commands do to rows, in the caller's transaction (design 5.1.6; reference queue_settle 4.9).

Each effect locks its target, judges it as it is now, and says how the command ended. Whatever no longer fits is superseded or
rejected with its reason, never tried again blindly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from psycopg import Connection

from requests_app.models.commands import CommandKind, Target
from requests_app.models.reviews import ReviewAction
from requests_app.models.signing import SignerStatus
from requests_app.states import FINAL, Actor, Kind, Status, Verb
from requests_app.store import commands as store
from requests_app.store import requests as request_store
from requests_app.store.commands import OpenCommand, Outcome, SlotView
from requests_app.store.queue import SEND, Subject, enqueue_jobs
from requests_app.store.session import fetch_one, run
from requests_app.transitions import generic, payment_commands
from requests_app.transitions.generic import Change
from requests_app.transitions.nonce_guards import no_failure, no_resend
from requests_app.transitions.outcomes import Verdict, rejected


class Attached(NamedTuple):
    """The transaction that a reviewer named, as the chain shows it."""

    ref: bytes
    tx_hash: bytes
    block: int
    block_hash: bytes


Effect = Callable[[Connection[Any], OpenCommand, int], Verdict]


def judged(conn: Connection[Any], command: OpenCommand) -> tuple[Subject, Verdict | None]:
    """Lock the command's request; a verdict when it is gone or no longer what the decision was based on.

    A missing row and one that nobody may decide about look alike.
    """
    subject = command.subject
    row = request_store.lock_request(conn, subject.kind, subject.id)
    if row is None:
        return subject, rejected("not found")
    if command.expected_status is not None and row.status != command.expected_status:
        return subject, Verdict(Outcome.SUPERSEDED, {"status": row.status, "expected": command.expected_status})
    return subject, None


def apply(conn: Connection[Any], command: OpenCommand, epoch: int) -> Verdict:
    """Carry out a command whose effect stays in the database, in the caller's transaction."""
    if command.target_kind == Kind.PAYMENT:
        return payment_commands.apply(conn, command, epoch)
    effect: Effect | None
    if command.kind is CommandKind.HITL:
        effect = _DECISIONS.get(str(command.payload.get("action")))
    else:
        effect = _KINDS.get(command.kind)
    return effect(conn, command, epoch) if effect else rejected("unknown action")


def move(
    conn: Connection[Any], command: OpenCommand, verb: Verb, actor: Actor, epoch: int, change: Change | None = None
) -> Verdict:
    """Apply `verb` to the command's request and close its case; superseded when the row had moved on."""
    subject = command.subject
    moved = generic.apply(conn, verb, subject.kind, [change or Change(subject.id)], actor, epoch=epoch)
    if not moved:
        row = request_store.lock_request(conn, subject.kind, subject.id)
        return Verdict(Outcome.SUPERSEDED, {"status": row.status if row else None})
    generic.close_reviews(conn, subject.kind, [subject.id], verb.value)
    return Verdict(Outcome.APPLIED, {"was": moved[0].was.value})


def attach(conn: Connection[Any], command: OpenCommand, found: Attached, epoch: int) -> Verdict:
    """needs_review -> receipt_received by a transaction that was read from the chain, if nobody else owns its reference."""
    subject, verdict = judged(conn, command)
    if verdict is not None:
        return verdict
    owner = fetch_one(conn, "commands", "owner_of_hash", {"tx_hash": found.tx_hash})
    if owner is not None and (owner.kind, owner.subject_id) != (subject.kind.value, subject.id):
        return rejected("the transaction belongs to another request")
    parameters = {"ref": found.ref, "kind": subject.kind.value, "id": subject.id}
    if fetch_one(conn, "commands", "bind_reference", parameters) is None:
        return rejected("the reference belongs to another request")
    verdict = move(conn, command, Verb.ATTACH, Actor.OPERATOR, epoch, Change(subject.id, tx_hash=found.tx_hash))
    if verdict.outcome is Outcome.APPLIED:
        parameters = {"ref": found.ref, "block": found.block, "id": subject.id}
        run(conn, "commands", "note_attached", parameters, table=subject.kind.table)
    return verdict


def open_slot(conn: Connection[Any], subject: Subject) -> tuple[SlotView | None, Verdict | None]:
    """The subject's nonce if something may still be mined at it, else why not."""
    slot = store.slot_of(conn, subject)
    if slot is None:
        return None, rejected("nothing was ever signed for it")
    if not slot.open:
        return slot, rejected(f"its nonce is {slot.state.value}")
    return slot, None


def _resume(conn: Connection[Any], command: OpenCommand, epoch: int) -> Verdict:
    subject, verdict = judged(conn, command)
    slot, closed = open_slot(conn, subject)
    if verdict or closed or slot is None:
        return verdict or closed or rejected("no nonce")
    verdict = move(conn, command, Verb.RESUME, Actor.OPERATOR, epoch)
    if verdict.outcome is Outcome.APPLIED:
        store.reopen_attempts(conn, slot.signer_id, slot.nonce)
    return verdict


def _resend(conn: Connection[Any], command: OpenCommand, epoch: int) -> Verdict:
    """G-RESEND: the old nonce is proven dead, and no request event of any attempt is known."""
    subject, verdict = judged(conn, command)
    if verdict is not None:
        return verdict
    refusal = no_resend(subject.kind, store.slot_of(conn, subject))
    if refusal is not None:
        return rejected(refusal)
    verdict = move(conn, command, Verb.RESEND, Actor.OPERATOR, epoch)
    if verdict.outcome is Outcome.APPLIED:
        row = fetch_one(conn, "commands", "tenant_of", {"kind": subject.kind.value, "id": subject.id})
        enqueue_jobs(conn, SEND, [(subject, row.tenant if row else 0)])
    return verdict


def _fail(conn: Connection[Any], command: OpenCommand, epoch: int) -> Verdict:
    """G-FAIL: the nonce brings nothing new any more."""
    subject, verdict = judged(conn, command)
    if verdict is not None:
        return verdict
    refusal = no_failure(subject.kind, store.slot_of(conn, subject))
    if refusal is not None:
        return rejected(refusal)
    reason = str(command.payload.get("reason") or "closed by an operator")
    change = Change(subject.id, label="internal_server_error", detail=reason)
    verdict = move(conn, command, Verb.REJECT, Actor.OPERATOR, epoch, change)
    if verdict.outcome is Outcome.APPLIED:
        request_store.drop_job(conn, subject.kind, subject.id)
    return verdict


def _acknowledge(conn: Connection[Any], command: OpenCommand, epoch: int) -> Verdict:
    """Close the case of a row that is final already; the row stays as it is."""
    subject, verdict = judged(conn, command)
    if verdict is not None:
        return verdict
    row = request_store.lock_request(conn, subject.kind, subject.id)
    if row is None or Status(row.status) not in FINAL:
        return rejected("the request is not final")
    closed = generic.close_reviews(conn, subject.kind, [subject.id], ReviewAction.ACKNOWLEDGE.value)
    return Verdict(Outcome.APPLIED if closed else Outcome.SUPERSEDED)


def _lift_halt(conn: Connection[Any], command: OpenCommand, epoch: int) -> Verdict:
    """Let a halted source go on."""
    if command.target_kind != Target.SOURCE:
        return rejected("not found")
    lifted = run(conn, "commands", "lift_halt", {"id": command.target_id})
    generic.close_reviews(conn, Target.SOURCE, [command.target_id], "lift_halt")
    return Verdict(Outcome.APPLIED if lifted else Outcome.SUPERSEDED)


def _pause(conn: Connection[Any], command: OpenCommand, epoch: int) -> Verdict:
    return _signer(conn, command, SignerStatus.PAUSED, "operator", [SignerStatus.ACTIVE, SignerStatus.PAUSED])


def _resume_signer(conn: Connection[Any], command: OpenCommand, epoch: int) -> Verdict:
    return _signer(conn, command, SignerStatus.ACTIVE, None, [SignerStatus.PAUSED, SignerStatus.BLOCKED])


def _signer(
    conn: Connection[Any], command: OpenCommand, status: SignerStatus, reason: str | None, was: list[SignerStatus]
) -> Verdict:
    row = fetch_one(conn, "commands", "find_signer_of", {"id": command.target_id})
    if command.target_kind != Target.SIGNER or row is None:
        return rejected("not found")
    if store.signer_resource(row.chain_id, bytes(row.address)) != command.resource:
        return rejected("not found")
    parameters = {"id": row.id, "status": status.value, "reason": reason, "was": [one.value for one in was]}
    changed = run(conn, "commands", "set_signer", parameters)
    return Verdict(Outcome.APPLIED if changed else Outcome.SUPERSEDED, {"was": row.status, "reason": row.status_reason})


_KINDS: Final[dict[CommandKind, Effect]] = {
    CommandKind.PAUSE_SIGNER: _pause,
    CommandKind.RESUME_SIGNER: _resume_signer,
    CommandKind.REDRIVE: _lift_halt,
}
_DECISIONS: Final[dict[str, Effect]] = {
    ReviewAction.RESUME.value: _resume,
    ReviewAction.RESEND.value: _resend,
    ReviewAction.FAIL.value: _fail,
    ReviewAction.ACKNOWLEDGE.value: _acknowledge,
}
