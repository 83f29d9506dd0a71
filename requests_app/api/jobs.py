"""Finding a client's job by the id in the path, and when its answer may be had."""

from __future__ import annotations

import math
import re
from typing import Final
from uuid import UUID

from requests_app import runtime
from requests_app.api.auth import Client
from requests_app.api.labels import NOT_FOUND_TEXT, Label
from requests_app.api.refusals import Refused
from requests_app.api.retry_after import pace
from requests_app.selectors import JobView, find_job
from requests_app.states import Kind, Status
from requests_app.store.session import web_connection

_HYPHENATED: Final = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_SPELLINGS = re.compile(
    rf"{_HYPHENATED}|[0-9a-f]{{32}}|urn:uuid:{_HYPHENATED}|\{{{_HYPHENATED}\}}", re.IGNORECASE
).fullmatch


def parse_job_id(text: str) -> UUID | None:
    """The UUID in one of its four spellings (fhevm_http 1), or None. Stricter than UUID(), which skips stray marks."""
    return UUID(text) if _SPELLINGS(text) else None


def job(client: Client, ext_job_id: UUID, kind: Kind | None = None, *, placed: bool = False) -> JobView:
    """The client's job, with its place in the queue if `placed`. Raises Refused(not_found), also for somebody else's id."""
    view = find_job(
        web_connection(),
        client_id=client.id,
        ext_job_id=ext_job_id,
        kind=kind,
        spare_shares=_spare_wanted() is not None,
        placed=placed,
    )
    if view is None:
        raise not_found()
    return view


def not_found() -> Refused:
    """No such job, publication or payment of this client."""
    return Refused(Label.NOT_FOUND, NOT_FOUND_TEXT)


def is_pending(view: JobView) -> bool:
    """Whether the answer of this job is still to come, for this client."""
    if view.canceled_at is not None or view.status in (Status.TIMED_OUT, Status.FAILURE):
        return False
    return view.status is not Status.COMPLETED or seconds_for_shares(view) > 0


def seconds_until_poll(view: JobView) -> int:
    """Retry-After of a pending job."""
    if view.status is Status.COMPLETED:
        return max(1, math.ceil(seconds_for_shares(view)))
    seconds = pace().after_poll(
        view.kind, view.status, view.readiness_queue_size or 0, view.tx_queue_size or 0, view.in_state_seconds
    )
    return pace().max_seconds if seconds is None else seconds


def seconds_for_shares(view: JobView) -> float:
    """How long a completed user decrypt still waits for shares beyond its threshold (fhevm_internals 8.5); 0 = no longer.

    The window begins with the completion: a consensus hash that is filled in later moves no time of the row.
    """
    wanted = _spare_wanted()
    if wanted is None or view.kind is not Kind.USER_DECRYPT or view.threshold is None:
        return 0.0
    shares, seconds = wanted
    if len(view.shares or ()) >= view.threshold + shares:
        return 0.0
    return max(0.0, seconds - view.in_state_seconds)


def _spare_wanted() -> tuple[int, int] | None:
    """(shares beyond the threshold, seconds) that a completed user decrypt waits for; None when that is off."""
    values = runtime.values(web_connection)
    shares = values["user_decrypt_additional_shares"]
    seconds = values["user_decrypt_additional_shares_timeout_secs"]
    return (shares, seconds) if shares and seconds else None
