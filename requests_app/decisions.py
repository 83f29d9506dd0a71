"""A reviewer's decision and the command that it becomes, in one transaction (reference queue_settle 3.6; design 5.2.9).

Nothing here asks the chain or changes a request: the holder of the command's resource does, with the preconditions judged again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import Connection

from requests_app.crash_points import crash_point
from requests_app.errors import RelayerError
from requests_app.models.commands import CommandKind, Target
from requests_app.models.reviews import DecisionState, ReviewAction
from requests_app.reviewers import lock_reviewer
from requests_app.states import FINAL, IntentState, Kind, Status
from requests_app.store import commands as store
from requests_app.store import intents as intent_store
from requests_app.store import leases
from requests_app.store import requests as request_store
from requests_app.store.commands import SINGLETON, NewCommand
from requests_app.store.queue import Subject
from requests_app.store.session import Row, fetch_one, fetch_only, run, transaction

# What is done at the nonce itself. Not to send anew: whoever holds a signer signs that, and the one of the dead nonce may be gone with its key.
_SIGNER_ACTIONS: Final = frozenset({ReviewAction.RESUME, ReviewAction.REPLACE, ReviewAction.CANCEL_NONCE})


Standing = Status | IntentState


class Decided(StrEnum):
    """What became of a decision."""

    COMMANDED = "commanded"
    AWAITING_SECOND = "awaiting_second"
    ALREADY_DECIDED = "already_decided"
    WITHDRAWN = "withdrawn"  # by the second person, or by the first one
    STALE = "stale"  # the case is not what the reviewer saw
    NOT_FOUND = "not_found"
    FORBIDDEN = "forbidden"  # a disabled reviewer, or the same person twice
    LEASE_LOST = "lease_lost"  # somebody else has the case


class Decision(NamedTuple):
    """The outcome, the decision's id and its command, as far as there are any; `by` names who was first."""

    outcome: Decided
    decision_id: int | None = None
    command_id: str | None = None
    by: str | None = None


class Proposal(NamedTuple):
    """A decision that waits for a second person; `case` is locked, with its subject and where that stands."""

    case: tuple[Row, Subject, Standing | None]
    seq: int
    action: str
    parameters: Mapping[str, Any]
    reason: str
    decided_by: str


class Held(NamedTuple):
    """The reviewer's lease `review:<case>`: instance and epoch."""

    instance: str
    epoch: int


class ReasonMissing(RelayerError):
    """A decision needs a reason."""

    label = "validation_failed"
    http_status = 400


def needs_two(action: ReviewAction, *, signed: bool) -> bool:
    """Whether a second person must agree: a new nonce, a settlement by hand, a failure after anything was signed (design 5.2.9)."""
    return action in (ReviewAction.RESEND, ReviewAction.SETTLE) or (action is ReviewAction.FAIL and signed)


def actions_of(kind: Kind) -> tuple[ReviewAction, ...]:
    """What may be decided about a subject of this kind."""
    others = (ReviewAction.ATTACH,) if kind is Kind.PAYMENT else (ReviewAction.MARK_SENT, ReviewAction.SETTLE)
    return tuple(action for action in ReviewAction if action not in others)


def waits(standing: Standing) -> bool:
    """Whether the row stands where only a person brings it on."""
    return standing in (Status.NEEDS_REVIEW, IntentState.NEEDS_REVIEW)


def may_acknowledge(standing: Standing) -> bool:
    """Whether its case can be closed as it is: a request that has ended; a payment that does not wait for a decision."""
    return not waits(standing) if isinstance(standing, IntentState) else standing in FINAL


