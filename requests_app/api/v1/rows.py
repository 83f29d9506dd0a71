"""The native representation: the row as it is. Hex has 0x, times are UTC with Z, absent values are null."""

from __future__ import annotations

from typing import Any

from requests_app.api.failures import refusal
from requests_app.api.jobs import is_pending
from requests_app.api.refusals import Refused
from requests_app.api.submitting import Taken
from requests_app.api.v1.printed import hex_text, time_text
from requests_app.selectors import JobView, TimelineEntry
from requests_app.states import V1_HTTP_STATUS, Kind, Status


def http_status(view: JobView) -> int:
    """200, 202, 400 or 504 by the job's state (design 3.4); a withdrawn view is a failure for its client, and a completed user
    decrypt that still waits for further shares is not to be had yet.
    """
    return 202 if is_pending(view) else V1_HTTP_STATUS[visible_status(view)]


def visible_status(view: JobView) -> Status:
    """The state that this client sees: its own withdrawal counts, whatever the shared row does."""
    return view.status if view.canceled_at is None else Status.FAILURE


def row(view: JobView) -> dict[str, Any]:
    """A job as its client sees it."""
    status = visible_status(view)
    ended_badly = not is_pending(view) and status is not Status.COMPLETED
    refused = refusal(view) if ended_badly else None
    completed = status is Status.COMPLETED and not is_pending(view)
    return {
        "ext_job_id": str(view.ext_job_id),
        "kind": view.kind.slug,
        "status": status.value,
        "created_at": time_text(view.created_at),
        "updated_at": time_text(view.updated_at),
        "err_label": refused.label.value if refused else None,
        "err_reason": _reason(view, refused),
        "gw_reference_id": hex_text(view.gw_reference_id),
        "gw_req_tx_hash": hex_text(view.gw_req_tx_hash),
        "gw_response_tx_hash": hex_text(view.gw_response_tx_hash),
        "queue_position": view.queue_position,
        "readiness_queue_size": view.readiness_queue_size,
        "tx_queue_size": view.tx_queue_size,
        "accepted": view.accepted if completed else None,
        "result": result(view) if completed else None,
    }


def result(view: JobView) -> dict[str, Any] | None:
    """The stored answer of a completed job."""
    if view.kind is not Kind.USER_DECRYPT:
        return view.res
    shares = view.shares or []
    return {
        "shares": [
            {
                "payload": "0x" + share["payload"],
                "signature": "0x" + share["signature"],
                "extra_data": share["extraData"],
            }
            for share in shares
        ]
    }


def accepted(taken: Taken, completed: JobView | None) -> dict[str, Any]:
    """The 202 of a POST: the job, the queues, and the answer at once when an equal request has been completed."""
    submitted = taken.submitted
    return {
        "ext_job_id": str(taken.ext_job_id),
        "status": submitted.status.value if submitted.status else None,
        "readiness_queue_size": submitted.readiness_queue_size,
        "tx_queue_size": submitted.tx_queue_size,
        "accepted": completed.accepted if completed else None,
        "result": result(completed) if completed else None,
    }


def timeline(view: JobView, entries: list[TimelineEntry]) -> dict[str, Any]:
    """Every transition of the job, oldest first."""
    return {
        "ext_job_id": str(view.ext_job_id),
        "kind": view.kind.slug,
        "status": visible_status(view).value,
        "transitions": [
            {
                "verb": entry.verb,
                "from_status": entry.from_status,
                "to_status": entry.to_status,
                "actor": entry.actor,
                "tx_hash": hex_text(entry.tx_hash),
                "at": time_text(entry.at),
            }
            for entry in entries
        ],
    }


def _reason(view: JobView, refused: Refused | None) -> str | None:
    """The stored reason as it is; where there is none, or the client withdrew, the text that v2 would print."""
    if refused is None:
        return None
    stored = view.fail_detail if view.canceled_at is None else None
    return stored or refused.message
