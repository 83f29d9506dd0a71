"""OpenAPI decorators of the envelope log's routes."""

from __future__ import annotations

from typing import Any, Final, TypeVar

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view

from requests_app.api.openapi.answers import ref
from requests_app.api.openapi.operations import JOB_ID, JSON, KEYED, PROBLEM, answer, challenge, location, retry_after

V = TypeVar("V", bound=type)
_TAG: Final = ["envelope log (v1)"]


def _query(name: str, schema: dict[str, Any], text: str, *, many: bool = False) -> OpenApiParameter:
    return OpenApiParameter(
        name, schema, OpenApiParameter.QUERY, description=text, many=many, explode=True if many else None
    )


_TOPIC: Final = {"type": "string", "pattern": "^0x([0-9a-fA-F]{2}){1,128}$"}
_LIMIT: Final = _query(
    "limit", {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}, "Rows of one answer"
)
_CURSOR: Final = OpenApiParameter(
    "cursor",
    OpenApiTypes.STR,
    OpenApiParameter.QUERY,
    description="The cursor of the answer before, with the same filter",
)
_FAILURES: Final[dict[Any, Any]] = {
    (400, PROBLEM): answer("Problem", "A parameter, the cursor or the body is not valid; `errors` names it"),
    (401, PROBLEM): answer("Problem", "API key missing or not valid"),
    (500, PROBLEM): answer("Problem", "internal_server_error"),
    (503, PROBLEM): answer("Problem", "database_unavailable: ask again after Retry-After"),
}


def envelopes(view: V) -> V:
    """Document reading and publishing."""
    decorate = extend_schema_view(
        get=extend_schema(
            operation_id="v1_read_envelopes",
            tags=_TAG,
            auth=KEYED,
            parameters=[
                _query(
                    "topic", {"type": "array", "items": _TOPIC, "maxItems": 100}, "Only these topics; may be repeated"
                ),
                _query(
                    "originator",
                    {
                        "type": "array",
                        "items": {"type": "integer", "minimum": 1, "maximum": 2**31 - 1},
                        "maxItems": 100,
                    },
                    "Only these originators; may be repeated, and applies together with topic",
                ),
                _query(
                    "after",
                    {"type": "string", "example": "1:7340032,100:5"},
                    "Clock to start after: originator:position, separated by commas; an absent originator from its beginning",
                ),
                _CURSOR,
                _LIMIT,
                retry_after(503),
                challenge(),
            ],
            responses={(200, JSON): answer("EnvelopePage", "Ordered by originator and position"), **_FAILURES},
        ),
        post=extend_schema(
            operation_id="v1_publish_envelope",
            tags=_TAG,
            auth=KEYED,
            request={JSON: ref("PublishRequest")},
            parameters=[location(), retry_after(202, 429, 503), challenge()],
            responses={
                (201, JSON): answer("Publication", "In the log at this position"),
                (202, JSON): answer("Publication", "Staged; it will be published, ask its Location"),
                (429, PROBLEM): answer("Problem", "rate_limited: too much is staged"),
                **_FAILURES,
            },
        ),
    )
    decorated: V = decorate(view)
    return decorated


def publication(view: V) -> V:
    """Document one publication."""
    decorate = extend_schema_view(
        get=extend_schema(
            operation_id="v1_get_publication",
            tags=_TAG,
            auth=KEYED,
            parameters=[JOB_ID, retry_after(202, 503), challenge()],
            responses={
                (200, JSON): answer("Publication", "In the log at this position"),
                (202, JSON): answer("Publication", "Staged"),
                (404, PROBLEM): answer("Problem", "No such publication of this client"),
                **_FAILURES,
            },
        )
    )
    decorated: V = decorate(view)
    return decorated


def usage(view: V) -> V:
    """Document the usage list."""
    decorate = extend_schema_view(
        get=extend_schema(
            operation_id="v1_usage",
            tags=_TAG,
            auth=KEYED,
            parameters=[
                _query(
                    "state", {"type": "string", "enum": ["unsettled", "settled"], "default": "unsettled"}, "Which usage"
                ),
                _CURSOR,
                _LIMIT,
                retry_after(503),
                challenge(),
            ],
            responses={
                (200, JSON): answer("UsagePage", "By minute and originator; settled: by settlement"),
                **_FAILURES,
            },
        )
    )
    decorated: V = decorate(view)
    return decorated
