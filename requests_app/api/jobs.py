"""Finding a client's job by the id in the path."""

from __future__ import annotations

import re
from typing import Final
from uuid import UUID

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


def job(client: Client, ext_job_id: UUID, kind: Kind | None = None) -> JobView:
    """The client's job. Raises Refused(not_found), also for somebody else's id."""
    view = find_job(web_connection(), client_id=client.id, ext_job_id=ext_job_id, kind=kind)
    if view is None:
        raise not_found()
    return view


def not_found() -> Refused:
    """No such job for this client."""
    return Refused(Label.NOT_FOUND, NOT_FOUND_TEXT)


def is_pending(view: JobView) -> bool:
    """Whether the answer of this job is still to come, for this client."""
    return view.canceled_at is None and view.status not in (Status.COMPLETED, Status.TIMED_OUT, Status.FAILURE)


def seconds_until_poll(view: JobView) -> int:
    """Retry-After of a pending job."""
    seconds = pace().after_poll(
        view.kind, view.status, view.readiness_queue_size or 0, view.tx_queue_size or 0, view.in_state_seconds
    )
    return pace().max_seconds if seconds is None else seconds
