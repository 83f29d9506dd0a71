"""Schemas of the envelope log's routes, as OpenAPI 3.0 dictionaries."""

from __future__ import annotations

from typing import Final

from requests_app.api.openapi.answers import COUNT, TEXT, TIME, UUID, nullable, optional
from requests_app.api.openapi.requests import Schema, array, record

_HEX: Final[Schema] = {"type": "string", "pattern": "^0x([0-9a-f]{2})*$"}
_DECIMAL: Final[Schema] = {"type": "string", "pattern": "^[0-9]+$"}
_ORIGINATOR: Final[Schema] = {"type": "integer", "minimum": 1, "maximum": 2**31 - 1}


_ENVELOPE: Final = record(
    {
        "originator": _ORIGINATOR,
        "position": _DECIMAL,
        "kind": {"type": "integer", "description": "1 to 8: chain events; 100: published"},
        "topic": nullable(_HEX),
        "payload": {**nullable(_HEX), "description": "null once the payload is retired"},
        "contract": nullable(_HEX),
        "block_hash": nullable(_HEX),
        "tx_hash": nullable(_HEX),
        "recorded_at": TIME,
        "expiry": nullable({"type": "integer", "description": "Seconds since 1970; null: none"}),
    }
)
_USAGE: Final = record(
    {
        "originator": _ORIGINATOR,
        "minute": TIME,
        "messages": COUNT,
        "picodollars": _DECIMAL,
        "last_position": _DECIMAL,
        "reference": nullable(TEXT),
        "settled_at": nullable(TIME),
    }
)

LOG: Final[dict[str, Schema]] = {
    "PublishRequest": optional(
        record(
            {
                "topic": {"type": "string", "pattern": "^0x([0-9a-fA-F]{2}){1,128}$", "example": "0x746f706963"},
                "payload": {"type": "string", "pattern": "^0x([0-9a-fA-F]{2})*$", "example": "0x68656c6c6f"},
                "expiry": {"type": "integer", "minimum": 1, "description": "Seconds since 1970; leave it out for none"},
            },
            closed=True,
        ),
        "expiry",
    ),
    "Publication": record(
        {
            "id": UUID,
            "status": {"type": "string", "enum": ["published", "staged"]},
            "originator": nullable(_ORIGINATOR),
            "position": nullable(_DECIMAL),
        }
    ),
    "EnvelopePage": record(
        {
            "envelopes": array(_ENVELOPE),
            "cursor": TEXT,
            "more": {"type": "boolean", "description": "More is there already"},
            "clock": {"type": "object", "additionalProperties": _DECIMAL},
        }
    ),
    "UsagePage": record(
        {
            "state": {"type": "string", "enum": ["unsettled", "settled"]},
            "usage": array(_USAGE),
            "cursor": TEXT,
            "more": {"type": "boolean"},
            "unsettled_picodollars": _DECIMAL,
            "settled_picodollars": _DECIMAL,
        }
    ),
}
