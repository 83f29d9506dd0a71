"""The Idempotency-Key header: a POST that is repeated does its work once (draft-ietf-httpapi-idempotency-key-header).

The key belongs to the client and to the raw bytes of the request. What the request does and the answer that is kept for its
repetitions are one transaction: there is never one without the other. A refused request gives its key back.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar, assert_never

import psycopg
from django.db import Error
from django.http import HttpRequest, HttpResponse

from requests_app.api.auth import Client
from requests_app.api.labels import ACCOUNT_DISABLED_TEXT, IN_FLIGHT_TEXT, OTHER_REQUEST_TEXT, Label
from requests_app.api.refusals import Detail, Refused, validation_failed
from requests_app.crash_points import crash_point
from requests_app.store import idempotency as store
from requests_app.store.idempotency import Claimed, Completed, Disabled, InFlight, OtherRequest
from requests_app.store.session import retry_serialization, transaction, web_connection

HEADER: Final = "Idempotency-Key"
REPLAYED: Final = "Idempotent-Replayed"
IN_FLIGHT_SECONDS: Final = 1
_KEY: Final = re.compile(r"[!-~]{1,255}").fullmatch
T = TypeVar("T")


class _TakenOver(Exception):
    """Somebody else has the key since our lease ended: nothing of ours was written."""


def once(
    request: HttpRequest,
    client: Client,
    raw: bytes,
    check: Callable[[bytes], T],
    write: Callable[[psycopg.Connection[Any], T], Completed],
) -> HttpResponse:
    """Answer the request with `raw` as body: do its work, or repeat the answer that it got.

    `check` judges the body, without side effects; `write` does the work in the transaction that also keeps its answer.
    Raises Refused: whatever these two raise, 400 without a usable key, 403, 409 while in flight, 422 for another body.
    """
    key = key_of(request)
    fingerprint = fingerprint_of(request, raw)
    crash_point("before_key_claim_commit")
    claim = store.claim(web_connection(), client.id, key, fingerprint)
    crash_point("after_key_claim_commit")
    match claim:
        case Claimed(attempt):
            return _first(client, key, attempt, lambda: check(raw), write)
        case Completed():
            return _response(claim, replayed=True)
        case InFlight():
            raise in_flight()
        case OtherRequest():
            raise Refused(Label.IDEMPOTENCY_KEY_REUSED, OTHER_REQUEST_TEXT)
        case Disabled():
            raise disabled()
        case _:
            assert_never(claim)


def key_of(request: HttpRequest) -> str:
    """The key as it was sent. Raises Refused(validation_failed) when it is missing or not usable."""
    key = request.headers.get(HEADER, "")
    if not _KEY(key):
        raise validation_failed([Detail(HEADER, "Required: 1 to 255 visible ASCII characters")])
    return str(key)


def fingerprint_of(request: HttpRequest, raw: bytes) -> bytes:
    """32 bytes over method, path and raw body: JSON in another order is another request."""
    return hashlib.sha256(b"\0".join((str(request.method).encode(), request.path.encode(), raw))).digest()


def in_flight() -> Refused:
    """409: the same request is being worked on; its answer can be had in a moment."""
    return Refused(Label.IDEMPOTENCY_KEY_IN_FLIGHT, IN_FLIGHT_TEXT, retry_after=IN_FLIGHT_SECONDS)


def disabled() -> Refused:
    """403: the key is known, and its account may not write."""
    return Refused(Label.ACCOUNT_DISABLED, ACCOUNT_DISABLED_TEXT)


def _first(
    client: Client,
    key: str,
    attempt: int,
    check: Callable[[], T],
    write: Callable[[psycopg.Connection[Any], T], Completed],
) -> HttpResponse:
    try:
        checked = check()
        answer = retry_serialization(lambda: _work(client, key, attempt, checked, write))
    except _TakenOver:
        raise in_flight() from None
    except Exception:
        # Also after an error of the database: if the commit went through after all, the record is complete and stays.
        with suppress(psycopg.Error, Error):
            crash_point("before_key_release_commit")
            store.release(web_connection(), client.id, key, attempt)
            crash_point("after_key_release_commit")
        raise
    return _response(answer)


def _work(
    client: Client, key: str, attempt: int, checked: T, write: Callable[[psycopg.Connection[Any], T], Completed]
) -> Completed:
    conn = web_connection()
    with transaction(conn):
        answer = write(conn, checked)
        if not store.complete(conn, client.id, key, attempt, answer):
            raise _TakenOver
        crash_point("before_keyed_work_commit")
    crash_point("after_keyed_work_commit")
    return answer


def _response(answer: Completed, *, replayed: bool = False) -> HttpResponse:
    response = HttpResponse(answer.body, status=answer.status, headers=dict(answer.headers))
    if replayed:
        response.headers[REPLAYED] = "true"
    return response
