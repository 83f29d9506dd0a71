"""OpenAPI decorators of the /v1 routes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from drf_spectacular.utils import extend_schema, extend_schema_view

from requests_app.api.openapi.answers import ref
from requests_app.api.openapi.operations import (
    JOB_ID,
    JSON,
    KEYED,
    PROBLEM,
    WAIT,
    answer,
    challenge,
    location,
    retry_after,
)

V = TypeVar("V", bound=type)

INPUT_PROOF: Final = ref("InputProofRequest")
PUBLIC_DECRYPT: Final = ref("PublicDecryptRequest")
USER_DECRYPT: Final[dict[str, Any]] = {
    "oneOf": [ref("UserDecryptRequest"), ref("DelegatedUserDecryptRequest"), ref("UnifiedUserDecryptRequest")]
}

_TAG: Final = ["native (v1)"]


def _problem(description: str) -> Any:
    return answer("Problem", description)


_KEYED: Final[dict[Any, Any]] = {
    (401, PROBLEM): _problem("API key missing or not valid"),
    (500, PROBLEM): _problem("internal_server_error"),
    (503, PROBLEM): _problem("database_unavailable: ask again after Retry-After"),
}
_BY_ID: Final[dict[Any, Any]] = {
    (400, PROBLEM): _problem("job_id or a query parameter is not valid"),
    (404, PROBLEM): _problem("No such job of this client"),
    **_KEYED,
}


def submit(name: str, request: dict[str, Any]) -> Callable[[V], V]:
    """Document a POST."""
    return extend_schema_view(
        post=extend_schema(
            operation_id=f"v1_submit_{name.replace('-', '_')}",
            tags=_TAG,
            auth=KEYED,
            request={JSON: request},
            parameters=[retry_after(202, 429, 503), location(), challenge()],
            responses={
                (202, JSON): answer("Job", "Accepted, new or duplicate; a completed duplicate carries its result"),
                (400, PROBLEM): _problem("The body is not valid; `errors` names the fields"),
                (429, PROBLEM): _problem("rate_limited: the queue is full"),
                **_KEYED,
            },
        )
    )


def poll(name: str) -> Callable[[V], V]:
    """Document a GET."""
    return extend_schema_view(
        get=extend_schema(
            operation_id=f"v1_get_{name.replace('-', '_')}",
            tags=_TAG,
            auth=KEYED,
            parameters=[JOB_ID, WAIT, retry_after(202, 503), challenge()],
            responses={
                (200, JSON): answer("Row", "Completed"),
                (202, JSON): answer("Row", "queued, processing, tx_in_flight, receipt_received or needs_review"),
                (400, JSON): answer("Row", "Failed; err_label and err_reason say why"),
                (504, JSON): answer("Row", "Timed out; err_label and err_reason say why"),
                **_BY_ID,
            },
        )
    )


def timeline(view: V) -> V:
    """Document the history of a job."""
    decorate: Callable[[V], V] = extend_schema_view(
        get=extend_schema(
            operation_id="v1_timeline",
            tags=_TAG,
            auth=KEYED,
            parameters=[JOB_ID, challenge()],
            responses={(200, JSON): answer("Timeline", "Every transition, oldest first"), **_BY_ID},
        )
    )
    return decorate(view)


def cancel(view: V) -> V:
    """Document the withdrawal of a job."""
    decorate: Callable[[V], V] = extend_schema_view(
        post=extend_schema(
            operation_id="v1_cancel",
            tags=_TAG,
            auth=KEYED,
            request=None,
            parameters=[JOB_ID, challenge()],
            responses={
                (200, JSON): answer("Row", "Withdrawn; on a row shared with other clients only this client's view"),
                (409, PROBLEM): _problem("not_cancelable: a transaction may already carry the request"),
                **_BY_ID,
            },
        )
    )
    return decorate(view)
