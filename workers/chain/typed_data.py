"""EIP-712 digests of the gateway's typed messages, and recovery of the signer (EIP-712, fhevm_http 13.2, 13.3, 19.2).

All of them are signed under the domain {name, version "1", chain id, verifying contract}. For decrypt requests the chain
id is that of the **host** chain of the handles and the contract is the **gateway's** Decryption.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import coincurve

from workers.chain.keccak import keccak, topic
from workers.chain.signer import address_of

DOMAIN_TYPE: Final = topic("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)")
DIRECT_TYPE: Final = topic(
    "UserDecryptRequestVerification(bytes publicKey,address[] contractAddresses,uint256 startTimestamp,"
    "uint256 durationDays,bytes extraData)"
)
DELEGATED_TYPE: Final = topic(
    "DelegatedUserDecryptRequestVerification(bytes publicKey,address[] contractAddresses,address delegatorAddress,"
    "uint256 startTimestamp,uint256 durationDays,bytes extraData)"
)
UNIFIED_TYPE: Final = topic(
    "UserDecryptRequestVerification(address userAddress,bytes publicKey,address[] allowedContracts,"
    "uint256 startTimestamp,uint256 durationSeconds,bytes extraData)"
)
PUBLIC_TYPE: Final = topic("PublicDecryptVerification(bytes32[] ctHandles,bytes decryptedResult,bytes extraData)")
CIPHERTEXT_TYPE: Final = topic(
    "CiphertextVerification(bytes32[] ctHandles,address userAddress,address contractAddress,uint256 contractChainId,"
    "bytes extraData)"
)
DECRYPTION: Final = "Decryption"
INPUT_VERIFICATION: Final = "InputVerification"
PARITY: Final = {0: 0, 1: 1, 27: 0, 28: 1}


class InvalidSignature(ValueError):
    """The bytes are no ECDSA signature from which a signer can be recovered."""


@lru_cache(maxsize=64)
def domain_separator(name: str, chain_id: int, verifying_contract: bytes) -> bytes:
    """The 32-byte EIP-712 domain separator (version "1", no salt)."""
    return keccak(
        DOMAIN_TYPE + keccak(name.encode()) + keccak(b"1") + chain_id.to_bytes(32, "big") + _address(verifying_contract)
    )


def direct_digest(
    chain_id: int,
    decryption: bytes,
    *,
    public_key: bytes,
    contracts: Sequence[bytes],
    start_timestamp: int,
    duration_days: int,
    extra_data: bytes,
) -> bytes:
    """What the user of a v2 direct user decrypt signs; times in Unix seconds and days."""
    body = DIRECT_TYPE + keccak(public_key) + _addresses(contracts)
    body += _number(start_timestamp) + _number(duration_days) + keccak(extra_data)
    return _digest(domain_separator(DECRYPTION, chain_id, decryption), body)


def delegated_digest(
    chain_id: int,
    decryption: bytes,
    *,
    public_key: bytes,
    contracts: Sequence[bytes],
    delegator: bytes,
    start_timestamp: int,
    duration_days: int,
    extra_data: bytes,
) -> bytes:
    """What the **delegate** of a v2 delegated user decrypt signs."""
    body = DELEGATED_TYPE + keccak(public_key) + _addresses(contracts) + _address(delegator)
    body += _number(start_timestamp) + _number(duration_days) + keccak(extra_data)
    return _digest(domain_separator(DECRYPTION, chain_id, decryption), body)


def unified_digest(
    chain_id: int,
    decryption: bytes,
    *,
    user: bytes,
    public_key: bytes,
    allowed_contracts: Sequence[bytes],
    start_timestamp: int,
    duration_seconds: int,
    extra_data: bytes,
) -> bytes:
    """What the user of a v3 user decrypt signs. Handles and owners are not part of it."""
    body = UNIFIED_TYPE + _address(user) + keccak(public_key) + _addresses(allowed_contracts)
    body += _number(start_timestamp) + _number(duration_seconds) + keccak(extra_data)
    return _digest(domain_separator(DECRYPTION, chain_id, decryption), body)


def public_decrypt_digest(
    gateway_chain_id: int, decryption: bytes, *, handles: Sequence[bytes], result: bytes, extra_data: bytes
) -> bytes:
    """What each KMS node signs over a public decryption (extraData 0x00 of a request is signed as empty bytes)."""
    body = PUBLIC_TYPE + keccak(b"".join(handles)) + keccak(result) + keccak(extra_data)
    return _digest(domain_separator(DECRYPTION, gateway_chain_id, decryption), body)


def ciphertext_digest(
    gateway_chain_id: int,
    input_verification: bytes,
    *,
    handles: Sequence[bytes],
    user: bytes,
    contract: bytes,
    contract_chain_id: int,
    extra_data: bytes,
) -> bytes:
    """What each coprocessor signs over the handles of a verified input proof."""
    body = CIPHERTEXT_TYPE + keccak(b"".join(handles)) + _address(user) + _address(contract)
    body += _number(contract_chain_id) + keccak(extra_data)
    return _digest(domain_separator(INPUT_VERIFICATION, gateway_chain_id, input_verification), body)


def recover(digest: bytes, signature: bytes) -> bytes:
    """The 20-byte address that made a 65-byte signature (v of 0, 1, 27 or 28) over a 32-byte digest.

    Raises InvalidSignature when the bytes are no signature; whether the address is the right one is the caller's question.
    """
    if len(signature) != 65 or signature[64] not in PARITY:
        raise InvalidSignature("a signature has 65 bytes and ends with 0, 1, 27 or 28")
    try:
        key = coincurve.PublicKey.from_signature_and_message(
            signature[:64] + bytes([PARITY[signature[64]]]), digest, hasher=None
        )
    except Exception:
        # coincurve raises bare Exception for bytes that lie outside the curve.
        raise InvalidSignature("no public key belongs to this signature") from None
    return address_of(key)


def _digest(separator: bytes, body: bytes) -> bytes:
    return keccak(b"\x19\x01" + separator + keccak(body))


def _address(raw: bytes) -> bytes:
    if len(raw) != 20:
        raise ValueError("an address has 20 bytes")
    return raw.rjust(32, b"\0")


def _addresses(items: Sequence[bytes]) -> bytes:
    return keccak(b"".join(_address(item) for item in items))


def _number(number: int) -> bytes:
    return number.to_bytes(32, "big")
