"""What an observation of the chain means for a payment. Pure.

An EIP-3009 nonce belongs to its authorizer: anybody may use the ref of a payment as a nonce of their own, and that is nothing to the
payment. What its payer authorized with it in its token is; and when the money did not go as asked, nothing else can go with that ref.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, Protocol

from requests_app.models.reviews import ReasonCode
from requests_app.store.observations import Observation


class Terms(Protocol):
    """What a payment asks for: addresses as texts (0x, either case), token units, and the transaction on record."""

    @property
    def token(self) -> str: ...
    @property
    def payer(self) -> str: ...
    @property
    def merchant(self) -> str: ...
    @property
    def amount(self) -> int: ...
    @property
    def tx_hash(self) -> bytes | None: ...


class Sighting(StrEnum):
    """How an observation stands to a payment."""

    EXACT = "exact"
    FOREIGN = "foreign"  # another authorizer's nonce, or another token's
    CANCELED = "canceled"
    WRONG_AMOUNT = "wrong_amount"
    WRONG_PARTY = "wrong_party"
    NO_MONEY = "no_money"  # the authorization is used, and no transfer of the payer follows


REASON: Final[dict[Sighting, ReasonCode]] = {
    Sighting.WRONG_AMOUNT: ReasonCode.AMOUNT_MISMATCH,
    Sighting.NO_MONEY: ReasonCode.AMOUNT_MISMATCH,
    Sighting.WRONG_PARTY: ReasonCode.WRONG_PARTY,
}
MISMATCHES: Final = frozenset(REASON)


def judge(terms: Terms, seen: Observation) -> Sighting:
    """What one observation of the payment's ref means for it."""
    if seen.authorizer != raw(terms.payer) or seen.token != raw(terms.token):
        return Sighting.FOREIGN
    if seen.canceled:
        return Sighting.CANCELED
    if seen.payee is None or seen.amount is None:
        return Sighting.NO_MONEY
    if seen.payee != raw(terms.merchant):
        return Sighting.WRONG_PARTY
    return Sighting.EXACT if seen.amount == terms.amount else Sighting.WRONG_AMOUNT


def execution(terms: Terms, seen: Iterable[Observation]) -> Observation | None:
    """The observation that executed the payment as asked: that of the transaction on record, else the first; None without any."""
    exact = [one for one in seen if judge(terms, one) is Sighting.EXACT]
    return next((one for one in exact if one.tx_hash == terms.tx_hash), exact[0] if exact else None)


def spent_otherwise(terms: Terms, seen: Iterable[Observation]) -> bool:
    """Whether the log shows the payer's authorization used up by something else than this payment: canceled, or used not as asked."""
    judged = {judge(terms, one) for one in seen} - {Sighting.FOREIGN}
    return bool(judged) and Sighting.EXACT not in judged


def raw(address: str) -> bytes:
    """The 20 bytes of an address text; b"" for a text that is none."""
    try:
        return bytes.fromhex(address.removeprefix("0x"))
    except ValueError:
        return b""
