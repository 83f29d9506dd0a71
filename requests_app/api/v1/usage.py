"""/v1/usage: what this client's envelopes cost, not yet and already settled (design 5.4.6)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from django.http import HttpRequest, HttpResponse

from requests_app.api import cursors
from requests_app.api.auth import authenticate
from requests_app.api.v1 import log_documented as documented
from requests_app.api.v1.printed import time_text
from requests_app.api.v1.problems import ProblemView
from requests_app.api.v1.queries import known_only, limit_of, refused
from requests_app.api.view import json_response
from requests_app.store import usage
from requests_app.store.session import web_connection
from requests_app.store.usage import UsageRow

LARGEST_PAGE: Final = 1000
_STATES: Final = ("unsettled", "settled")


@documented.usage
class Usage(ProblemView):
    """Usage of the asking client."""

    def get(self, request: HttpRequest) -> HttpResponse:
        """Usage by originator and minute, in picodollars, with the totals; `state` chooses which."""
        client = authenticate(request)
        known_only(request, "state", "cursor", "limit")
        state = request.GET.get("state", _STATES[0])
        if state not in _STATES:
            raise refused("state", "Must be unsettled or settled")
        limit = limit_of(request, LARGEST_PAGE)
        conn = web_connection()
        scope = cursors.Scope(client.id, "usage", [state])
        text = request.GET.get("cursor")
        after = [-1, 0] if text is None else cursors.unseal(conn, scope, text)
        if state == "unsettled":
            rows = usage.unsettled_page(conn, client.id, (after[0], after[1]), limit)
        else:
            rows = usage.settled_page(conn, client.id, max(0, after[0]), limit)
        place = _place(rows[-1], state) if rows else after
        unsettled, settled = usage.totals(conn, client.id)
        return json_response(200, {
            "state": state,
            "usage": [_row(row) for row in rows],
            "cursor": cursors.seal(conn, scope, place),
            "more": len(rows) == limit,
            "unsettled_picodollars": str(unsettled),
            "settled_picodollars": str(settled),
        })  # fmt: skip


def _place(row: UsageRow, state: str) -> list[int]:
    return [row.minute, row.source_id] if state == "unsettled" else [row.id, 0]


def _row(row: UsageRow) -> dict[str, Any]:
    return {
        "originator": row.source_id,
        "minute": time_text(datetime.fromtimestamp(row.minute * 60, UTC)),
        "messages": row.messages,
        "picodollars": str(row.spend),
        "last_position": str(row.last_position),
        "reference": row.reference,
        "settled_at": time_text(row.settled_at),
    }
