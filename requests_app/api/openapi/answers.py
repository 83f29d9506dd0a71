"""Schemas of the answers of all faces, as OpenAPI 3.0 dictionaries."""

from __future__ import annotations

from typing import Any, Final

from requests_app.api.labels import Label
from requests_app.api.openapi.requests import Schema, array, record
from requests_app.states import REQUEST_KINDS, Status, Verb

UUID: Final[Schema] = {"type": "string", "format": "uuid"}
TIME: Final[Schema] = {"type": "string", "format": "date-time"}
TEXT: Final[Schema] = {"type": "string"}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_HEX_0X: Final[Schema] = {"type": "string", "pattern": "^0x([0-9a-f]{2})*$"}
_BARE: Final[Schema] = {"type": "string", "pattern": "^([0-9a-fA-F]{2})*$"}


def _one(value: str) -> Schema:
    return {"type": "string", "enum": [value]}


def nullable(schema: Schema) -> Schema:
    """The schema, or null."""
    return {**schema, "nullable": True}


def optional(schema: Schema, *names: str) -> Schema:
    """The record with these properties not required."""
    return {**schema, "required": [name for name in schema["required"] if name not in names]}


def _succeeded(result: Schema) -> Schema:
    return record({"status": _one("succeeded"), "requestId": UUID, "result": result})


_DETAILS: Final = array(record({"field": TEXT, "issue": TEXT}), 1)
_ERROR: Final = optional(
    record(
        {"label": {"type": "string", "enum": [label.value for label in Label]}, "message": TEXT, "details": _DETAILS}
    ),
    "details",
)
_PROOF: Final = optional(
    record(
        {"accepted": {"type": "boolean"}, "extraData": TEXT, "handles": array(_HEX_0X), "signatures": array(_HEX_0X)}
    ),
    "handles",
    "signatures",
)
_KEY: Final = record({"dataId": _HEX_0X, "urls": array({"type": "string", "format": "uri"}, 1)})
_SHARE: Final = record({"payload": _BARE, "signature": _BARE, "extraData": _HEX_0X})

_ROW_RESULT: Final[Schema] = {
    "description": "By kind: shares; clear values with signatures; handles with signatures",
    "nullable": True,
    "oneOf": [
        record({"shares": array(record({"payload": _HEX_0X, "signature": _HEX_0X, "extra_data": _HEX_0X}))}),
        record({"decrypted_value": _HEX_0X, "signatures": array(_HEX_0X), "extra_data": _HEX_0X}),
        record({"handles": array(_HEX_0X), "signatures": array(_HEX_0X)}),
    ],
}
_STATUS: Final[Schema] = {"type": "string", "enum": [status.value for status in Status]}
_KIND: Final[Schema] = {"type": "string", "enum": [kind.slug for kind in REQUEST_KINDS]}

ANSWERS: Final[dict[str, Schema]] = {
    "Accepted": record({"status": _one("queued"), "requestId": UUID, "result": record({"jobId": UUID})}),
    "Pending": record({"status": _one("queued"), "requestId": UUID}),
    "Failed": optional(record({"status": _one("failed"), "requestId": UUID, "error": _ERROR}), "requestId"),
    "InputProofResult": _succeeded(_PROOF),
    "PublicDecryptResult": _succeeded(
        record({"decryptedValue": _BARE, "signatures": array(_BARE), "extraData": _HEX_0X})
    ),
    "UserDecryptResult": _succeeded(record({"result": array(_SHARE)})),
    "KeyUrl": record(
        {
            "status": _one("succeeded"),
            "response": record({"fheKeyInfo": array(record({"fhePublicKey": _KEY}), 1), "crs": record({"2048": _KEY})}),
        }
    ),
    "Job": record(
        {
            "ext_job_id": UUID,
            "status": _STATUS,
            "readiness_queue_size": COUNT,
            "tx_queue_size": {**COUNT, "maximum": 20_000},
            "accepted": nullable({"type": "boolean"}),
            "result": _ROW_RESULT,
        }
    ),
    "Row": record(
        {
            "ext_job_id": UUID,
            "kind": _KIND,
            "status": _STATUS,
            "created_at": TIME,
            "updated_at": TIME,
            "err_label": nullable(TEXT),
            "err_reason": nullable(TEXT),
            "gw_reference_id": nullable(_HEX_0X),
            "gw_req_tx_hash": nullable(_HEX_0X),
            "gw_response_tx_hash": nullable(_HEX_0X),
            "queue_position": nullable(COUNT),
            "readiness_queue_size": nullable(COUNT),
            "tx_queue_size": nullable(COUNT),
            "accepted": nullable({"type": "boolean"}),
            "result": _ROW_RESULT,
        }
    ),
    "Timeline": record(
        {
            "ext_job_id": UUID,
            "kind": _KIND,
            "status": _STATUS,
            "transitions": array(
                record(
                    {
                        "verb": {"type": "string", "enum": [verb.value for verb in Verb]},
                        "from_status": nullable(TEXT),
                        "to_status": TEXT,
                        "actor": TEXT,
                        "tx_hash": nullable(_HEX_0X),
                        "at": TIME,
                    }
                )
            ),
        }
    ),
    "Problem": optional(
        record(
            {
                "type": {"type": "string", "format": "uri"},
                "title": TEXT,
                "status": {"type": "integer"},
                "detail": TEXT,
                "label": TEXT,
                "errors": _DETAILS,
                "request_id": TEXT,
            },
            description="RFC 9457 problem details",
        ),
        "errors",
        "request_id",
    ),
}


def ref(name: str) -> dict[str, Any]:
    """A reference to a component schema."""
    return {"$ref": f"#/components/schemas/{name}"}
