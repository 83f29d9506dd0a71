"""Reading a request body with a limit, before anything parses it."""

from __future__ import annotations

from typing import Final

from django.http import HttpRequest

from requests_app.api.labels import REQUEST_ERROR_TEXT, Label
from requests_app.api.refusals import Refused

LIMIT: Final = 2 * 1024 * 1024


def read_body(request: HttpRequest) -> bytes:
    """The whole body, at most 2 MiB. Raises Refused(request_error) when it is larger or cannot be read."""
    meta = request.META
    declared = meta.get("CONTENT_LENGTH") or ""
    if declared.isdecimal() and (len(declared) > 10 or int(declared) > LIMIT):
        raise unreadable()
    try:
        if not declared and "chunked" in meta.get("HTTP_TRANSFER_ENCODING", "").lower():
            # Django takes a missing length for an empty body; the server has undone the chunks and marks the end.
            raw = meta["wsgi.input"].read(LIMIT + 1)
        else:
            raw = request.read(LIMIT + 1)
    except OSError:
        raise unreadable() from None
    if len(raw) > LIMIT:
        raise unreadable()
    return bytes(raw)


def unreadable() -> Refused:
    """Too large, or the connection broke."""
    return Refused(Label.REQUEST_ERROR, REQUEST_ERROR_TEXT)
