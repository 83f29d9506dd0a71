"""OpenAPI decorators of the /v2 and /v3 routes: every status, label set and header they can answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from drf_spectacular.utils import extend_schema, extend_schema_view

from requests_app.api.openapi.answers import ref
from requests_app.api.openapi.operations import (
    JOB_ID,
    JSON,
    KEYED,
    PLAIN,
    PUBLIC,
    answer,
    challenge,
    plain,
    retry_after,
)

V = TypeVar("V", bound=type)

INPUT_PROOF: Final = "InputProofRequest"
PUBLIC_DECRYPT: Final = "PublicDecryptRequest"
DIRECT: Final = "UserDecryptRequest"
DELEGATED: Final = "DelegatedUserDecryptRequest"
UNIFIED: Final = "UnifiedUserDecryptRequest"
INPUT_PROOF_RESULT: Final = "InputProofResult"
PUBLIC_DECRYPT_RESULT: Final = "PublicDecryptResult"
USER_DECRYPT_RESULT: Final = "UserDecryptResult"

_TAG: Final = ["fhEVM (v2, v3)"]
_NO_KEY: Final = answer("Failed", "unauthorized: API key missing or not valid")


def submit(name: str, request: str) -> Callable[[V], V]:
    """Document a POST whose body is the component `request`."""
    responses: dict[Any, Any] = {
        (202, JSON): answer("Accepted", "Accepted, new or duplicate of a live or completed request"),
        (400, JSON): answer(
            "Failed",
            "malformed_json, missing_fields, validation_failed, request_error or host_chain_id_not_supported",
        ),
        (401, JSON): _NO_KEY,
        (429, JSON): answer("Failed", "rate_limited: the queue is full"),
        (500, JSON): answer("Failed", "internal_server_error"),
    }
    return extend_schema_view(
        post=extend_schema(
            operation_id=f"submit_{name.replace('-', '_')}",
            tags=_TAG,
            auth=KEYED,
            request={JSON: ref(request)},
            parameters=[retry_after(202, 429), challenge()],
            responses=responses,
        )
    )


def poll(name: str, result: str) -> Callable[[V], V]:
    """Document a GET whose 200 is the component `result`."""
    responses: dict[Any, Any] = {
        (200, JSON): answer(result, "Completed"),
        (202, JSON): answer("Pending", "The answer is still to come"),
        (400, JSON): answer("Failed", "validation_failed (signature) or not_allowed_on_host_acl"),
        (400, PLAIN): plain("job_id is not a UUID"),
        (401, JSON): _NO_KEY,
        (404, JSON): answer("Failed", "not_found: no such job of this client"),
        (500, JSON): answer("Failed", "internal_server_error or host_acl_failed"),
        (503, JSON): answer(
            "Failed",
            "readiness_check_timed_out, response_timed_out, protocol_paused, insufficient_balance or"
            " insufficient_allowance",
        ),
    }
    return extend_schema_view(
        get=extend_schema(
            operation_id=f"poll_{name.replace('-', '_')}",
            tags=_TAG,
            auth=KEYED,
            parameters=[JOB_ID, retry_after(202), challenge()],
            responses=responses,
        )
    )


def keyurl(view: V) -> V:
    """Document the key location route."""
    decorate: Callable[[V], V] = extend_schema_view(
        get=extend_schema(
            operation_id="keyurl",
            tags=_TAG,
            auth=PUBLIC,
            responses={
                (200, JSON): answer("KeyUrl", "The current key and CRS"),
                (500, JSON): answer("Failed", "internal_server_error: not initialised yet"),
            },
        )
    )
    return decorate(view)
