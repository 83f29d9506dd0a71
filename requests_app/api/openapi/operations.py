"""What the per-route decorators of the faces share: parameters, headers, security."""

from __future__ import annotations

from typing import Any, Final

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse

from requests_app.api.openapi.answers import ref

KEYED: Final[list[Any]] = [{"ApiKey": []}, {"Bearer": []}, {"ApiKeyCookie": []}]
PUBLIC: Final[list[Any]] = [{}]

JSON: Final = "application/json"
PROBLEM: Final = "application/problem+json"
PLAIN: Final = "text/plain"

JOB_ID: Final = OpenApiParameter(
    "job_id", OpenApiTypes.UUID, OpenApiParameter.PATH, description="The job id that the POST answered"
)
WAIT: Final = OpenApiParameter(
    "wait",
    {"type": "number", "minimum": 0, "maximum": 25},
    OpenApiParameter.QUERY,
    description="Seconds to hold the answer back until the job is final (long-poll); more than 25 count as 25",
)


def retry_after(*statuses: int) -> OpenApiParameter:
    """The Retry-After header on these statuses."""
    return OpenApiParameter(
        "Retry-After",
        {"type": "integer", "minimum": 1},
        OpenApiParameter.HEADER,
        response=list(statuses),
        description="Whole seconds to wait before the next request",
    )


def challenge() -> OpenApiParameter:
    """The WWW-Authenticate header of 401."""
    return OpenApiParameter("WWW-Authenticate", str, OpenApiParameter.HEADER, response=[401])


def location() -> OpenApiParameter:
    """The Location header of v1's 202."""
    return OpenApiParameter(
        "Location", {"type": "string", "format": "uri-reference"}, OpenApiParameter.HEADER, response=[202]
    )


def answer(schema: str, description: str) -> OpenApiResponse:
    """An answer with a component schema."""
    return OpenApiResponse(ref(schema), description)


def plain(description: str) -> OpenApiResponse:
    """A text/plain answer."""
    return OpenApiResponse({"type": "string"}, description)
