"""What the devnet's dollar says of authorizations and money, read from its events; and whether an order may have been paid so."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.chaos.mischief import DOLLAR
from tests.chaos.orders import Fate, Order
from tests.stack.harness import Stack

SPAN = 2_000  # blocks that are asked for at once
NOBODY = "0x" + "00" * 20


@dataclass(frozen=True, slots=True)
class Use:
    """An authorization used on chain, with the transfer that follows it. Addresses in lower case."""

    authorizer: str
    ref: bytes
    tx_hash: str
    moved: tuple[str, str, int] | None  # from, to, token units


@dataclass
class Token:
    """All that the token's events say: uses by ref, token units minted by account, and the hashes of transfers that nothing explains."""

    uses: dict[bytes, list[Use]]
    minted: Counter[str]
    loose: list[str]

    @classmethod
    def read(cls, stack: Stack) -> Token:
        """From the chain's first block to its head."""
        used, moved = DOLLAR.event("AuthorizationUsed").topic, DOLLAR.event("Transfer")
        uses: dict[bytes, list[Use]] = defaultdict(list)
        minted: Counter[str] = Counter()
        loose: list[str] = []
        before: dict[str, Any] | None = None
        for log in _logs(stack, [[used, moved.topic]]):
            if log["topics"][0] == used:
                use = Use(_address(log["topics"][1]), bytes.fromhex(log["topics"][2][2:]), log["transactionHash"], None)
                uses[use.ref].append(use)
                before = log
                continue
            source, target, sum_ = (
                _address(log["topics"][1]),
                _address(log["topics"][2]),
                int(moved.decode(log)[0]),
            )
            follows = before is not None and before["transactionHash"] == log["transactionHash"]
            if source == NOBODY:
                minted[target] += sum_
            elif follows and before is not None and int(before["logIndex"], 16) + 1 == int(log["logIndex"], 16):
                ref = bytes.fromhex(before["topics"][2][2:])
                last = uses[ref].pop()
                uses[ref].append(Use(last.authorizer, ref, last.tx_hash, (source, target, sum_)))
            else:
                loose.append(log["transactionHash"])
        return cls(dict(uses), minted, loose)


def _logs(stack: Stack, topics: list[Any]) -> Iterator[dict[str, Any]]:
    address = stack.deployment.gateway["payment_tokens"][0]["address"]
    head = stack.block()
    for first in range(0, head + 1, SPAN):
        yield from stack.rpc.logs([address], topics, first, min(first + SPAN - 1, head))


def _address(word: str) -> str:
    return "0x" + word[-40:].lower()


def is_paid_rightly(order: Order, state: str, tx_hash: bytes, uses: Sequence[Use]) -> bool:
    """Whether an order in this state, with this hash on record, may have had its ref used by its payer like this."""
    if state == "settled":
        asked = (order.payer.address, order.merchant, order.amount)
        return [(one.moved, one.tx_hash) for one in uses] == [(asked, "0x" + tx_hash.hex())]
    if order.fate in (Fate.OTHER_AMOUNT, Fate.OTHER_PARTY) and uses:
        return [one.moved for one in uses] == [(order.payer.address, *order.other)]
    return not uses
