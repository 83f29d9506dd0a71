"""Schemas of the request bodies (fhevm_http 6), as OpenAPI 3.0 dictionaries."""

from __future__ import annotations

from typing import Any, Final

from requests_app.api import forms

Schema = dict[str, Any]


def _text(pattern: str, description: str, example: str, **more: Any) -> Schema:
    return {"type": "string", "pattern": pattern, "description": description, "example": example, **more}


ADDRESS: Final = _text("^0x[0-9a-fA-F]{40}$", "20 bytes; the checksum is not verified", "0x" + "11" * 20)
EXAMPLE_HANDLE: Final = "0x000000000000000000000000000000000000000001ff0000000000001f490400"
HANDLE: Final = _text(
    "^0x[0-9a-fA-F]{64}$", "A ciphertext handle; bytes 22 to 29 are its host chain id", EXAMPLE_HANDLE
)
BARE_HEX: Final = _text("^([0-9a-fA-F]{2})+$", "Hex without 0x", "abcd")
PREFIXED_HEX: Final = _text("^0x([0-9a-fA-F]{2})*$", "Hex with 0x", "0xabcd")
SIGNATURE: Final = _text("^[0-9a-fA-F]{130}$", "65 bytes without 0x", "11" * 65)
EXTRA_DATA: Final = _text(
    "^(0x00|0x0107[0-9a-fA-F]{62}|0x0207[0-9a-fA-F]{62}08[0-9a-fA-F]{62})$",
    "Version 0, or 1 with a KMS context id, or 2 with context and epoch id",
    "0x00",
)
TIMESTAMP: Final = _text(
    "^1[0-9]{9}$",
    "Seconds since 1970 in decimal, not in the future (other spellings of the number are accepted)",
    "1700000000",
)
CHAIN_ID: Final[Schema] = {
    "oneOf": [
        {"type": "string", "pattern": "^([0-9]{1,19}|0x[0-9a-fA-F]{1,16})$", "example": "8009"},
        {"type": "integer", "minimum": 0, "maximum": 2**63 - 1},
    ],
    "description": "A u64: decimal or 0x hex text, or a number",
}


def record(properties: dict[str, Schema], *, closed: bool = False, description: str = "") -> Schema:
    """An object whose properties are all required."""
    schema: Schema = {"type": "object", "properties": properties, "required": list(properties)}
    if closed:
        schema["additionalProperties"] = False
    if description:
        schema["description"] = description
    return schema


def array(items: Schema, least: int = 0) -> Schema:
    """An array of one schema."""
    return {"type": "array", "items": items, **({"minItems": least} if least else {})}


_PAIRS: Final = array(record({"handle": HANDLE, "contractAddress": ADDRESS}), 1)
_DAYS: Final = _text("^[0-9]{1,9}$", "Days in decimal; the gateway contract wants 1 to 365", "10")
_SECONDS: Final = _text("^[0-9]{1,18}$", "Seconds in decimal", "8640000000")

REQUESTS: Final[dict[str, Schema]] = {
    "InputProofRequest": record(
        {
            "contractChainId": CHAIN_ID,
            "contractAddress": ADDRESS,
            "userAddress": ADDRESS,
            "ciphertextWithInputVerification": BARE_HEX,
            "extraData": {"type": "string", "enum": ["0x00"]},
        }
    ),
    "PublicDecryptRequest": record({"ciphertextHandles": array(HANDLE, 1), "extraData": EXTRA_DATA}),
    "UserDecryptRequest": record(
        {
            "handleContractPairs": _PAIRS,
            "requestValidity": record({"startTimestamp": TIMESTAMP, "durationDays": _DAYS}),
            "contractsChainId": CHAIN_ID,
            "contractAddresses": array(ADDRESS, 1),
            "userAddress": ADDRESS,
            "signature": SIGNATURE,
            "publicKey": BARE_HEX,
            "extraData": EXTRA_DATA,
        },
        description="Signed by the user.",
    ),
    "DelegatedUserDecryptRequest": record(
        {
            "handleContractPairs": _PAIRS,
            "contractsChainId": CHAIN_ID,
            "contractAddresses": array(ADDRESS, 1),
            "delegatorAddress": ADDRESS,
            "delegateAddress": ADDRESS,
            "startTimestamp": TIMESTAMP,
            "durationDays": _DAYS,
            "signature": SIGNATURE,
            "publicKey": BARE_HEX,
            "extraData": EXTRA_DATA,
        },
        description="Signed by the delegate.",
    ),
    "UnifiedUserDecryptRequest": record(
        {
            "attestationType": {"type": "string", "enum": [forms.ATTESTATION_TYPE]},
            "attestedPayload": record(
                {
                    "version": {"type": "string", "enum": [forms.PAYLOAD_VERSION]},
                    "type": {"type": "string", "enum": [forms.PAYLOAD_TYPE]},
                    "handles": array(
                        record({"ctHandle": HANDLE, "contractAddress": ADDRESS, "ownerAddress": ADDRESS}), 1
                    ),
                    "userAddress": ADDRESS,
                    "allowedContracts": array(ADDRESS),
                    "requestValidity": record({"startTimestamp": TIMESTAMP, "durationSeconds": _SECONDS}),
                    "publicKey": _text("^0x([0-9a-fA-F]{2})+$", "Hex with 0x", "0xabcd"),
                    "extraData": EXTRA_DATA,
                },
                closed=True,
            ),
            "signature": PREFIXED_HEX,
        },
        closed=True,
        description="Typed attestation envelope; an externally owned account or a wallet contract signs (ERC-1271).",
    ),
}
