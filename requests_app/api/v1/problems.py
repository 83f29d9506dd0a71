"""Errors of the native face as RFC 9457 problem details."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from django.http import HttpRequest, HttpResponse

from requests_app.api.labels import DATABASE_AWAY_TEXT, HTTP_STATUS, Label
from requests_app.api.refusals import Refused
from requests_app.api.view import FaceView, json_response

PROBLEM: Final = "application/problem+json"
TYPE_PREFIX: Final = "urn:gateway-relayer:problem:"
AWAY_SECONDS: Final = 2
"""When to ask again while the database is away: a restart takes seconds, and POST and GET may be repeated safely."""
# Put there by the site's first middleware; the same id is in the x-request-id header and in the log lines.
REQUEST_ID_META: Final = "relayer.request_id"


def problem(request: HttpRequest, status: int, label: str, detail: str, **members: Any) -> HttpResponse:
    """A problem document: type, title, status, detail and the extension members."""
    body: dict[str, Any] = {
        "type": TYPE_PREFIX + label,
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "label": label,
        **members,
    }
    request_id = request.META.get(REQUEST_ID_META)
    if request_id:
        body["request_id"] = request_id
    return json_response(status, body, content_type=PROBLEM)


class ProblemView(FaceView):
    """Prints refusals as problem documents."""

    def refuse(self, request: HttpRequest, refused: Refused) -> HttpResponse:
        """The problem document of a refusal, with `errors` where fields are to blame."""
        members: dict[str, Any] = dict(refused.members)
        if refused.details:
            members["errors"] = [{"field": detail.field, "issue": detail.issue} for detail in refused.details]
        response = problem(request, HTTP_STATUS[refused.label], refused.label.value, refused.message, **members)
        if refused.retry_after is not None:
            response.headers["Retry-After"] = str(refused.retry_after)
        if refused.label is Label.UNAUTHORIZED:
            response.headers["WWW-Authenticate"] = 'Bearer realm="relayer"'
        return response

    def database_refusal(self, request: HttpRequest, away: bool) -> Refused:
        """503 with Retry-After while the database is away; a statement that it refuses is our defect, a 500."""
        if not away:
            return super().database_refusal(request, away)
        return Refused(Label.DATABASE_UNAVAILABLE, DATABASE_AWAY_TEXT, retry_after=AWAY_SECONDS)

    def not_allowed(self, request: HttpRequest) -> HttpResponse:
        """405 with the Allow header."""
        response = problem(request, 405, "method_not_allowed", f"This resource allows {self.allowed()}")
        response.headers["Allow"] = self.allowed()
        return response


def unknown_path(request: HttpRequest, *_args: object, **_kwargs: object) -> HttpResponse:
    """404 of a path under /v1 that does not exist."""
    return problem(request, 404, Label.NOT_FOUND.value, "No such resource")


unknown_path.csrf_exempt = True  # type: ignore[attr-defined]  # a POST to an unknown path is 404 too, not 403
