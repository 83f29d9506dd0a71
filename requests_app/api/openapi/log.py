"""Schemas of the envelope log's routes, as OpenAPI 3.0 dictionaries."""

from __future__ import annotations

from typing import Final

from requests_app.api.openapi.answers import COUNT, TEXT, TIME, UUID, optional
from requests_app.api.openapi.requests import Schema, array, record

_HEX: Final[Schema] = {"type": "string", "pattern": "^0x([0-9a-f]{2})*$"}
_DECIMAL: Final[Schema] = {"type": "string", "pattern": "^[0-9]+$"}
_ORIGINATOR: Final[Schema] = {"type": "integer", "minimum": 1, "maximum": 2**31 - 1}


def _nullable(schema: Schema) -> Schema:
    return {**schema, "nullable": True}


_ENVELOPE: Final = record(
    {
        "originator": _ORIGINATOR,
        "position": _DECIMAL,
        "kind": {"type": "integer", "description": "1 to 8: chain events; 100: published"},
        "topic": _nullable(_HEX),
        "payload": {**_nullable(_HEX), "description": "null once the payload is retired"},
        "contract": _nullable(_HEX),
        "block_hash": _nullable(_HEX),
        "tx_hash": _nullable(_HEX),
        "recorded_at": TIME,
        "expiry": _nullable({"type": "integer", "description": "Seconds since 1970; null: none"}),
    }
)
_USAGE: Final = record(
    {
        "originator": _ORIGINATOR,
        "minute": TIME,
        "messages": COUNT,
        "picodollars": _DECIMAL,
        "last_position": _DECIMAL,
        "reference": _nullable(TEXT),
        "settled_at": _nullable(TIME),
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
            "originator": _nullable(_ORIGINATOR),
            "position": _nullable(_DECIMAL),
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
