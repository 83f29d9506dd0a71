"""Content hashes of requests (`int_job_id`, SHA-256, 32 bytes) and the client's ids.

The hash is a plain concatenation of labels and raw bytes, as the fhEVM relayer computes it (reference: HTTP facts 8.1),
so that a database shared with it deduplicates alike. Signature and validity window are not part of the content.
Input is the canonical payload: hex in lower case with 0x, integers as decimal text.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final, assert_never
from uuid import UUID

from requests_app.states import Kind, ReqType

Body = Mapping[str, Any]
REF_TAG: Final = "stablecoin-settlement-engine/payment-ref/v1"


def content_hash(kind: Kind, req_type: ReqType | None, body: Body) -> bytes:
    """The 32-byte content hash of a canonical payload."""
    match kind:
        case Kind.INPUT_PROOF:
            parts = _input_proof(body)
        case Kind.PUBLIC_DECRYPT:
            parts = [b"ct_handles:", *_each(body["handles"]), b"extra_data:", _raw(body["extra_data"])]
        case Kind.USER_DECRYPT:
            parts = _unified(body) if req_type is ReqType.UNIFIED else _typed(body)
        case Kind.PAYMENT:
            raise ValueError("a payment is identified by its payment_ref")
        case _:
            assert_never(kind)
    return hashlib.sha256(b"".join(parts)).digest()


def payment_ref(intent: str, chain: str, token: str, payer: str, merchant: str, amount: int) -> bytes:
    """The 32-byte PaymentRef of an intent's terms, as written: the texts are not normalised (reference queue_settle 1.1).

    It is the nonce of the payer's EIP-3009 authorization and names the payment in job, ledger, log and chain.
    """
    parts = (REF_TAG, intent, chain, token, payer, merchant, str(amount))
    return hashlib.sha256(b"".join(length_prefixed(part.encode()) for part in parts)).digest()


_ONE_BYTE: Final = tuple(bytes((value,)) for value in range(0x80))


def length_prefixed(data: bytes) -> bytes:
    """The bytes behind their length as an unsigned LEB128 varint."""
    size = len(data)
    return (_ONE_BYTE[size] if size <= 0x7F else varint(size)) + data


def varint(value: int) -> bytes:
    """Unsigned LEB128."""
    if 0 <= value <= 0x7F:
        return _ONE_BYTE[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _raw(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("0x"))


def _each(texts: Iterable[str]) -> list[bytes]:
    return [_raw(text) for text in texts]


def _chain(decimal: str) -> bytes:
    return int(decimal).to_bytes(8, "big")


def _input_proof(body: Body) -> list[bytes]:
    return [
        b"contract_chain_id:",
        _chain(body["contract_chain_id"]),
        b"contract_address:",
        _raw(body["contract"]),
        b"user_address:",
        _raw(body["user"]),
        b"ciphertext_with_zk_proof:",
        _raw(body["ciphertext"]),
        b"extra_data:",
        _raw(body["extra_data"]),
    ]


def _typed(body: Body) -> list[bytes]:
    if body["type"] == ReqType.DELEGATED:
        parties = [b"delegator_address:", _raw(body["delegator"]), b"delegate_address:", _raw(body["delegate"])]
    else:
        parties = [b"user_address:", _raw(body["user"])]
    return [
        b"contract_addresses:",
        *_each(body["contracts"]),
        b"contracts_chain_id:",
        _chain(body["contracts_chain_id"]),
        b"ct_handle_contract_pairs:",
        *(_raw(pair["handle"]) + _raw(pair["contract"]) for pair in body["handles"]),
        b"extra_data:",
        _raw(body["extra_data"]),
        b"public_key:",
        _raw(body["public_key"]),
        *parties,
    ]


def _unified(body: Body) -> list[bytes]:
    return [
        b"variant:eip712_unified_v1:",
        b"allowed_contracts:",
        *_each(body["allowed_contracts"]),
        b"handles:",
        *(_raw(entry["handle"]) + _raw(entry["contract"]) + _raw(entry["owner"]) for entry in body["handles"]),
        b"extra_data:",
        _raw(body["extra_data"]),
        b"public_key:",
        _raw(body["public_key"]),
        b"user_address:",
        _raw(body["user"]),
    ]


def uuid7() -> UUID:
    """A time-ordered UUID (RFC 9562, version 7)."""
    raw = bytearray(int(time.time() * 1000).to_bytes(6, "big") + os.urandom(10))
    raw[6] = raw[6] & 0x0F | 0x70
    raw[8] = raw[8] & 0x3F | 0x80
    return UUID(bytes=bytes(raw))
