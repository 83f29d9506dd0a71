"""OpenAPI decorators of the webhook routes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema, extend_schema_view

from requests_app.api.openapi.answers import ref
from requests_app.api.openapi.operations import JSON, KEYED, PROBLEM, answer, challenge, retry_after

V = TypeVar("V", bound=type)
_TAG: Final = ["webhooks (v1)"]
_ID: Final = OpenApiParameter(
    "webhook_id",
    {"type": "string", "pattern": "^wh_[0-9a-f]{24}$"},
    OpenApiParameter.PATH,
    description="The id that the POST answered",
)
_LOCATION: Final = OpenApiParameter(
    "Location", {"type": "string", "format": "uri-reference"}, OpenApiParameter.HEADER, response=[201]
)
_PAGE: Final = [
    OpenApiParameter("cursor", {"type": "string"}, OpenApiParameter.QUERY, description="The cursor of the page before"),
    OpenApiParameter(
        "limit",
        {"type": "integer", "minimum": 1, "maximum": 500, "default": 100},
        OpenApiParameter.QUERY,
        description="Deliveries of one page",
    ),
]
_FAILURES: Final[dict[Any, Any]] = {
    (401, PROBLEM): answer("Problem", "API key missing or not valid"),
    (403, PROBLEM): answer("Problem", "account_disabled"),
    (500, PROBLEM): answer("Problem", "internal_server_error"),
    (503, PROBLEM): answer("Problem", "database_unavailable: ask again after Retry-After"),
}
_BY_ID: Final[dict[Any, Any]] = {(404, PROBLEM): answer("Problem", "No such webhook of this client")}
_BAD_BODY: Final[dict[Any, Any]] = {
    (400, PROBLEM): answer("Problem", "The body is not valid; `errors` names the field")
}


def _operation(
    name: str, responses: Mapping[Any, Any], parameters: list[OpenApiParameter], body: str | None = None
) -> Any:
    return extend_schema(
        operation_id=name,
        tags=_TAG,
        auth=KEYED,
        request=None if body is None else {JSON: ref(body)},
        parameters=[*parameters, retry_after(503), challenge()],
        responses={**responses, **_FAILURES},
    )


def _decorated(**operations: Any) -> Callable[[V], V]:
    def decorate(view: V) -> V:
        decorated: V = extend_schema_view(**operations)(view)
        return decorated

    return decorate


webhooks: Final = _decorated(
    get=_operation(
        "v1_list_webhooks",
        {
            (200, JSON): answer("WebhookList", "All of them, oldest first, without their secrets"),
            (400, PROBLEM): answer("Problem", "There are no parameters"),
        },
        [],
    ),
    post=_operation(
        "v1_create_webhook",
        {
            (201, JSON): answer("WebhookWithSecret", "Made, and enabled"),
            (409, PROBLEM): answer("Problem", "webhook_limit_reached"),
            **_BAD_BODY,
        },
        [_LOCATION],
        "WebhookRequest",
    ),
)
webhook: Final = _decorated(
    get=_operation("v1_get_webhook", {(200, JSON): answer("Webhook", "Without its secret"), **_BY_ID}, [_ID]),
    patch=_operation(
        "v1_change_webhook",
        {(200, JSON): answer("Webhook", "After the change"), **_BAD_BODY, **_BY_ID},
        [_ID],
        "WebhookChange",
    ),
    delete=_operation(
        "v1_remove_webhook",
        {204: OpenApiResponse(description="Removed: nothing leaves for it any more"), **_BY_ID},
        [_ID],
    ),
)
secret: Final = _decorated(
    post=_operation(
        "v1_rotate_webhook_secret",
        {(200, JSON): answer("WebhookWithSecret", "The new secret; the one of before signs too for a day"), **_BY_ID},
        [_ID],
    )
)
test: Final = _decorated(
    post=_operation(
        "v1_test_webhook",
        {
            (202, JSON): answer("WebhookTest", "On its way; the deliveries say what became of it"),
            (409, PROBLEM): answer("Problem", "webhook_not_testable: paused, or the last test is still on its way"),
            **_BY_ID,
        },
        [_ID, retry_after(202)],
    )
)
deliveries: Final = _decorated(
    get=_operation(
        "v1_list_webhook_deliveries",
        {
            (200, JSON): answer("WebhookDeliveries", "Newest first"),
            (400, PROBLEM): answer("Problem", "A parameter or the cursor is not valid; `errors` names it"),
            **_BY_ID,
        },
        [_ID, *_PAGE],
    )
)
