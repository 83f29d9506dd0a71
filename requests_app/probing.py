"""What the chain's nodes say about one case, asked when a reviewer wants to know (reference queue_settle 4.9).

The asking is done by an implementation named in the setting CHAIN_PROBER, because this package must not import the chain layer. It only
reads; nothing is sent from the web process, ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol, cast

from django.conf import settings
from django.utils.module_loading import import_string

from requests_app.states import Kind


@dataclass(frozen=True, slots=True)
class Question:
    """What to ask for: transaction hashes (32 bytes), the sending account (20 bytes), the reference id (32 bytes).

    Of a payment the reference is its ref, and `token` and `payer` (20 bytes each) say whose authorization and money it is about.
    """

    kind: Kind
    hashes: Sequence[bytes]
    account: bytes | None
    reference: bytes | None
    token: bytes | None = None
    payer: bytes | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """Where a transaction was mined. `status` 1 or 0."""

    block: int
    status: int


@dataclass(frozen=True, slots=True)
class Sighting:
    """What one node says of one transaction. `error` is set when it did not say."""

    tx_hash: bytes
    receipt: Receipt | None
    known: bool
    pending: bool
    error: str | None = None


@dataclass(frozen=True, slots=True)
class NodeReport:
    """What one node says. Values that it did not give are None; `error` when it gave nothing at all. Balance is wei, funds token units."""

    node: str
    head: int | None = None
    finalized: int | None = None
    nonces: Mapping[str, int | None] = field(default_factory=dict)
    balance: int | None = None
    flags: Mapping[str, bool | None] = field(default_factory=dict)
    sightings: Sequence[Sighting] = ()
    seconds: float = 0.0
    error: str | None = None
    funds: int | None = None  # the payer's, in the payment's token


class ChainProber(Protocol):
    """Asks every gateway endpoint; safe to call from several threads; never takes longer than a few seconds a node."""

    def ask(self, question: Question) -> list[NodeReport]:
        """One report a configured endpoint, in order. Raises nothing for a node that is away: its report says so."""


@lru_cache(maxsize=1)
def prober() -> ChainProber:
    """The configured prober, made once a process."""
    made: Any = import_string(settings.CHAIN_PROBER)()
    return cast("ChainProber", made)
