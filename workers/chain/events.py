"""The events of the log: topic table, raw log to stored envelope, stored payload to typed value (fhevm_internals 4.2; EIP-3009).

Payload format (what `envelope_blob.payload` holds): one byte with the number of topics, the topics (32 bytes each, topic0
first), then the log's data, all as the chain gave it. The digest of an envelope is
sha256(block_hash || tx_hash || payload).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from hashlib import sha256
from typing import Any, Final, TypeAlias

from requests_app.errors import RelayerError
from workers.chain import payment_events
from workers.chain.abi_reader import WORD, MalformedAbi, bytes32_list, bytes_list, dynamic_bytes, word
from workers.chain.gateway_events import (
    ProofRejected,
    ProofRequested,
    ProofVerified,
    PublicDecryptionRequested,
    PublicDecryptionResponded,
    ThresholdReached,
    UserDecryptionRequested,
    UserShareResponded,
)
from workers.chain.hexdata import MalformedHex, data, quantity
from workers.chain.keccak import topic
from workers.chain.payment_events import AuthorizationCanceled, AuthorizationUsed, PaymentEvent

POSITION_BITS: Final = 20


class EventKind(IntEnum):
    """What an envelope reports. The numbers are stored; never reuse one."""

    PUBLIC_DECRYPTION_REQUESTED = 1
    USER_DECRYPTION_REQUESTED = 2
    PROOF_REQUESTED = 3
    PUBLIC_DECRYPTION_RESPONDED = 4
    USER_SHARE_RESPONDED = 5
    THRESHOLD_REACHED = 6
    PROOF_VERIFIED = 7
    PROOF_REJECTED = 8
    AUTHORIZATION_USED = 9
    AUTHORIZATION_CANCELED = 10
    PAYMENT_TRANSFERRED = 11


_MATERIAL: Final = "(bytes32,uint256,bytes32,address[])[]"
_ENTRIES: Final = "(bytes32,address,address)[]"
_PAYLOAD: Final = "(address,bytes,address[],(uint256,uint256),bytes,bytes)"

# Every form that the protocol has emitted or announced; both forms of a request may occur in one transaction.
SIGNATURES: Final[dict[str, EventKind]] = {
    f"PublicDecryptionRequest(uint256,{_MATERIAL},bytes)": EventKind.PUBLIC_DECRYPTION_REQUESTED,
    "PublicDecryptionRequest(uint256,bytes32[],bytes)": EventKind.PUBLIC_DECRYPTION_REQUESTED,
    f"UserDecryptionRequest(uint256,{_MATERIAL},address,bytes,bytes)": EventKind.USER_DECRYPTION_REQUESTED,
    f"UserDecryptionRequest(uint256,{_MATERIAL},{_ENTRIES},{_PAYLOAD})": EventKind.USER_DECRYPTION_REQUESTED,
    "UserDecryptionRequest(uint256,bytes32[],address,bytes,bytes)": EventKind.USER_DECRYPTION_REQUESTED,
    f"UserDecryptionRequest(uint256,{_ENTRIES},{_PAYLOAD})": EventKind.USER_DECRYPTION_REQUESTED,
    "VerifyProofRequest(uint256,uint256,address,address,bytes,bytes)": EventKind.PROOF_REQUESTED,
    "PublicDecryptionResponse(uint256,bytes,bytes[],bytes)": EventKind.PUBLIC_DECRYPTION_RESPONDED,
    "UserDecryptionResponse(uint256,uint256,bytes,bytes,bytes)": EventKind.USER_SHARE_RESPONDED,
    "UserDecryptionResponseThresholdReached(uint256)": EventKind.THRESHOLD_REACHED,
    "VerifyProofResponse(uint256,bytes32[],bytes[])": EventKind.PROOF_VERIFIED,
    "RejectProofResponse(uint256)": EventKind.PROOF_REJECTED,
}
# Of the payment tokens. Their reference is the nonce: topic 2 of an authorization; a Transfer has that of the one it follows.
PAYMENT_SIGNATURES: Final[dict[str, EventKind]] = {
    payment_events.USED: EventKind.AUTHORIZATION_USED,
    payment_events.CANCELED: EventKind.AUTHORIZATION_CANCELED,
    payment_events.TRANSFER: EventKind.PAYMENT_TRANSFERRED,
}
PAYMENT_KINDS: Final = frozenset(PAYMENT_SIGNATURES.values())
PAYMENT_TOPICS: Final[dict[bytes, EventKind]] = {
    topic(signature): kind for signature, kind in PAYMENT_SIGNATURES.items()
}
TOPICS: Final[dict[bytes, EventKind]] = {
    **{topic(signature): kind for signature, kind in SIGNATURES.items()},
    **PAYMENT_TOPICS,
}
REQUEST_KINDS: Final = frozenset(
    {EventKind.PUBLIC_DECRYPTION_REQUESTED, EventKind.USER_DECRYPTION_REQUESTED, EventKind.PROOF_REQUESTED}
)


class BadLog(RelayerError):
    """A log or a stored payload that does not read as the event it claims to be. `position` is None when unreadable."""

    def __init__(self, position: int | None, reason: str) -> None:
        self.position, self.reason = position, reason
        where = (
            "unknown position" if position is None else f"block {position >> POSITION_BITS}, log {position & 0xFFFFF}"
        )
        super().__init__(f"bad log at {where}: {reason}")


class OddLog(BadLog):
    """A log of a token that shares a topic with a payment event, but not its shape."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """One event as it is stored. position = block << 20 | log index; hashes 32 bytes, contract 20, ref 32."""

    kind: EventKind
    position: int
    ref: bytes
    contract: bytes
    block_hash: bytes
    tx_hash: bytes
    payload: bytes
    digest: bytes


@dataclass(frozen=True, slots=True)
class DecodedLogs:
    """A batch of logs: the good ones in chain order, the bad ones, and how many were no event of ours."""

    envelopes: list[Envelope]
    bad: list[BadLog]
    ignored: int


Event: TypeAlias = (
    PublicDecryptionRequested
    | UserDecryptionRequested
    | ProofRequested
    | PublicDecryptionResponded
    | UserShareResponded
    | ThresholdReached
    | ProofVerified
    | ProofRejected
    | PaymentEvent
)


def decode_log(raw: Mapping[str, Any]) -> Envelope:
    """The envelope of one `eth_getLogs` element. That of a Transfer has no reference yet: `decode_logs` finds it.

    Raises BadLog for an unknown topic, a removed or pending log, or malformed fields, OddLog for a token's own kind of event.
    """
    position: int | None = None
    try:
        block, index = quantity(raw.get("blockNumber")), quantity(raw.get("logIndex"))
        if index >> POSITION_BITS or block >> 43:
            raise BadLog(None, "block number or log index out of range")
        position = block << POSITION_BITS | index
        topics = [data(item, WORD) for item in raw["topics"]]
        kind = TOPICS.get(topics[0]) if topics else None
        body = data(raw.get("data"))
        payment_ref = _payment_ref(kind, topics, len(body), position) if kind in PAYMENT_KINDS else None
        if kind is None or len(topics) < 2 or len(topics) > 4:
            raise BadLog(position, "unknown event")
        if raw.get("removed"):
            raise BadLog(position, "removed by a reorganisation")
        ref = topics[1] if payment_ref is None else payment_ref
        payload = bytes((len(topics),)) + b"".join(topics) + body
        block_hash, tx_hash = data(raw.get("blockHash"), 32), data(raw.get("transactionHash"), 32)
        contract = data(raw.get("address"), 20)
    except (MalformedHex, KeyError, TypeError, AttributeError) as error:
        raise BadLog(position, f"{type(error).__name__}: {error}"[:200]) from None
    digest = sha256(block_hash + tx_hash + payload).digest()
    return Envelope(kind, position, ref, contract, block_hash, tx_hash, payload, digest)


def decode_logs(raws: Sequence[Any]) -> DecodedLogs:
    """All logs of an answer. One bad log never hides the others; logs that are no event of ours are counted as ignored.

    Those include every Transfer that does not belong to an authorization: a busy token has thousands.
    """
    envelopes: list[Envelope] = []
    bad: list[BadLog] = []
    ignored = 0
    paid = {raw.get("transactionHash") for raw in raws if isinstance(raw, Mapping) and _topic0(raw) == _USED_TEXT}
    for raw in raws:
        if not isinstance(raw, Mapping):
            bad.append(BadLog(None, "not an object"))
            continue
        if not _is_ours(raw) or (_topic0(raw) == _TRANSFER_TEXT and raw.get("transactionHash") not in paid):
            ignored += 1
            continue
        try:
            envelopes.append(decode_log(raw))
        except OddLog:
            ignored += 1
        except BadLog as error:
            bad.append(error)
    envelopes.sort(key=lambda envelope: envelope.position)
    kept = _with_references(envelopes)
    return DecodedLogs(kept, bad, ignored + len(envelopes) - len(kept))


def decode_payload(kind: int, payload: bytes, position: int | None = None, ref: bytes | None = None) -> Event:
    """The typed value of a stored payload. Raises BadLog.

    `position` only names the envelope in errors; `ref` is the envelope's own, which a Transfer needs.
    """
    try:
        known = EventKind(kind)
        if known in PAYMENT_KINDS:
            return _payment(known, payload, ref)
        topic1, arguments = _split(payload)
        return _DECODERS[known](topic1, arguments)
    except (MalformedAbi, ValueError) as error:
        raise BadLog(position, str(error)) from None


def _with_references(envelopes: Sequence[Envelope]) -> list[Envelope]:
    """The envelopes in order; each Transfer with the reference of its authorization, or left out when it has none."""
    before: dict[tuple[bytes, bytes], Envelope] = {}  # the last payment event of a token in a transaction
    kept: list[Envelope] = []
    for one in envelopes:
        if one.kind not in PAYMENT_KINDS:
            kept.append(one)
            continue
        place = (one.tx_hash, one.contract)
        former, before[place] = before.get(place), one
        if one.kind is not EventKind.PAYMENT_TRANSFERRED:
            kept.append(one)
        elif (
            former is not None
            and former.kind is EventKind.AUTHORIZATION_USED
            and payment_events.sender_of(former.payload) == payment_events.sender_of(one.payload)
        ):
            kept.append(replace(one, ref=former.ref))
    return kept


def _payment_ref(kind: EventKind, topics: Sequence[bytes], body_length: int, position: int) -> bytes:
    """The reference that a payment event carries itself (b"": none). Raises OddLog."""
    transfer = kind is EventKind.PAYMENT_TRANSFERRED
    if not payment_events.fits(topics, body_length, transfer=transfer):
        raise OddLog(position, "not the shape of a payment event")
    return b"" if transfer else topics[2]


def _payment(kind: EventKind, payload: bytes, ref: bytes | None) -> PaymentEvent:
    if kind is EventKind.PAYMENT_TRANSFERRED:
        return payment_events.transferred(payload, ref)
    shape = AuthorizationUsed if kind is EventKind.AUTHORIZATION_USED else AuthorizationCanceled
    return shape(*payment_events.authorization(payload))


def _topic0(raw: Mapping[str, Any]) -> str | None:
    topics = raw.get("topics")
    first = topics[0] if isinstance(topics, list) and topics else None
    return first.lower() if isinstance(first, str) else None


def _is_ours(raw: Mapping[str, Any]) -> bool:
    """Whether topic0 is in the table; a log that cannot be read far enough counts as ours, so that it is reported."""
    topics = raw.get("topics")
    if not isinstance(topics, list) or not topics or not isinstance(topics[0], str):
        return not (isinstance(topics, list) and not topics)
    return topics[0].lower() in _TOPIC_TEXTS or len(topics[0]) != 66


def _split(payload: bytes) -> tuple[bytes, bytes]:
    """(topic1, data) of a payload. Raises MalformedAbi."""
    count = payload[0] if payload else 0
    start = 1 + count * WORD
    if count < 2 or len(payload) < start:
        raise MalformedAbi("payload without its topics")
    return payload[1 + WORD : 1 + 2 * WORD], payload[start:]


def _public_responded(ref: bytes, body: bytes) -> Event:
    return PublicDecryptionResponded(ref, dynamic_bytes(body, 0), bytes_list(body, 1), dynamic_bytes(body, 2))


def _share_responded(ref: bytes, body: bytes) -> Event:
    index = word(body, 0)
    if index >> 31:
        raise MalformedAbi("share index out of range")
    return UserShareResponded(ref, index, dynamic_bytes(body, 1), dynamic_bytes(body, 2), dynamic_bytes(body, 3))


def _proof_verified(ref: bytes, body: bytes) -> Event:
    return ProofVerified(ref, bytes32_list(body, 0), bytes_list(body, 1))


_TOPIC_TEXTS: Final = frozenset("0x" + item.hex() for item in TOPICS)
_USED_TEXT: Final = "0x" + topic(payment_events.USED).hex()
_TRANSFER_TEXT: Final = "0x" + topic(payment_events.TRANSFER).hex()
_DECODERS: Final[dict[EventKind, Callable[[bytes, bytes], Event]]] = {
    EventKind.PUBLIC_DECRYPTION_REQUESTED: lambda ref, _: PublicDecryptionRequested(ref),
    EventKind.USER_DECRYPTION_REQUESTED: lambda ref, _: UserDecryptionRequested(ref),
    EventKind.PROOF_REQUESTED: lambda ref, _: ProofRequested(ref),
    EventKind.PUBLIC_DECRYPTION_RESPONDED: _public_responded,
    EventKind.USER_SHARE_RESPONDED: _share_responded,
    EventKind.THRESHOLD_REACHED: lambda ref, _: ThresholdReached(ref),
    EventKind.PROOF_VERIFIED: _proof_verified,
    EventKind.PROOF_REJECTED: lambda ref, _: ProofRejected(ref),
}
