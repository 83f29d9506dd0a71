"""EIP-712 structs that users, KMS nodes and coprocessors sign, hashed and signed by test keys.

Written apart from the product's own hashing, so that the two check each other. Sources: EIP-712, EIP-191, and the
struct list of the gateway contracts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import coincurve
import sha3

DIRECT: Final = (
    "UserDecryptRequestVerification(bytes publicKey,address[] contractAddresses,"
    "uint256 startTimestamp,uint256 durationDays,bytes extraData)"
)
DELEGATED: Final = (
    "DelegatedUserDecryptRequestVerification(bytes publicKey,address[] contractAddresses,address delegatorAddress,"
    "uint256 startTimestamp,uint256 durationDays,bytes extraData)"
)
UNIFIED: Final = (
    "UserDecryptRequestVerification(address userAddress,bytes publicKey,address[] allowedContracts,"
    "uint256 startTimestamp,uint256 durationSeconds,bytes extraData)"
)
PUBLIC: Final = "PublicDecryptVerification(bytes32[] ctHandles,bytes decryptedResult,bytes extraData)"
SHARE: Final = (
    "UserDecryptResponseVerification(bytes publicKey,bytes32[] ctHandles,bytes userDecryptedShare,bytes extraData)"
)
CIPHERTEXT: Final = (
    "CiphertextVerification(bytes32[] ctHandles,address userAddress,address contractAddress,"
    "uint256 contractChainId,bytes extraData)"
)
_DOMAIN: Final = "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"

Member = int | bytes | str | Sequence[bytes] | Sequence[str]


def keccak256(data: bytes) -> bytes:
    """Keccak-256 as Ethereum uses it."""
    return bytes(sha3.keccak_256(data).digest())


@lru_cache(maxsize=64)
def domain(name: str, chain_id: int, contract: str, version: str = "1") -> bytes:
    """The domain separator."""
    words = (keccak256(_DOMAIN.encode()), keccak256(name.encode()), keccak256(version.encode()))
    return keccak256(b"".join(words) + chain_id.to_bytes(32, "big") + _address(contract))


def digest(separator: bytes, struct: str, *members: Member) -> bytes:
    """What is signed. Members in the struct's order: int for uint256, 0x text for address, bytes for bytes, a list of
    32-byte values or of 0x addresses for the arrays."""
    encoded = b"".join(_member(member) for member in members)
    return keccak256(b"\x19\x01" + separator + keccak256(keccak256(struct.encode()) + encoded))


def sign(key: bytes, message: bytes) -> bytes:
    """A 65-byte signature r, s, v with v of 27 or 28 over a 32-byte digest."""
    raw: bytes = _private(key).sign_recoverable(message, hasher=None)
    return raw[:64] + bytes([raw[64] + 27])


def recover(message: bytes, signature: bytes) -> str | None:
    """The lower-case 0x address that signed, or None for anything that is not a signature."""
    if len(signature) != 65 or signature[64] not in (0, 1, 27, 28):
        return None
    try:
        public = coincurve.PublicKey.from_signature_and_message(
            signature[:64] + bytes([signature[64] % 27]), message, hasher=None
        )
    except Exception:  # coincurve raises a bare Exception for what is no point on the curve
        return None
    return "0x" + keccak256(public.format(compressed=False)[1:])[12:].hex()


def address_of(key: bytes) -> str:
    """The lower-case 0x address of a private key."""
    return "0x" + keccak256(_private(key).public_key.format(compressed=False)[1:])[12:].hex()


@lru_cache(maxsize=128)
def _private(key: bytes) -> coincurve.PrivateKey:
    return coincurve.PrivateKey(key)


def _member(value: Member) -> bytes:
    if isinstance(value, int):
        return value.to_bytes(32, "big")
    if isinstance(value, str):
        return _address(value)
    if isinstance(value, bytes):
        return keccak256(value)
    return keccak256(b"".join(_address(part) if isinstance(part, str) else part for part in value))


def _address(text: str) -> bytes:
    return bytes(12) + bytes.fromhex(text[2:])
