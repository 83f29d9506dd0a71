"""Calldata of the gateway requests and their readiness checks, from the canonical request bodies (fhevm_internals 4.1).

The encoders are built once from the canonical type strings; the selectors are derived from the same strings, and a test
compares them with the reference and with the compiled contracts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from eth_abi.exceptions import EncodingError
from eth_abi.registry import registry

from requests_app.config import GatewayConfig, config
from requests_app.errors import RelayerError
from requests_app.states import Kind, ReqType
from workers.chain.abi_reader import word
from workers.chain.hexdata import data
from workers.chain.keccak import selector

Body = Mapping[str, Any]


class Unencodable(RelayerError):
    """A stored request body does not fit the contract's ABI."""


class Function:
    """A contract function: canonical name and argument types, selector, encoder."""

    def __init__(self, name: str, *types: str) -> None:
        self.name = name
        self.signature = f"{name}({','.join(types)})"
        self.selector = selector(self.signature)
        self._encode: Callable[[Sequence[object]], bytes] = registry.get_tuple_encoder(*types)

    def encode(self, *values: object) -> bytes:
        """Selector and ABI-encoded arguments. Raises Unencodable when a value does not fit its type."""
        try:
            return self.selector + self._encode(values)
        except (EncodingError, TypeError, OverflowError) as error:
            raise Unencodable(f"{self.signature}: {type(error).__name__}: {error}"[:300]) from None


VERIFY_PROOF: Final = Function("verifyProofRequest", "uint256", "address", "address", "bytes", "bytes")
PUBLIC_REQUEST: Final = Function("publicDecryptionRequest", "bytes32[]", "bytes")
DIRECT_REQUEST: Final = Function(
    "userDecryptionRequest",
    "(bytes32,address)[]",
    "(uint256,uint256)",
    "(uint256,address[])",
    "address",
    "bytes",
    "bytes",
    "bytes",
)
DELEGATED_REQUEST: Final = Function(
    "delegatedUserDecryptionRequest",
    "(bytes32,address)[]",
    "(uint256,uint256)",
    "(address,address)",
    "(uint256,address[])",
    "bytes",
    "bytes",
    "bytes",
)
UNIFIED_REQUEST: Final = Function(
    "userDecryptionRequest",
    "(bytes32,address,address)[]",
    "address",
    "bytes",
    "address[]",
    "(uint256,uint256)",
    "bytes",
    "bytes",
)
PUBLIC_READY: Final = Function("isPublicDecryptionReady", "bytes32[]", "bytes")
USER_READY: Final = Function("isUserDecryptionReady", "(bytes32,address)[]", "bytes")
IS_DECRYPTION_DONE: Final = Function("isDecryptionDone", "uint256")
IS_PROOF_VERIFIED: Final = Function("isProofVerified", "uint256")
IS_PROOF_REJECTED: Final = Function("isProofRejected", "uint256")
BALANCE_OF: Final = Function("balanceOf", "address")
ALLOWANCE: Final = Function("allowance", "address", "address")


@dataclass(frozen=True, slots=True)
class ContractCall:
    """A call of a contract: 20-byte address and calldata."""

    to: bytes
    data: bytes


def encode_request(
    kind: Kind, req_type: ReqType | str | None, body: Body, gateway: GatewayConfig | None = None
) -> tuple[bytes, bytes]:
    """(20-byte contract address, calldata) of the gateway transaction of one request.

    `body` is the canonical body (hex strings with 0x, integers as decimal strings); `req_type` matters for user decrypts
    only and defaults to the body's own "type". Raises Unencodable for a body that does not fit.
    """
    chain = gateway or config().gateway
    encoder = _encoder(kind, req_type, body)
    try:
        calldata = encoder(body)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise Unencodable(f"{kind.slug} body: {type(error).__name__}: {error}"[:300]) from None
    return (chain.input_verification if kind is Kind.INPUT_PROOF else chain.decryption), calldata


def encode_readiness(kind: Kind, body: Body) -> bytes:
    """Calldata of the gateway view that says whether a decrypt's ciphertexts are there (owners are dropped for v3).

    Raises Unencodable, ValueError for an input proof, which has no readiness.
    """
    if kind is Kind.INPUT_PROOF:
        raise ValueError("an input proof has no readiness check")
    try:
        extra = data(body["extra_data"])
        if kind is Kind.PUBLIC_DECRYPT:
            return PUBLIC_READY.encode([data(handle, 32) for handle in body["handles"]], extra)
        return USER_READY.encode(_pairs(body), extra)
    except (KeyError, TypeError, ValueError) as error:
        raise Unencodable(f"{kind.slug} body: {type(error).__name__}: {error}"[:300]) from None


def decode_bool(answer: bytes) -> bool:
    """A Solidity bool answer. Raises MalformedAbi when it is not at least one word (no code at the address)."""
    return word(answer, 0) != 0


def decode_uint(answer: bytes) -> int:
    """A Solidity uint256 answer. Raises MalformedAbi when it is not at least one word."""
    return word(answer, 0)


def _encoder(kind: Kind, req_type: ReqType | str | None, body: Body) -> Callable[[Body], bytes]:
    if kind is Kind.INPUT_PROOF:
        return _input_proof
    if kind is Kind.PUBLIC_DECRYPT:
        return _public
    try:
        return _USER_FORMS[ReqType(req_type if req_type is not None else body["type"])]
    except (KeyError, ValueError):
        raise Unencodable(f"unknown form of user decrypt {req_type!r}") from None


def _pairs(body: Body) -> list[tuple[bytes, bytes]]:
    return [(data(item["handle"], 32), data(item["contract"], 20)) for item in body["handles"]]


def _direct(body: Body) -> bytes:
    return DIRECT_REQUEST.encode(
        _pairs(body),
        (int(body["start_timestamp"]), int(body["duration_days"])),
        (int(body["contracts_chain_id"]), [data(item, 20) for item in body["contracts"]]),
        data(body["user"], 20),
        data(body["public_key"]),
        data(body["signature"]),
        data(body["extra_data"]),
    )


def _delegated(body: Body) -> bytes:
    return DELEGATED_REQUEST.encode(
        _pairs(body),
        (int(body["start_timestamp"]), int(body["duration_days"])),
        (data(body["delegator"], 20), data(body["delegate"], 20)),
        (int(body["contracts_chain_id"]), [data(item, 20) for item in body["contracts"]]),
        data(body["public_key"]),
        data(body["signature"]),
        data(body["extra_data"]),
    )


def _unified(body: Body) -> bytes:
    handles = [
        (data(item["handle"], 32), data(item["contract"], 20), data(item["owner"], 20)) for item in body["handles"]
    ]
    return UNIFIED_REQUEST.encode(
        handles,
        data(body["user"], 20),
        data(body["public_key"]),
        [data(item, 20) for item in body["allowed_contracts"]],
        (int(body["start_timestamp"]), int(body["duration_seconds"])),
        data(body["signature"]),
        data(body["extra_data"]),
    )


def _public(body: Body) -> bytes:
    return PUBLIC_REQUEST.encode([data(handle, 32) for handle in body["handles"]], data(body["extra_data"]))


def _input_proof(body: Body) -> bytes:
    return VERIFY_PROOF.encode(
        int(body["contract_chain_id"]),
        data(body["contract"], 20),
        data(body["user"], 20),
        data(body["ciphertext"]),
        data(body["extra_data"]),
    )


_USER_FORMS: Final[dict[ReqType, Callable[[Body], bytes]]] = {
    ReqType.DIRECT: _direct,
    ReqType.DELEGATED: _delegated,
    ReqType.UNIFIED: _unified,
}
