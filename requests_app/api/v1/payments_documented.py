"""OpenAPI decorators of the payment routes."""

from __future__ import annotations

from typing import Any, Final, TypeVar

from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view

from requests_app.api.openapi.answers import ref
from requests_app.api.openapi.operations import JSON, KEYED, PROBLEM, WAIT, answer, challenge, retry_after
from requests_app.states import IntentState

V = TypeVar("V", bound=type)
_TAG: Final = ["payments (v1)"]
_ADDRESS: Final = {"type": "string", "pattern": "^0x[0-9a-fA-F]{40}$"}
_TIME: Final = {"type": "string", "format": "date-time"}


def _query(name: str, schema: dict[str, Any], text: str) -> OpenApiParameter:
    return OpenApiParameter(name, schema, OpenApiParameter.QUERY, description=text)


_ID: Final = OpenApiParameter(
    "intent_id",
    {"type": "string", "pattern": "^pi_[0-9a-f]{24}$"},
    OpenApiParameter.PATH,
    description="The id that the POST answered",
)
_IDEMPOTENCY_KEY: Final = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]{1,255}$"},
    OpenApiParameter.HEADER,
    required=True,
    description="Chosen by the client, one a payment: the same key and body get the same answer for 24 hours",
)
_REPLAYED: Final = OpenApiParameter(
    "Idempotent-Replayed",
    {"type": "string", "enum": ["true"]},
    OpenApiParameter.HEADER,
    response=[201],
    description="This answer was given before",
)
_LOCATION: Final = OpenApiParameter(
    "Location", {"type": "string", "format": "uri-reference"}, OpenApiParameter.HEADER, response=[201]
)
_FAILURES: Final[dict[Any, Any]] = {
    (401, PROBLEM): answer("Problem", "API key missing or not valid"),
    (403, PROBLEM): answer("Problem", "account_disabled"),
    (500, PROBLEM): answer("Problem", "internal_server_error"),
    (503, PROBLEM): answer("Problem", "database_unavailable: ask again after Retry-After; a POST may be repeated"),
}
_BY_ID: Final[dict[Any, Any]] = {(404, PROBLEM): answer("Problem", "No such payment of this client"), **_FAILURES}
_FULL: Final[dict[Any, Any]] = {(429, PROBLEM): answer("Problem", "rate_limited: too many payments wait")}
_FILTERS: Final = [
    _query(
        "state",
        {"type": "array", "items": {"type": "string", "enum": [state.value for state in IntentState]}},
        "Only payments in these states; may be repeated",
    ),
    _query("payer", _ADDRESS, "Only this payer's, however the address was spelled"),
    _query("merchant", _ADDRESS, "Only this merchant's, however the address was spelled"),
    _query("ref", {"type": "string", "pattern": "^0x[0-9a-f]{64}$"}, "Only the payment of this ref"),
    _query("created_from", _TIME, "Created at this time or later; UTC with Z"),
    _query("created_to", _TIME, "Created before this time; UTC with Z"),
    _query("cursor", {"type": "string"}, "The cursor of the page before, with the same filters"),
    _query("limit", {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}, "Payments of one page"),
]


def payments(view: V) -> V:
    """Document creating and listing."""
    decorate = extend_schema_view(
        get=extend_schema(
            operation_id="v1_list_payments",
            tags=_TAG,
            auth=KEYED,
            parameters=[*_FILTERS, retry_after(503), challenge()],
            responses={
                (200, JSON): answer("PaymentPage", "Newest first; a page may be short, or empty, and yet have a next"),
                (400, PROBLEM): answer("Problem", "A parameter or the cursor is not valid; `errors` names it"),
                **_FAILURES,
            },
        ),
        post=extend_schema(
            operation_id="v1_create_payment",
            tags=_TAG,
            auth=KEYED,
            request={JSON: ref("PaymentRequest")},
            parameters=[_IDEMPOTENCY_KEY, _REPLAYED, _LOCATION, retry_after(409, 429, 503), challenge()],
            responses={
                (201, JSON): answer("Payment", "Created, now or by an earlier request with this key"),
                (400, PROBLEM): answer("Problem", "Body or Idempotency-Key is not valid; the key stays free"),
                (409, PROBLEM): answer("Problem", "idempotency_key_in_flight: ask again after Retry-After"),
                (422, PROBLEM): answer("Problem", "idempotency_key_reused: the key belongs to another request"),
                **_FULL,
                **_FAILURES,
            },
        ),
    )
    decorated: V = decorate(view)
    return decorated


def payment(view: V) -> V:
    """Document watching one payment."""
    decorate = extend_schema_view(
        get=extend_schema(
            operation_id="v1_get_payment",
            tags=_TAG,
            auth=KEYED,
            parameters=[_ID, WAIT, retry_after(200, 503), challenge()],
            responses={
                (200, JSON): answer("Payment", "As it stands, whatever its state"),
                (400, PROBLEM): answer("Problem", "`wait` is not valid"),
                **_BY_ID,
            },
        )
    )
    decorated: V = decorate(view)
    return decorated


def payment_timeline(view: V) -> V:
    """Document the history of a payment."""
    decorate = extend_schema_view(
        get=extend_schema(
            operation_id="v1_payment_timeline",
            tags=_TAG,
            auth=KEYED,
            parameters=[_ID, retry_after(503), challenge()],
            responses={(200, JSON): answer("PaymentTimeline", "Every transition, oldest first"), **_BY_ID},
        )
    )
    decorated: V = decorate(view)
    return decorated


def authorize(view: V) -> V:
    """Document the payer's authorization."""
    decorate = extend_schema_view(
        post=extend_schema(
            operation_id="v1_authorize_payment",
            tags=_TAG,
            auth=KEYED,
            request={JSON: ref("PaymentAuthorization")},
            parameters=[_ID, retry_after(200, 429, 503), challenge()],
            responses={
                (200, JSON): answer("Payment", "Authorized, now or by the same authorization before"),
                (400, PROBLEM): answer("Problem", "The body or the signature is not valid, or authorization_expired"),
                (409, PROBLEM): answer("PaymentConflict", "not_authorizable: canceled, or authorized otherwise"),
                **_FULL,
                **_BY_ID,
            },
        )
    )
    decorated: V = decorate(view)
    return decorated


def cancel_payment(view: V) -> V:
    """Document the withdrawal of a payment."""
    decorate = extend_schema_view(
        post=extend_schema(
            operation_id="v1_cancel_payment",
            tags=_TAG,
            auth=KEYED,
            request=None,
            parameters=[_ID, retry_after(503), challenge()],
            responses={
                (200, JSON): answer("Payment", "Canceled"),
                (409, PROBLEM): answer(
                    "PaymentConflict", "not_cancelable: a transaction may already carry the payment"
                ),
                **_BY_ID,
            },
        )
    )
    decorated: V = decorate(view)
    return decorated