def decide(
    conn: Connection[Any],
    *,
    case_id: int,
    version: int,
    action: ReviewAction,
    reason: str,
    reviewer_id: int,
    parameters: Mapping[str, Any] | None = None,
    held: Held | None = None,
) -> Decision:
    """Decide an open case as it was at `version`: decision and command exist together, or neither does (I10).

    `parameters`: `tx_hash` (0x) for attach, mark_sent and settle, `off_chain` for settle, `ceiling_wei` for replace. `held` proves the reviewer's hold on the case where one
    is kept. Raises ReasonMissing.
    """
    if not reason.strip():
        raise ReasonMissing
    with transaction(conn):
        reviewer = lock_reviewer(conn, reviewer_id)
        if reviewer is None:
            return Decision(Decided.FORBIDDEN)
        if held is not None and not leases.fence(conn, f"review:{case_id}", held.instance, held.epoch):
            return Decision(Decided.LEASE_LOST)
        case, subject, standing = _lock_case(conn, case_id)
        refusal = _refused(conn, case, version)
        if refusal is not None or case is None:
            return refusal or Decision(Decided.NOT_FOUND)
        if subject is None or standing is None or action not in actions_of(subject.kind):
            return Decision(Decided.NOT_FOUND)
        if may_acknowledge(standing) != (action is ReviewAction.ACKNOWLEDGE):
            return Decision(Decided.STALE)
        made = _write(conn, case, subject, standing, action, reason, reviewer, dict(parameters or {}), held)
        crash_point("before_decide_commit")
    crash_point("after_decide_commit")
    return made


def approve(conn: Connection[Any], *, decision_id: int, reviewer_id: int) -> Decision:
    """The second person agrees: the command is written. When the case has moved on meanwhile the proposal is void."""
    with transaction(conn):
        reviewer, found, refusal = _proposal(conn, decision_id, reviewer_id)
        if reviewer is None or found is None or refusal is not None:
            return refusal or Decision(Decided.NOT_FOUND)
        if found.decided_by == reviewer:
            return Decision(Decided.FORBIDDEN, decision_id, by=found.decided_by)
        case, subject, standing = found.case
        stale = case.status != "open" or standing is None or not waits(standing)
        state = DecisionState.WITHDRAWN if stale else DecisionState.COMMANDED
        command_id = None if stale else f"review:{case.id}:{found.seq}"
        parameters = {"id": decision_id, "state": state.value, "by": reviewer, "command_id": command_id}
        run(conn, "commands", "second_decision", parameters)
        run(conn, "commands", "raise_version", {"id": case.id})
        if command_id is not None and standing is not None:
            action = ReviewAction(found.action)
            by = f"{found.decided_by}+{reviewer}"
            _command(conn, command_id, subject, standing, action, found.parameters, found.reason, by, None)
        crash_point("before_approve_commit")
    crash_point("after_approve_commit")
    return Decision(Decided.STALE if stale else Decided.COMMANDED, decision_id, command_id)


def withdraw(conn: Connection[Any], *, decision_id: int, reviewer_id: int, reason: str, second: bool) -> Decision:
    """Take a proposal back that waits for a second person: its proposer, or (`second`) another person, who refuses it.

    The case stays as it is, for another decision. Raises ReasonMissing.
    """
    if not reason.strip():
        raise ReasonMissing
    with transaction(conn):
        reviewer, found, refusal = _proposal(conn, decision_id, reviewer_id)
        if reviewer is None or found is None or refusal is not None:
            return refusal or Decision(Decided.NOT_FOUND)
        if (found.decided_by == reviewer) is second:
            return Decision(Decided.FORBIDDEN, decision_id, by=found.decided_by)
        case, _, _ = found.case
        parameters = {"id": decision_id, "by": reviewer, "reason": reason, "second": reviewer if second else None}
        run(conn, "commands", "withdraw_decision", parameters)
        run(conn, "commands", "raise_version", {"id": case.id})
        crash_point("before_withdraw_commit")
    crash_point("after_withdraw_commit")
    return Decision(Decided.WITHDRAWN, decision_id, by=found.decided_by)


