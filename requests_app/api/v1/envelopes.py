"""/v1/envelopes: publish into the log of this deployment, read every originator's by cursor (design 5.4.4, 5.4.7)."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Final, cast
from uuid import uuid4

from django.conf import settings
from django.http import HttpRequest, HttpResponse

from requests_app.api import cursors
from requests_app.api.auth import Client, authenticate, unauthorized
from requests_app.api.body import read_body
from requests_app.api.jobs import not_found
from requests_app.api.json_reader import NUMBER_OR_TEXT, TEXT, Record, read_record, top_level_keys
from requests_app.api.labels import RATE_LIMITED_TEXT, Label
from requests_app.api.refusals import Refused
from requests_app.api.v1 import log_documented as documented
from requests_app.api.v1.printed import hex_text, time_text
from requests_app.api.v1.problems import ProblemView
from requests_app.api.v1.queries import (
    clock_of,
    known_only,
    limit_of,
    originators_of,
    refused,
    topic_of,
    topics_of,
)
from requests_app.api.v1.views import job_id_of
from requests_app.api.view import json_response
from requests_app.api.waiting import PUBLICATION, watch
from requests_app.crash_points import crash_point
from requests_app.expiry import BadExpiry, expiry_of
from requests_app.store import publish, readers
from requests_app.store.publish import Publication
from requests_app.store.readers import LARGEST_PAGE, Page, Read, UnknownOriginator
from requests_app.store.session import web_connection

_PLAIN: Final = Record({"topic": TEXT, "payload": TEXT}, closed=True)
_EXPIRING: Final = Record({"topic": TEXT, "payload": TEXT, "expiry": NUMBER_OR_TEXT}, closed=True)
_HEX: Final = re.compile(r"0x(?:[0-9a-fA-F]{2})*").fullmatch
_SECONDS: Final = re.compile(r"[0-9]{1,20}").fullmatch
_RETRY_SECONDS: Final = 1


@documented.envelopes
class Envelopes(ProblemView):
    """The envelope log."""

    http_method_names: Any = ("get", "head", "post")

    def post(self, request: HttpRequest) -> HttpResponse:
        """Stage a publication and wait for this one only: 201 in the log, 202 still staged, 400 refused for good."""
        client = authenticate(request)
        topic, payload, expires_at = _body(read_body(request))
        ext_id = uuid4()
        conn = web_connection()
        crash_point("before_stage_commit")
        staged = publish.stage(conn, ext_id, client.id, topic, payload, expires_at)
        crash_point("after_stage_commit")
        if staged is None:
            raise _not_staged(client)
        watch.wait((PUBLICATION, staged), float(settings.PUBLISH_WAIT_SECONDS))
        found = publish.publication(web_connection(), ext_id, client.id)
        if found is None:
            raise not_found()
        response = _answer(found, 201)
        response.headers["Location"] = f"/v1/envelopes/{ext_id}"
        return response

    def get(self, request: HttpRequest) -> HttpResponse:
        """The next envelopes after a cursor or a clock; topics and originators filter together."""
        client = authenticate(request)
        known_only(request, "topic", "originator", "after", "cursor", "limit")
        topics, originators = topics_of(request), originators_of(request)
        limit = limit_of(request, LARGEST_PAGE)
        conn = web_connection()
        scope = cursors.Scope(client.id, "envelopes", [*(t.hex() for t in topics), "|", *map(str, originators)])
        clock, seen = readers.go_back(conn, *_clock(request, scope))
        try:
            page = readers.read_envelopes(conn, topics=topics, originators=originators, clock=clock, limit=limit)
        except UnknownOriginator as error:
            raise refused("originator", str(error)) from None
        state = [(source, at, seen.get(source, 0)) for source, at in sorted(page.clock.items())]
        return json_response(200, _page(page, cursors.seal(conn, scope, state)))


@documented.publication
class PublicationStatus(ProblemView):
    """One publication of this client."""

    def get(self, request: HttpRequest, job_id: str) -> HttpResponse:
        """Where it stands: 200 in the log, 202 staged, 400 refused for good."""
        client = authenticate(request)
        found = publish.publication(web_connection(), job_id_of(job_id), client.id)
        if found is None:
            raise not_found()
        return _answer(found, 200)


def _body(raw: bytes) -> tuple[bytes, bytes, datetime | None]:
    """(topic, payload, expiry) of a POST body. Raises Refused."""
    expiring = "expiry" in top_level_keys(raw)
    value = read_record(raw, _EXPIRING if expiring else _PLAIN)
    topic, text = topic_of(value["topic"]), value["payload"]
    if not _HEX(text):
        raise refused("payload", "Must be 0x hex")
    if len(text) // 2 - 1 > settings.ENVELOPE_MAX_PAYLOAD_BYTES:
        raise refused("payload", f"At most {settings.ENVELOPE_MAX_PAYLOAD_BYTES} bytes")
    return topic, bytes.fromhex(text[2:]), _expiry(value["expiry"]) if expiring else None


def _expiry(text: str) -> datetime:
    try:
        expires_at = expiry_of(int(text)) if _SECONDS(text) else None
    except BadExpiry:
        expires_at = None
    if expires_at is None or expires_at <= datetime.now(UTC):
        raise refused("expiry", "Must be seconds since 1970, in the future; leave it out for none")
    return expires_at


def _not_staged(client: Client) -> Refused:
    if not publish.account_active(web_connection(), client.id):
        return unauthorized()
    return Refused(Label.RATE_LIMITED, RATE_LIMITED_TEXT, retry_after=_RETRY_SECONDS)


def _clock(request: HttpRequest, scope: cursors.Scope) -> tuple[dict[int, int], dict[int, int]]:
    """The clock to read after: a cursor's with the reorganisations that it has seen, or the one given, or an empty one."""
    text = request.GET.get("cursor")
    if text is None:
        return clock_of(request), {}
    if "after" in request.GET:
        raise refused("after", "Give either after or cursor")
    state = cast("list[tuple[int, ...]]", cursors.unseal(web_connection(), scope, text))
    # Two numbers: a cursor of a release that remembered no reorganisations.
    return {one[0]: one[1] for one in state}, {one[0]: one[2] for one in state if len(one) > 2}


def _answer(found: Publication, done: int) -> HttpResponse:
    if found.parked:
        raise refused("request", f"Can never be published: {found.error}")
    published = found.position is not None
    body = {
        "id": str(found.ext_id),
        "status": "published" if published else "staged",
        "originator": found.source_id,
        "position": None if found.position is None else str(found.position),
    }
    return json_response(done if published else 202, body, None if published else _RETRY_SECONDS)


def _page(page: Page, cursor: str) -> dict[str, Any]:
    return {
        "envelopes": [_envelope(row) for row in page.rows],
        "cursor": cursor,
        "more": page.more,
        "clock": {str(source): str(position) for source, position in sorted(page.clock.items())},
    }


def _envelope(row: Read) -> dict[str, Any]:
    """Positions are decimal text: they are larger than what JSON numbers carry exactly everywhere."""
    return {
        "originator": row.source_id,
        "position": str(row.position),
        "kind": row.kind,
        "topic": hex_text(row.ref),
        "payload": hex_text(row.payload),
        "contract": hex_text(row.contract) if row.contract else None,
        "block_hash": hex_text(row.block_hash) if row.block_hash else None,
        "tx_hash": hex_text(row.tx_hash) if row.tx_hash else None,
        "recorded_at": time_text(row.recorded_at),
        "expiry": None if row.expires_at is None else int(row.expires_at.timestamp()),
    }
