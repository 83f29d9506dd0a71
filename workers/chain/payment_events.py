"""Events of EIP-3009 tokens: what they must look like, and which Transfer belongs to which authorization.

A token is somebody else's contract: a log that carries one of these topics in another shape (an ERC-721 Transfer, an authorization whose
nonce is not indexed) is no event of ours and is passed over. Of the Transfers only the one counts that directly follows an
AuthorizationUsed among these events of the same token in the same transaction, and moves money of its authorizer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from workers.chain.abi_reader import WORD, MalformedAbi, word

USED: Final = "AuthorizationUsed(address,bytes32)"
CANCELED: Final = "AuthorizationCanceled(address,bytes32)"
TRANSFER: Final = "Transfer(address,address,uint256)"
_TOPICS: Final = 3
_PAD: Final = bytes(12)


@dataclass(frozen=True, slots=True)
class AuthorizationUsed:
    """The authorization `ref` (the EIP-3009 nonce) of this 20-byte authorizer was executed."""

    ref: bytes
    authorizer: bytes


@dataclass(frozen=True, slots=True)
class AuthorizationCanceled:
    """The authorizer made `ref` unusable before anybody executed it."""

    ref: bytes
    authorizer: bytes


@dataclass(frozen=True, slots=True)
class PaymentTransferred:
    """The money that moved with the authorization `ref`: token units from payer to payee (20 bytes each)."""

    ref: bytes
    payer: bytes
    payee: bytes
    amount: int


PaymentEvent: TypeAlias = AuthorizationUsed | AuthorizationCanceled | PaymentTransferred


def fits(topics: Sequence[bytes], body_length: int, *, transfer: bool) -> bool:
    """Whether a log has the shape of its event: two indexed words, addresses padded with zeros, one word of data or none."""
    if len(topics) != _TOPICS or body_length != (WORD if transfer else 0):
        return False
    addresses = topics[1:] if transfer else topics[1:2]
    return all(one.startswith(_PAD) for one in addresses)


def sender_of(payload: bytes) -> bytes:
    """The first indexed address of a stored payload: the authorizer, or the payer of a Transfer."""
    return payload[1 + WORD + len(_PAD) : 1 + 2 * WORD]


def authorization(payload: bytes) -> tuple[bytes, bytes]:
    """(ref, authorizer) of a stored AuthorizationUsed or AuthorizationCanceled. Raises MalformedAbi."""
    topics, _ = _parts(payload, transfer=False)
    return topics[2], topics[1][len(_PAD) :]


def transferred(payload: bytes, ref: bytes | None) -> PaymentTransferred:
    """The typed value of a stored Transfer, whose reference stands beside it. Raises MalformedAbi."""
    if ref is None:
        raise MalformedAbi("a transfer without the reference of its authorization")
    topics, body = _parts(payload, transfer=True)
    return PaymentTransferred(ref, topics[1][len(_PAD) :], topics[2][len(_PAD) :], word(body, 0))


def _parts(payload: bytes, *, transfer: bool) -> tuple[list[bytes], bytes]:
    count = payload[0] if payload else 0
    start = 1 + count * WORD
    topics = [payload[1 + n * WORD : 1 + (n + 1) * WORD] for n in range(count)]
    if len(payload) < start or not fits(topics, len(payload) - start, transfer=transfer):
        raise MalformedAbi("not the shape of a payment event")
    return topics, payload[start:]
