"""Reading a request body with a limit, before anything parses it."""

from __future__ import annotations

from typing import Any, Final

from django.http import HttpRequest

from requests_app.api.labels import REQUEST_ERROR_TEXT, Label
from requests_app.api.refusals import Refused

LIMIT: Final = 2 * 1024 * 1024
# What is read and thrown away of a body that nobody wanted, in pieces. A server that answers and closes before the client has sent
# everything makes the client see a broken connection instead of the answer.
DRAIN_LIMIT: Final = 8 * LIMIT
PIECE: Final = 64 * 1024
_NO_BODY: Final = (None, "", "0")


def read_body(request: HttpRequest) -> bytes:
    """The whole body, at most 2 MiB. Raises Refused(request_error) when it is larger or cannot be read."""
    meta = request.META
    declared = meta.get("CONTENT_LENGTH") or ""
    if declared.isdecimal() and (len(declared) > 10 or int(declared) > LIMIT):
        raise unreadable()
    try:
        raw = _source(request).read(LIMIT + 1)
    except OSError:
        raise unreadable() from None
    if len(raw) > LIMIT:
        raise unreadable()
    return bytes(raw)


def drain(request: HttpRequest) -> None:
    """Read what is left of the body, up to DRAIN_LIMIT, so that the answer reaches a client that is still sending."""
    if request.META.get("CONTENT_LENGTH") in _NO_BODY and "HTTP_TRANSFER_ENCODING" not in request.META:
        return
    source, left = _source(request), DRAIN_LIMIT
    try:
        while left > 0 and (piece := source.read(min(left, PIECE))):
            left -= len(piece)
    except OSError:
        return  # the client is gone


def _source(request: HttpRequest) -> Any:
    """Where the body comes from. Django takes a missing length for an empty body; the server has undone the chunks."""
    meta = request.META
    chunked = "chunked" in meta.get("HTTP_TRANSFER_ENCODING", "").lower()
    return meta["wsgi.input"] if chunked and not meta.get("CONTENT_LENGTH") else request


def unreadable() -> Refused:
    """Too large, or the connection broke."""
    return Refused(Label.REQUEST_ERROR, REQUEST_ERROR_TEXT)
