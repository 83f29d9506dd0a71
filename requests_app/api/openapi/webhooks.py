"""Schemas of the webhook routes, and of what receivers get, as OpenAPI 3.0 dictionaries."""

from __future__ import annotations

from typing import Final

from requests_app.api.openapi.answers import TEXT, TIME, nullable, optional
from requests_app.api.openapi.requests import Schema, array, record
from requests_app.states import EVENTS, TEST_EVENT, DeliveryState, Kind, WebhookState

_ID: Final[Schema] = {"type": "string", "pattern": "^wh_[0-9a-f]{24}$"}
_MESSAGE: Final[Schema] = {"type": "string", "pattern": "^msg_[0-9a-f]{32}$"}
_URL: Final[Schema] = {
    "type": "string",
    "maxLength": 2048,
    "description": "https, to a public address, without user name and fragment",
    "example": "https://receiver.example/relayer",
}
_EVENTS: Final = array({"type": "string", "enum": list(EVENTS)}, 1)
_KINDS: Final = array({"type": "string", "enum": [kind.slug for kind in Kind]}, 1)
_DESCRIPTION: Final[Schema] = {"type": "string", "maxLength": 200}
_SECRET: Final[Schema] = {
    "type": "string",
    "pattern": "^whsec_[A-Za-z0-9+/]{43}=$",
    "description": "Shown in this answer and never again: base64 of the 32 bytes that sign",
}


def _all_optional(schema: Schema) -> Schema:
    """OpenAPI 3.0 knows no empty list of required properties."""
    return {name: value for name, value in schema.items() if name != "required"}


_SHOWN: Final[dict[str, Schema]] = {
    "id": _ID,
    "url": _URL,
    "description": _DESCRIPTION,
    "events": _EVENTS,
    "kinds": _KINDS,
    "state": {"type": "string", "enum": [WebhookState.ENABLED.value, WebhookState.PAUSED.value]},
    "created_at": TIME,
    "updated_at": TIME,
    "former_secret_until": nullable({**TIME, "description": "Until when the secret of before signs too"}),
}

WEBHOOKS: Final[dict[str, Schema]] = {
    "WebhookRequest": optional(
        record({"url": _URL, "events": _EVENTS, "kinds": _KINDS, "description": _DESCRIPTION}, closed=True),
        "events",
        "kinds",
        "description",
    ),
    "WebhookChange": _all_optional(
        record(
            {
                "url": _URL,
                "events": _EVENTS,
                "kinds": _KINDS,
                "description": _DESCRIPTION,
                "state": _SHOWN["state"],
            },
            closed=True,
        )
    ),
    "Webhook": record(_SHOWN),
    "WebhookWithSecret": record({**_SHOWN, "secret": _SECRET}),
    "WebhookList": record({"webhooks": array(record(_SHOWN))}),
    "WebhookTest": record({"id": {**_MESSAGE, "description": "The `webhook-id` of the delivery"}}),
    "WebhookDeliveries": record(
        {
            "deliveries": array(
                record(
                    {
                        "id": _MESSAGE,
                        "event": {"type": "string", "enum": [*EVENTS, TEST_EVENT]},
                        "kind": nullable({"type": "string", "enum": [*(kind.slug for kind in Kind), None]}),
                        "subject": nullable({**TEXT, "description": "The job id, or the id of the payment"}),
                        "occurred_at": TIME,
                        "state": {"type": "string", "enum": [state.value for state in DeliveryState]},
                        "attempts": {"type": "integer", "minimum": 0},
                        "next_attempt_at": nullable(TIME),
                        "last_attempt_at": nullable(TIME),
                        "last_status": nullable({"type": "integer", "description": "The receiver's HTTP status"}),
                        "last_error": nullable(TEXT),
                        "delivered_at": nullable(TIME),
                    }
                )
            ),
            "cursor": nullable(TEXT),
            "more": {"type": "boolean"},
        }
    ),
    "WebhookMessage": record(
        {
            "type": {"type": "string", "enum": [*EVENTS, TEST_EVENT]},
            "timestamp": TIME,
            "data": _all_optional(
                record(
                    {
                        "id": TEXT,
                        "kind": {"type": "string", "enum": [kind.slug for kind in Kind]},
                        "status": TEXT,
                        "updated_at": TIME,
                    }
                )
            ),
        },
        description=(
            "What receivers get by POST, with the headers webhook-id (the same in every attempt), webhook-timestamp and "
            "webhook-signature (Standard Webhooks, v1). The data of a test is empty"
        ),
    ),
}
