"""EIP-712 digests of the structs that users and payers sign, and recovery of a signer.

Sources: EIP-712; EIP-3009; structs and domains of fhevm_http 13.2 and 13.3. Addresses are 20 bytes, digests and hashes
32 bytes. Pure computation: no database, no network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import coincurve
import sha3

DOMAIN_TYPE: Final = b"EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"
DIRECT_TYPE: Final = (
    b"UserDecryptRequestVerification(bytes publicKey,address[] contractAddresses,"
    b"uint256 startTimestamp,uint256 durationDays,bytes extraData)"
)
DELEGATED_TYPE: Final = (
    b"DelegatedUserDecryptRequestVerification(bytes publicKey,address[] contractAddresses,address delegatorAddress,"
    b"uint256 startTimestamp,uint256 durationDays,bytes extraData)"
)
UNIFIED_TYPE: Final = (
    b"UserDecryptRequestVerification(address userAddress,bytes publicKey,address[] allowedContracts,"
    b"uint256 startTimestamp,uint256 durationSeconds,bytes extraData)"
)
TRANSFER_TYPE: Final = b"TransferWithAuthorization(address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce)"

SIGNATURE_BYTES: Final = 65
_HALF_ORDER: Final = 0x7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF5D576E7357A4501DDFE92F46681B20A0  # of secp256k1


def keccak256(data: bytes) -> bytes:
    """Keccak-256 with Ethereum's padding: 32 bytes."""
    return bytes(sha3.keccak_256(data).digest())


@dataclass(frozen=True, slots=True)
class Domain:
    """An EIP-712 domain without salt; `contract` is 20 bytes."""

    name: str
    chain_id: int
    contract: bytes
    version: str = "1"

    def separator(self) -> bytes:
        """The 32-byte domain separator."""
        return _separator(self)

    def digest(self, struct_hash: bytes) -> bytes:
        """What is signed for a struct hash: 32 bytes."""
        return keccak256(b"\x19\x01" + self.separator() + struct_hash)


@lru_cache(maxsize=64)
def _separator(domain: Domain) -> bytes:
    return keccak256(
        keccak256(DOMAIN_TYPE)
        + keccak256(domain.name.encode())
        + keccak256(domain.version.encode())
        + _word(domain.chain_id)
        + _padded(domain.contract)
    )


def direct_hash(public_key: bytes, contracts: Sequence[bytes], start: int, days: int, extra: bytes) -> bytes:
    """Struct hash of a v2 direct user decrypt; `start` in seconds since 1970."""
    return keccak256(
        keccak256(DIRECT_TYPE)
        + keccak256(public_key)
        + _addresses(contracts)
        + _word(start)
        + _word(days)
        + keccak256(extra)
    )


def delegated_hash(
    public_key: bytes, contracts: Sequence[bytes], delegator: bytes, start: int, days: int, extra: bytes
) -> bytes:
    """Struct hash of a v2 delegated user decrypt, which the delegate signs."""
    return keccak256(
        keccak256(DELEGATED_TYPE)
        + keccak256(public_key)
        + _addresses(contracts)
        + _padded(delegator)
        + _word(start)
        + _word(days)
        + keccak256(extra)
    )


def unified_hash(
    user: bytes, public_key: bytes, contracts: Sequence[bytes], start: int, seconds: int, extra: bytes
) -> bytes:
    """Struct hash of a v3 unified user decrypt. Handles and owners are not part of it."""
    return keccak256(
        keccak256(UNIFIED_TYPE)
        + _padded(user)
        + keccak256(public_key)
        + _addresses(contracts)
        + _word(start)
        + _word(seconds)
        + keccak256(extra)
    )


def transfer_hash(payer: bytes, payee: bytes, amount: int, after: int, before: int, nonce: bytes) -> bytes:
    """Struct hash of an EIP-3009 transfer; the window is (after, before), both excluded, in seconds since 1970."""
    return keccak256(
        keccak256(TRANSFER_TYPE)
        + _padded(payer)
        + _padded(payee)
        + _word(amount)
        + _word(after)
        + _word(before)
        + nonce
    )


def is_canonical(signature: bytes) -> bool:
    """Whether the 65 bytes are the one form that token contracts take: v of 27 or 28 and s in the lower half (EIP-2)."""
    if len(signature) != SIGNATURE_BYTES or signature[64] not in (27, 28):
        return False
    return 0 < int.from_bytes(signature[32:64], "big") <= _HALF_ORDER


def recover(digest: bytes, signature: bytes) -> bytes | None:
    """The 20-byte address that signed `digest`, or None when the 65 bytes (r, s, v in 0, 1, 27, 28) name nobody."""
    if len(signature) != SIGNATURE_BYTES:
        return None
    parity = signature[64] - 27 if signature[64] >= 27 else signature[64]
    if parity not in (0, 1):
        return None
    try:
        key = coincurve.PublicKey.from_signature_and_message(signature[:64] + bytes([parity]), digest, hasher=None)
    except Exception:
        return None
    return keccak256(key.format(compressed=False)[1:])[12:]


def _word(value: int) -> bytes:
    return value.to_bytes(32, "big")


def _padded(address: bytes) -> bytes:
    return address.rjust(32, b"\0")


def _addresses(addresses: Sequence[bytes]) -> bytes:
    return keccak256(b"".join(_padded(address) for address in addresses))
