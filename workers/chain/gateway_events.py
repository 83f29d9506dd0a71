"""Events of the gateway's two contracts as typed values (fhevm_internals 4.2). References are 32 bytes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PublicDecryptionRequested:
    """The gateway assigned `ref` to a public decrypt request."""

    ref: bytes


@dataclass(frozen=True, slots=True)
class UserDecryptionRequested:
    """The gateway assigned `ref` to a user decrypt request."""

    ref: bytes


@dataclass(frozen=True, slots=True)
class ProofRequested:
    """The gateway assigned `ref` to an input proof."""

    ref: bytes


@dataclass(frozen=True, slots=True)
class PublicDecryptionResponded:
    """The KMS consensus: the ABI-encoded plaintexts and the nodes' 65-byte signatures."""

    ref: bytes
    decrypted_result: bytes
    signatures: tuple[bytes, ...]
    extra_data: bytes


@dataclass(frozen=True, slots=True)
class UserShareResponded:
    """One KMS node's share. `share_index` is the order of arrival on chain, not a party id."""

    ref: bytes
    share_index: int
    share: bytes
    signature: bytes
    extra_data: bytes


@dataclass(frozen=True, slots=True)
class ThresholdReached:
    """The gateway has seen enough shares for `ref`; this transaction is the consensus."""

    ref: bytes


@dataclass(frozen=True, slots=True)
class ProofVerified:
    """The coprocessors' consensus: 32-byte handles and 65-byte signatures."""

    ref: bytes
    handles: tuple[bytes, ...]
    signatures: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class ProofRejected:
    """The coprocessors rejected the proof."""

    ref: bytes
