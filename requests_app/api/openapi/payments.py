"""Schemas of the payment routes, as OpenAPI 3.0 dictionaries."""

from __future__ import annotations

from typing import Final

from requests_app.api.openapi.answers import COUNT, TEXT, TIME, nullable, optional
from requests_app.api.openapi.requests import Schema, array, record
from requests_app.states import IntentActor, IntentState

_HASH: Final[Schema] = {"type": "string", "pattern": "^0x[0-9a-f]{64}$"}
_ADDRESS: Final[Schema] = {
    "type": "string",
    "pattern": "^0x[0-9a-fA-F]{40}$",
    "description": "20 bytes, in lower case or with the checksum of EIP-55",
}
_AMOUNT: Final[Schema] = {
    "type": "string",
    "pattern": "^[1-9][0-9]{0,77}$",
    "description": "Token units, 1 to 2^256 - 1",
    "example": "100000000",
}
_SECONDS: Final[Schema] = {
    "type": "string",
    "pattern": "^(0|[1-9][0-9]{0,77})$",
    "description": "Seconds since 1970, in decimal text",
}
_ID: Final[Schema] = {"type": "string", "pattern": "^pi_[0-9a-f]{24}$"}
_STATE: Final[Schema] = {"type": "string", "enum": [state.value for state in IntentState]}
_CHAIN: Final[Schema] = {"type": "string", "pattern": "^evm:[0-9]+$", "example": "evm:54321"}


_TYPED_DATA: Final = record(
    {
        "types": {"type": "object", "additionalProperties": array(record({"name": TEXT, "type": TEXT}))},
        "primaryType": {"type": "string", "enum": ["TransferWithAuthorization"]},
        "domain": record({"name": TEXT, "version": TEXT, "chainId": COUNT, "verifyingContract": _ADDRESS}),
        "message": record(
            {
                "from": _ADDRESS,
                "to": _ADDRESS,
                "value": _AMOUNT,
                "validAfter": _SECONDS,
                "validBefore": _SECONDS,
                "nonce": _HASH,
            }
        ),
    },
    description="For eth_signTypedData_v4 by the payer; only while the payment is created",
)
_PAYMENT: Final = record(
    {
        "id": _ID,
        "ref": {**_HASH, "description": "PaymentRef: the nonce of the authorization, and the payment's name on chain"},
        "state": _STATE,
        "version": {"type": "integer", "minimum": 1},
        "chain": _CHAIN,
        "token": _ADDRESS,
        "payer": _ADDRESS,
        "merchant": _ADDRESS,
        "amount": _AMOUNT,
        "tx_hash": nullable(_HASH),
        "state_reason": nullable(TEXT),
        "created_at": TIME,
        "updated_at": {**TIME, "description": "When the payment came into its state"},
        "expires_at": nullable(TIME),
        "typed_data": nullable(_TYPED_DATA),
    }
)

PAYMENTS: Final[dict[str, Schema]] = {
    "PaymentRequest": optional(
        record(
            {
                "chain": _CHAIN,
                "token": _ADDRESS,
                "payer": _ADDRESS,
                "merchant": _ADDRESS,
                "amount": _AMOUNT,
                "expires_at": {**TIME, "description": "In UTC with Z; until when the payer may sign"},
            },
            closed=True,
        ),
        "expires_at",
    ),
    "PaymentAuthorization": record(
        {
            "valid_after": _SECONDS,
            "valid_before": _SECONDS,
            "nonce": {**_HASH, "description": "The ref of the payment"},
            "signature": {
                "type": "string",
                "pattern": "^0x[0-9a-fA-F]{130}$",
                "description": "r, s and v; s in the lower half, v 27 or 28",
            },
        },
        closed=True,
    ),
    "Payment": _PAYMENT,
    "PaymentPage": record({"payments": array(_PAYMENT), "cursor": nullable(TEXT), "more": {"type": "boolean"}}),
    "PaymentTimeline": record(
        {
            "id": _ID,
            "ref": _HASH,
            "state": _STATE,
            "transitions": array(
                record(
                    {
                        "version": {"type": "integer", "minimum": 1},
                        "from_state": nullable(_STATE),
                        "to_state": _STATE,
                        "actor": {"type": "string", "enum": [actor.value for actor in IntentActor]},
                        "tx_hash": nullable(_HASH),
                        "reason": nullable(TEXT),
                        "at": TIME,
                    }
                )
            ),
        }
    ),
    "PaymentConflict": optional(
        record(
            {
                "type": {"type": "string", "format": "uri"},
                "title": TEXT,
                "status": {"type": "integer"},
                "detail": TEXT,
                "label": TEXT,
                "state": _STATE,
                "version": {"type": "integer", "minimum": 1},
                "state_reason": nullable(TEXT),
                "request_id": TEXT,
            },
            description="RFC 9457 problem details, with how the payment stands",
        ),
        "request_id",
    ),
}
