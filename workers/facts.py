"""From envelopes to facts: decode payloads, check who emitted them, group them by what they do to requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import orjson

from requests_app.config import Config
from requests_app.errors import RelayerError
from requests_app.states import Kind
from requests_app.store.envelopes import INDEX_BITS
from requests_app.store.observations import Seen, Transferred
from requests_app.transitions.answers import Consensus, Facts, ProofAnswer, PublicAnswer, RequestSeen, Share
from workers.chain.events import PAYMENT_KINDS, Event, EventKind, decode_payload
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
from workers.chain.hexdata import hex_data
from workers.chain.payment_events import AuthorizationCanceled, AuthorizationUsed, PaymentEvent, PaymentTransferred
from workers.thresholds import Thresholds

REJECTED_DETAIL: Final = "Proof Rejected"
_PROOF_KINDS: Final = frozenset({EventKind.PROOF_REQUESTED, EventKind.PROOF_VERIFIED, EventKind.PROOF_REJECTED})
_REQUEST_EVENTS: Final[dict[int, Kind]] = {
    EventKind.USER_DECRYPTION_REQUESTED: Kind.USER_DECRYPT,
    EventKind.PUBLIC_DECRYPTION_REQUESTED: Kind.PUBLIC_DECRYPT,
    EventKind.PROOF_REQUESTED: Kind.INPUT_PROOF,
}
_REQUESTS: Final[dict[type, Kind]] = {
    UserDecryptionRequested: Kind.USER_DECRYPT,
    PublicDecryptionRequested: Kind.PUBLIC_DECRYPT,
    ProofRequested: Kind.INPUT_PROOF,
}


class WrongContract(RelayerError):
    """The event was not emitted by the contract that it belongs to."""


class PayloadRetired(RelayerError):
    """The payload of the envelope is no longer stored."""


class Applicable(Protocol):
    """What the applier needs of an envelope, fresh from the chain or read back."""

    @property
    def position(self) -> int: ...
    @property
    def kind(self) -> int: ...
    @property
    def ref(self) -> bytes | None: ...
    @property
    def contract(self) -> bytes: ...
    @property
    def block_hash(self) -> bytes: ...
    @property
    def tx_hash(self) -> bytes: ...
    @property
    def payload(self) -> bytes | None: ...


@dataclass(frozen=True, slots=True)
class Contracts:
    """The contracts whose events count (20 bytes each): the gateway's two, and the tokens in which payments settle."""

    decryption: bytes
    input_verification: bytes
    tokens: frozenset[bytes] = field(default_factory=frozenset)

    def emits(self, contract: bytes, kind: int) -> bool:
        """Whether events of `kind` are this contract's to emit."""
        if kind in PAYMENT_KINDS:
            return contract in self.tokens
        return contract == (self.input_verification if kind in _PROOF_KINDS else self.decryption)


def contracts_of(settled: Config) -> Contracts:
    """The contracts of the configuration."""
    gateway = settled.gateway
    return Contracts(gateway.decryption, gateway.input_verification, frozenset(gateway.tokens))


def kind_of_request(event_kind: int) -> Kind | None:
    """The kind of request that an event of this kind announces; None for answers."""
    return _REQUEST_EVENTS.get(event_kind)


class Reader:
    """Turns envelopes into facts. What cannot be read is reported, position by position, and never hides the rest."""

    def __init__(self, contracts: Contracts, thresholds: Thresholds) -> None:
        self._contracts = contracts
        self._thresholds = thresholds

    def decode(self, envelopes: Iterable[Applicable]) -> tuple[list[tuple[Applicable, Event]], dict[int, RelayerError]]:
        """(envelope, event) of the readable ones, and the errors by position."""
        good: list[tuple[Applicable, Event]] = []
        bad: dict[int, RelayerError] = {}
        for envelope in envelopes:
            try:
                good.append((envelope, self._event(envelope)))
            except RelayerError as error:
                bad[envelope.position] = error
        return good, bad

    def prepare(self, decoded: Sequence[tuple[Applicable, Event]]) -> None:
        """Ask the host chain for thresholds that are not known. Uses the network: never inside a transaction."""
        self._thresholds.prepare(event.extra_data for _, event in decoded if isinstance(event, UserShareResponded))

    def facts(self, decoded: Iterable[tuple[Applicable, Event]]) -> Facts:
        """The facts, in the order of the envelopes."""
        facts = Facts()
        for envelope, event in decoded:
            self._add(facts, envelope, event)
        return facts

    def _event(self, envelope: Applicable) -> Event:
        if not self._contracts.emits(envelope.contract, envelope.kind):
            raise WrongContract(f"event kind {envelope.kind} emitted by 0x{envelope.contract.hex()}")
        if envelope.payload is None:
            raise PayloadRetired
        return decode_payload(envelope.kind, envelope.payload, envelope.position, envelope.ref)

    def _add(self, facts: Facts, envelope: Applicable, event: Event) -> None:
        if isinstance(event, (AuthorizationUsed, AuthorizationCanceled, PaymentTransferred)):
            _add_payment(facts, envelope, event)
            return
        ref, tx_hash = event.ref, envelope.tx_hash
        if isinstance(event, UserShareResponded):
            facts.shares.append(
                Share(
                    ref,
                    event.share_index,
                    event.share,
                    event.signature,
                    event.extra_data,
                    tx_hash,
                    envelope.position,
                    self._thresholds.known(event.extra_data),
                )
            )
        elif isinstance(event, PublicDecryptionResponded):
            facts.public.append(PublicAnswer(ref, _text(_public_result(event)), tx_hash))
        elif isinstance(event, ProofVerified):
            result = {"handles": _hexes(event.handles), "signatures": _hexes(event.signatures)}
            facts.proofs.append(ProofAnswer(ref, _text(result), tx_hash, None))
        elif isinstance(event, ProofRejected):
            facts.proofs.append(ProofAnswer(ref, None, tx_hash, REJECTED_DETAIL))
        elif isinstance(event, ThresholdReached):
            facts.consensus.append(Consensus(ref, tx_hash))
        else:
            block = envelope.position >> INDEX_BITS
            facts.requests.append(RequestSeen(ref, _REQUESTS[type(event)], tx_hash, block, envelope.block_hash))


def _add_payment(facts: Facts, envelope: Applicable, event: PaymentEvent) -> None:
    """What an event says of a payment. Two events make one observation: who authorized, and the money that then moved."""
    tx_hash, position = envelope.tx_hash, envelope.position
    if isinstance(event, PaymentTransferred):
        facts.transfers.append(Transferred(event.ref, tx_hash, position, event.payee, event.amount))
        return
    canceled = isinstance(event, AuthorizationCanceled)
    seen = Seen(event.ref, position, envelope.contract, event.authorizer, tx_hash, envelope.block_hash, canceled)
    facts.authorizations.append(seen)
    if not canceled:
        # An attempt of ours that carried it is mined, like one that carried a request.
        block = position >> INDEX_BITS
        facts.requests.append(RequestSeen(event.ref, Kind.PAYMENT, tx_hash, block, envelope.block_hash))


def _public_result(event: PublicDecryptionResponded) -> Mapping[str, object]:
    return {
        "decrypted_value": hex_data(event.decrypted_result),
        "signatures": _hexes(event.signatures),
        "extra_data": hex_data(event.extra_data),
    }


def _hexes(items: Iterable[bytes]) -> list[str]:
    return [hex_data(item) for item in items]


def _text(value: Mapping[str, object]) -> str:
    return orjson.dumps(value).decode()