def _proposal(
    conn: Connection[Any], decision_id: int, reviewer_id: int
) -> tuple[str | None, Proposal | None, Decision | None]:
    """The active reviewer, a decision that waits for a second person with its case, all locked; or why there is nothing to say."""
    reviewer = lock_reviewer(conn, reviewer_id)
    if reviewer is None:
        return None, None, Decision(Decided.FORBIDDEN)
    known = fetch_one(conn, "commands", "case_of_decision", {"id": decision_id})
    if known is None:
        return reviewer, None, None
    case, subject, standing = _lock_case(conn, known.case_id)
    found = fetch_one(conn, "commands", "lock_decision", {"id": decision_id})
    if case is None or subject is None or found is None:
        return reviewer, None, None
    if found.state != DecisionState.AWAITING_SECOND.value:
        return reviewer, None, Decision(Decided.ALREADY_DECIDED, decision_id, by=found.decided_by)
    proposal = Proposal(
        (case, subject, standing), found.seq, found.action, found.parameters, found.reason, found.decided_by
    )
    return reviewer, proposal, None


def _lock_case(conn: Connection[Any], case_id: int) -> tuple[Row | None, Subject | None, Standing | None]:
    """Lock the case's subject, then the case: in this order the chain's facts close cases, too."""
    known = fetch_one(conn, "commands", "subject_of_case", {"id": case_id})
    if known is None or known.kind == Target.SOURCE:  # a source's case ends with its halt, by an order
        return None, None, None
    subject = Subject(Kind(known.kind), known.subject_id)
    standing = _lock(conn, subject)
    return fetch_one(conn, "commands", "lock_case", {"id": case_id}), subject, standing


def _lock(conn: Connection[Any], subject: Subject) -> Standing | None:
    """Lock the subject's row: where it stands, None when it is not kept."""
    if subject.kind is Kind.PAYMENT:
        found = intent_store.lock_intents(conn, [subject.id])
        return found[0].state if found else None
    row = request_store.lock_request(conn, subject.kind, subject.id)
    return Status(row.status) if row is not None else None


def _refused(conn: Connection[Any], case: Row | None, version: int) -> Decision | None:
    if case is None:
        return Decision(Decided.NOT_FOUND)
    pending = fetch_one(conn, "commands", "pending_decision", {"id": case.id})
    if pending is not None:
        return Decision(Decided.ALREADY_DECIDED, pending.id, by=pending.decided_by)
    if case.status != "open" or case.version != version:
        return Decision(Decided.STALE)
    return None


def _write(
    conn: Connection[Any],
    case: Row,
    subject: Subject,
    status: Standing,
    action: ReviewAction,
    reason: str,
    reviewer: str,
    parameters: dict[str, Any],
    held: Held | None,
) -> Decision:
    slot = store.slot_of(conn, subject)
    two = needs_two(action, signed=slot is not None)
    state = DecisionState.AWAITING_SECOND if two else DecisionState.COMMANDED
    values = {
        "case": case.id, "action": action.value, "parameters": json.dumps(parameters), "reason": reason,
        "state": state.value, "by": reviewer, "commanded": not two,
    }  # fmt: skip
    try:
        with transaction(conn):
            made = fetch_only(conn, "commands", "open_decision", values)
    except psycopg.errors.UniqueViolation:
        return Decision(Decided.ALREADY_DECIDED)
    run(conn, "commands", "raise_version", {"id": case.id})
    if two:
        return Decision(Decided.AWAITING_SECOND, made.id)
    _command(conn, made.command_id, subject, status, action, parameters, reason, reviewer, held)
    return Decision(Decided.COMMANDED, made.id, made.command_id)


def _command(
    conn: Connection[Any],
    command_id: str,
    subject: Subject,
    status: Standing,
    action: ReviewAction,
    parameters: Mapping[str, Any],
    reason: str,
    by: str,
    held: Held | None,
) -> None:
    slot = store.slot_of(conn, subject) if action in _SIGNER_ACTIONS else None
    command = NewCommand(
        command_id,
        CommandKind.HITL,
        subject.kind.value,
        subject.id,
        slot.resource if slot is not None else SINGLETON,
        by,
        {**parameters, "action": action.value, "reason": reason},
        status,
        held.epoch if held else None,
    )
    store.enqueue(conn, command)
