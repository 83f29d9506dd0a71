"""What a run of payments is made of: orders by seed, each with what its world does to it, and how it may end."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from workers.devnet.accounts import Wallet, labelled

PAYERS = 8
WEALTH = 10**15  # token units of a payer who can pay everything
AMOUNT = 1_000_000
LASTS_SECONDS = 86_400
LAPSE_SECONDS = 25  # an authorization that ends before its payer has money


class Fate(StrEnum):
    """What happens to an order beside faults and kills."""

    PLAIN = "plain"
    OVERTAKEN = "overtaken"  # somebody else executes the authorization, before or after the relayer has it
    LATE_FUNDS = "late funds"  # the payer has nothing, and later enough
    SHARED_FUNDS = "shared funds"  # two orders of a payer with money for one; later for both
    WITHDRAWN = "withdrawn"  # the client cancels right after authorizing
    REVOKED = "revoked"  # the payer cancels the authorization on chain
    OTHER_AMOUNT = "other amount"  # the payer signs the same ref for another amount, and somebody executes that
    OTHER_PARTY = "other party"  # the same for another merchant
    REFUSED = "refused"  # the token refuses the payer
    LAPSED = "lapsed"  # the payer has nothing until the authorization is over


# How an order may end. A state beside `settled` is allowed only here (and `canceled`, where the API has said so); in review only for
# these reasons.
MUST_SETTLE = frozenset({Fate.PLAIN, Fate.OVERTAKEN, Fate.LATE_FUNDS})
ENDS: dict[Fate, frozenset[str]] = {
    Fate.SHARED_FUNDS: frozenset({"settled", "needs_review"}),
    Fate.REVOKED: frozenset({"settled", "canceled", "needs_review"}),
    Fate.OTHER_AMOUNT: frozenset({"settled", "needs_review"}),
    Fate.OTHER_PARTY: frozenset({"settled", "needs_review"}),
    Fate.REFUSED: frozenset({"authorized"}),  # its job is a dead letter
    Fate.LAPSED: frozenset({"canceled"}),
}
REASONS: dict[Fate, frozenset[str]] = {
    Fate.SHARED_FUNDS: frozenset({"reverted_final"}),
    Fate.REVOKED: frozenset({"reverted_final"}),
    Fate.OTHER_AMOUNT: frozenset({"amount_mismatch"}),
    Fate.OTHER_PARTY: frozenset({"wrong_party"}),
}
# Of each fate: how many in a thousand, and at least so many. What need not settle is below one in a hundred together.
SHARES: dict[Fate, tuple[int, int]] = {
    Fate.OVERTAKEN: (20, 4),
    Fate.LATE_FUNDS: (5, 1),
    Fate.SHARED_FUNDS: (2, 2),
    Fate.WITHDRAWN: (1, 2),
    Fate.REVOKED: (1, 2),
    Fate.OTHER_AMOUNT: (1, 1),
    Fate.OTHER_PARTY: (1, 1),
    Fate.REFUSED: (1, 1),
    Fate.LAPSED: (1, 1),
}
_TOGETHER = {Fate.SHARED_FUNDS: 2}


@dataclass
class Order:
    """One payment to be made. What the run learns of it is written by the client that posts it."""

    number: int
    fate: Fate
    payer: Wallet
    merchant: str
    amount: int
    chance: float  # from 0 to 1, for whatever its fate leaves open
    intent_id: str = ""
    ref: bytes = b""
    signed: dict[str, str] = field(default_factory=dict)
    withdrawn: bool = False  # the API has said so

    @property
    def key(self) -> str:
        """The client's Idempotency-Key."""
        return f"order-{self.number}"

    @property
    def needs(self) -> int:
        """Token units that its payer has before the run; the ordinary payers have WEALTH."""
        return 0 if self.fate in (Fate.LATE_FUNDS, Fate.LAPSED) else self.amount

    @property
    def other(self) -> tuple[str, int]:
        """Whom and how much the payer's other authorization of the same ref pays: accounts that nothing else pays."""
        other = labelled("chaos other merchant").address
        return (other, self.amount) if self.fate is Fate.OTHER_PARTY else (self.merchant, self.amount - 1)


def make_orders(seed: int, count: int) -> list[Order]:
    """The orders of a seed, in the order in which they are posted. Members of a pair follow each other."""
    chance = random.Random(f"orders {seed}")
    groups = list(_groups(count))
    chance.shuffle(groups)
    wealthy = [labelled(f"chaos payer {number}") for number in range(PAYERS)]
    merchant, doubtful = labelled("chaos merchant").address, labelled("chaos doubtful merchant").address
    orders: list[Order] = []
    for place, (fate, members) in enumerate(groups):
        own = labelled(f"chaos {fate.value} {place}")
        for _ in range(members):
            number = len(orders)
            ordinary = fate in (Fate.PLAIN, Fate.OVERTAKEN, Fate.WITHDRAWN)
            payer = chance.choice(wealthy) if ordinary else own
            to = doubtful if fate in (Fate.OTHER_AMOUNT, Fate.OTHER_PARTY) else merchant
            # Members of a pair ask for the same amount, so that the money is enough for either.
            amount = AMOUNT + (place if fate in _TOGETHER else number)
            orders.append(Order(number, fate, payer, to, amount, chance.random()))
    return orders


def endowments(orders: Sequence[Order]) -> dict[str, int]:
    """Token units by payer before the run."""
    wealthy = {labelled(f"chaos payer {number}").address: WEALTH for number in range(PAYERS)}
    own = {one.payer.address: one.needs for one in orders if one.payer.address not in wealthy}
    return {**wealthy, **own}


def _groups(count: int) -> Iterator[tuple[Fate, int]]:
    left = count
    for fate, (share, least) in SHARES.items():
        members = _TOGETHER.get(fate, 1)
        for _ in range(max(least, count * share // 1000) // members):
            yield fate, members
            left -= members
    for _ in range(left):
        yield Fate.PLAIN, 1
