"""Custom errors of the contracts, by selector: what they mean to a client (fhevm_internals 4.7, labels fhevm_http 3).

A test derives every selector from its signature.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from eth_abi.abi import decode
from eth_abi.exceptions import DecodingError
from eth_abi.grammar import TupleType, parse

from workers.chain.hexdata import MalformedHex, data
from workers.chain.keccak import selector
from workers.chain.rpc_errors import RpcError

INVALID: Final = (400, "validation_failed")
SIGNATURE: Final = ("signature", "Signature is invalid")


@dataclass(frozen=True, slots=True)
class RevertRule:
    """The meaning of one custom error. `field` is the request field to blame (400 only).

    `transient` True: trying again later, unchanged, may succeed. `operator` True: it is ours to repair, raise an alert.
    """

    signature: str
    http_status: int
    label: str
    message: str
    field: str | None = None
    transient: bool = False
    operator: bool = False


@dataclass(frozen=True, slots=True)
class Revert:
    """A decoded revert. Unknown ones keep selector (4 bytes, or fewer when the node gave fewer) and data."""

    selector: bytes
    name: str
    http_status: int
    label: str
    message: str
    field: str | None
    transient: bool
    operator: bool
    arguments: tuple[Any, ...]
    data: bytes

    @property
    def text(self) -> str:
        """What is stored and logged: the name with its selector, for example `EnforcedPause() 0xd93c0665`."""
        return f"{self.name} 0x{self.selector.hex()}" if self.selector else self.name


def _invalid(signature: str, field: str, issue: str) -> RevertRule:
    return RevertRule(signature, *INVALID, issue, field)


_MATERIAL: Final = "(bytes32,uint256,bytes32,address[])"

RULES: Final[tuple[RevertRule, ...]] = (
    RevertRule("EnforcedPause()", 503, "protocol_paused", "The gateway contract is paused", operator=True),
    RevertRule(
        "ERC20InsufficientBalance(address,uint256,uint256)",
        503,
        "insufficient_balance",
        "The relayer has not enough fee tokens",
        operator=True,
    ),
    RevertRule(
        "ERC20InsufficientAllowance(address,uint256,uint256)",
        503,
        "insufficient_allowance",
        "The relayer has not approved enough fee tokens",
        operator=True,
    ),
    _invalid("InvalidUserSignature(bytes)", *SIGNATURE),
    _invalid("ECDSAInvalidSignature()", *SIGNATURE),
    _invalid("ECDSAInvalidSignatureLength(uint256)", *SIGNATURE),
    _invalid("ECDSAInvalidSignatureS(bytes32)", *SIGNATURE),
    RevertRule(
        "CiphertextMaterialNotFound(bytes32)",
        503,
        "readiness_check_timed_out",
        "Ciphertext not ready for decryption on the gateway chain",
        transient=True,
    ),
    _invalid("HostChainNotRegistered(uint256)", "handles", "The gateway does not know the host chain of the handles"),
    _invalid("HostChainDisabled(uint256)", "handles", "The gateway has disabled the host chain of the handles"),
    _invalid("InvalidKmsContext(uint256)", "extraData", "Names no valid KMS context"),
    _invalid(
        "UserDecryptionRequestExpired(uint256,(uint256,uint256))", "requestValidity", "The permission has expired"
    ),
    _invalid(
        "UserDecryptionRequestExpiredSeconds(uint256,(uint256,uint256))",
        "requestValidity",
        "The permission has expired",
    ),
    _invalid("StartTimestampInFuture(uint256,uint256)", "requestValidity", "Starts in the future"),
    _invalid("MaxDurationDaysExceeded(uint256,uint256)", "requestValidity", "Lasts longer than allowed"),
    _invalid("MaxDurationSecondsExceeded(uint256,uint256)", "requestValidity", "Lasts longer than allowed"),
    _invalid("InvalidNullDurationDays()", "requestValidity", "Lasts zero days"),
    _invalid(
        "ContractNotInContractAddresses(address,address[])", "contractAddresses", "Lacks the contract of a handle"
    ),
    _invalid("UserAddressInContractAddresses(address,address[])", "contractAddresses", "Contains the user address"),
    _invalid(
        "DelegatorAddressInContractAddresses(address,address[])", "contractAddresses", "Contains the delegator address"
    ),
    _invalid(
        "CtHandleChainIdDiffersFromContractChainId(bytes32,uint256,uint256)",
        "contractsChainId",
        "Differs from the host chain of a handle",
    ),
    _invalid("MaxDecryptionRequestBitSizeExceeded(uint256,uint256)", "handles", "Hold more than 2048 plaintext bits"),
    _invalid("EmptyCtHandles()", "handles", "Must not be empty"),
    _invalid("EmptyHandles()", "handles", "Must not be empty"),
    _invalid(f"DifferentKeyIdsNotAllowed({_MATERIAL},{_MATERIAL})", "handles", "Belong to different keys"),
    _invalid("InvalidFHEType(uint8)", "handles", "Have an invalid FHE type"),
    _invalid("UnsupportedFHEType(uint8)", "handles", "Have an unsupported FHE type"),
    _invalid("InvalidExtraDataLength(uint256,uint256)", "extraData", "Has an invalid length"),
    _invalid("UnsupportedExtraDataVersion(uint8)", "extraData", "Has an unsupported version"),
    _invalid("InvalidNullContextId()", "extraData", "Names KMS context 0"),
    _invalid("DecryptionNotRequested(uint256)", "decryptionId", "Was never requested"),
    _invalid("VerifyProofNotRequested(uint256)", "zkProofId", "Was never requested"),
)
BY_SELECTOR: Final[dict[bytes, RevertRule]] = {selector(rule.signature): rule for rule in RULES}
ERROR_STRING: Final = selector("Error(string)")
PANIC: Final = selector("Panic(uint256)")
_CUSTOM_ERROR_TEXT: Final = re.compile(r"custom error '?(0x[0-9a-fA-F]{8}(?:[0-9a-fA-F]{2})*)")


def decode_revert(revert_data: bytes) -> Revert:
    """The meaning of ABI-encoded revert data. Never raises: unknown data is a 500 that keeps selector and bytes."""
    head = revert_data[:4]
    rule = BY_SELECTOR.get(head)
    if rule is None:
        name, message = _plain(head, revert_data[4:])
        return Revert(head, name, 500, "internal_server_error", message, None, False, False, (), revert_data)
    name, _, types = rule.signature.partition("(")
    return Revert(
        head,
        f"{name}()" if types == ")" else name,
        rule.http_status,
        rule.label,
        rule.message,
        rule.field,
        rule.transient,
        rule.operator,
        _arguments(types[:-1], revert_data[4:]),
        revert_data,
    )


def revert_of(error: RpcError) -> Revert | None:
    """The revert that an RPC error reports, from its structured data, or from `custom error 0x..` in its text.

    None when the error is no revert at all; a revert without data is an unknown revert with the node's text.
    """
    found = error.revert_data
    if found is None and (match := _CUSTOM_ERROR_TEXT.search(error.message)):
        found = _text_data(match.group(1))
    if found is not None and is_revert(error):
        return decode_revert(found)
    if is_revert(error):
        return Revert(b"", "unknown revert", 500, "internal_server_error", error.message, None, False, False, (), b"")
    return None


def is_revert(error: RpcError) -> bool:
    """Whether the node executed the call and the EVM reverted (geth 3, OpenEthereum -32015, or the message)."""
    return error.code in (3, -32015) or "revert" in error.message.lower()


def _text_data(text: str) -> bytes | None:
    try:
        return data(text)
    except MalformedHex:
        return None


def _arguments(types: str, body: bytes) -> tuple[Any, ...]:
    """Decoded arguments, or () when they do not read: the selector alone already says what happened."""
    parsed = parse(f"({types})") if types else None
    if not isinstance(parsed, TupleType):
        return ()
    try:
        return decode([component.to_type_str() for component in parsed.components], body)
    except (DecodingError, OverflowError, ValueError):
        return ()


def _plain(head: bytes, body: bytes) -> tuple[str, str]:
    """(name, message) of Error(string), Panic(uint256) and unknown selectors."""
    if head == ERROR_STRING and (values := _arguments("string", body)):
        return "Error(string)", f"Execution reverted: {values[0]}"[:300]
    if head == PANIC and (values := _arguments("uint256", body)):
        return "Panic(uint256)", f"Execution reverted: panic code 0x{values[0]:02x}"
    return "unknown error", f"Execution reverted with unknown error 0x{head.hex()}"
