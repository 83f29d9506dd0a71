"""Writes on behalf of clients: submit and cancel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid4

import msgspec
import psycopg

from requests_app import depths
from requests_app.crash_points import crash_point
from requests_app.errors import RelayerError
from requests_app.identity import uuid7
from requests_app.states import INITIAL, Actor, Kind, ReqType, Status, Verb
from requests_app.store import requests as store
from requests_app.store.session import transaction
from requests_app.transitions.generic import Change, apply, deadline_seconds

# Twins that commit between our snapshot and our insert make us look again; two were the most seen with four clients.
_SUBMIT_ROUNDS = 4


class SubmitOutcome(StrEnum):
    """What became of a submission."""

    INSERTED = "inserted"
    DUPLICATE_PROCESSING = "duplicate_processing"
    DUPLICATE_COMPLETED = "duplicate_completed"
    QUEUE_FULL = "queue_full"
    ACCOUNT_DISABLED = "account_disabled"


class CancelOutcome(StrEnum):
    """What became of a cancellation."""

    CANCELED = "canceled"
    VIEW_ENDED = "view_ended"  # other clients share the row: it goes on for them
    TOO_LATE = "too_late"
    NOT_FOUND = "not_found"
    ACCOUNT_DISABLED = "account_disabled"


@dataclass(frozen=True, slots=True)
class Denial:
    """Why a request is proven bad before it is stored: the label and text that its GET will show."""

    label: str
    detail: str


@dataclass(frozen=True, slots=True)
class Submission:
    """A validated request: its canonical payload and the 32-byte hash of its content."""

    kind: Kind
    req_type: ReqType | None
    int_job_id: bytes
    body: Mapping[str, Any]
    denial: Denial | None = None


@dataclass(frozen=True, slots=True)
class Submitted:
    """The outcome with the client's own job id and the queue depths at that moment."""

    outcome: SubmitOutcome
    readiness_queue_size: int
    tx_queue_size: int
    ext_job_id: UUID | None = None
    request_id: int | None = None
    status: Status | None = None


class SubmitContended(RelayerError):
    """Identical requests kept arriving and finishing; try again."""


def submit(conn: psycopg.Connection[Any], submission: Submission, *, client_id: int) -> Submitted:
    """Store a request once per content, or join the one that is there (design 2.1, engine facts 5).

    Row, payload, transition, job and the client's view are written by one statement, or nothing is. One with a denial (user
    decrypts only) becomes a row that has failed already, unless a live one has its content.
    Raises SubmitContended after four lost races.
    """
    if submission.denial is not None:
        return _submit_denied(conn, submission, submission.denial, client_id)
    status = INITIAL[submission.kind]
    body = msgspec.json.encode(submission.body).decode()
    extra: str | UUID | None = submission.req_type
    if submission.kind is Kind.INPUT_PROOF:
        extra = uuid7()
    for _ in range(_SUBMIT_ROUNDS):
        known = depths.recall(submission.kind)
        crash_point("before_submit_commit")
        row = store.submit(
            conn,
            kind=submission.kind,
            client_id=client_id,
            ext_job_id=uuid4(),
            int_job_id=submission.int_job_id,
            status=status.value,
            queue="ready" if status is Status.QUEUED else "send",
            body=body,
            extra=extra,
            deadline_seconds=deadline_seconds(status) or 0,
            limit=depths.door(),
            depths=known,
        )
        crash_point("after_submit_commit")
        submitted = _outcome(submission.kind, row, counted=known is None)
        if submitted is not None:
            return submitted
    raise SubmitContended


def _submit_denied(conn: psycopg.Connection[Any], submission: Submission, denial: Denial, client_id: int) -> Submitted:
    for _ in range(_SUBMIT_ROUNDS):
        known = depths.recall(submission.kind)
        crash_point("before_submit_denied_commit")
        row = store.submit_denied(
            conn,
            client_id=client_id,
            ext_job_id=uuid4(),
            int_job_id=submission.int_job_id,
            body=msgspec.json.encode(submission.body).decode(),
            req_type=str(submission.req_type),
            label=denial.label,
            detail=denial.detail,
            limit=depths.door(),
            depths=known,
        )
        crash_point("after_submit_denied_commit")
        submitted = _outcome(submission.kind, row, counted=known is None)
        if submitted is not None:
            return submitted
    raise SubmitContended


def _outcome(kind: Kind, row: Any, *, counted: bool) -> Submitted | None:
    """Read the statement's answer; None when a twin came in between and the statement must run again."""
    if counted:
        depths.learn(kind, depths.Depths(row.ready, row.send))
    if not row.account_active:
        return Submitted(SubmitOutcome.ACCOUNT_DISABLED, row.ready, row.send)
    if row.id is None:
        full = row.ready >= depths.door() or row.send >= depths.door()
        return Submitted(SubmitOutcome.QUEUE_FULL, row.ready, row.send) if full else None
    if row.ext_job_id is None:
        return None
    if row.fresh:
        outcome = SubmitOutcome.INSERTED
    elif row.status == Status.COMPLETED:
        outcome = SubmitOutcome.DUPLICATE_COMPLETED
    else:
        outcome = SubmitOutcome.DUPLICATE_PROCESSING
    return Submitted(outcome, row.ready, row.send, row.ext_job_id, row.id, Status(row.status))


def cancel(conn: psycopg.Connection[Any], *, client_id: int, ext_job_id: UUID) -> CancelOutcome:
    """Withdraw a client's request while no attempt exists (design 5.2.5).

    On a row that other clients share only the caller's view ends. A stranger's id is not found.
    """
    view = store.find_view(conn, client_id, ext_job_id)
    if view is None:
        return CancelOutcome.NOT_FOUND
    kind = Kind(view.kind)
    with transaction(conn) as opened:
        ended = store.withdraw_view(conn, client_id, kind, view.request_id)
        if not ended.account_active:
            return CancelOutcome.ACCOUNT_DISABLED
        # From here on nobody joins or leaves the row: whoever does waits for us, or is seen by the count.
        store.lock_request(conn, kind, view.request_id)
        if store.other_views(conn, client_id, kind, view.request_id):
            return CancelOutcome.VIEW_ENDED
        change = Change(view.request_id, label="internal_server_error", detail="canceled by client")
        canceled = bool(apply(conn, Verb.CANCEL, kind, [change], Actor.API))
        if canceled:
            store.drop_job(conn, kind, view.request_id)
            crash_point("before_cancel_commit")
        else:
            # Too late to stop it: the view stays, so that the client still gets the answer it paid for.
            opened.force_rollback = True
    crash_point("after_cancel_commit")
    return CancelOutcome.CANCELED if canceled else CancelOutcome.TOO_LATE
