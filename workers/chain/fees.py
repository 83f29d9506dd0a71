"""EIP-1559 fees from eth_feeHistory, and the margin on gas estimates (fhevm_internals 4.1, 5.2)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from requests_app.errors import RelayerError
from workers.chain.hexdata import MalformedHex, hex_quantity, quantity
from workers.chain.rpc_errors import RpcUnavailable

BLOCKS: Final = 10
PERCENTILE: Final = 20
LEAST_PRIORITY_WEI: Final = 1
CEILING_WEI: Final = 500 * 10**9
CACHE_SECONDS: Final = 3.0
# Writing a storage word that is empty costs 20,000, one in use 2,900 (EIP-2200 with EIP-2929).
EMPTY_WORD_GAS: Final = 20_000 - 2_900


class Reader(Protocol):
    """Whatever answers single reads: an endpoint or several."""

    def call(self, method: str, params: Any = ()) -> Any:
        """The result of one JSON-RPC call."""


@dataclass(frozen=True, slots=True)
class Fees:
    """Wei per gas of a type-2 transaction."""

    max_fee_per_gas: int
    max_priority_fee: int


class FeeCeilingExceeded(RelayerError):
    """The market asks more per gas than the configured ceiling."""

    def __init__(self, asked: int, ceiling: int) -> None:
        self.asked, self.ceiling = asked, ceiling
        super().__init__(f"the chain asks {asked} wei per gas, the ceiling is {ceiling}")


def quote(endpoint: Reader, ceiling: int = CEILING_WEI) -> Fees:
    """Fees for the next block: twice its base fee (six full blocks of growth) plus the usual low priority fee.

    Raises FeeCeilingExceeded when base fee and priority alone pass the ceiling (wei per gas), RpcError, RpcUnavailable.
    """
    return from_history(endpoint.call("eth_feeHistory", [hex_quantity(BLOCKS), "latest", [PERCENTILE]]), ceiling)


def from_history(history: Any, ceiling: int = CEILING_WEI) -> Fees:
    """Fees from an eth_feeHistory result; its last base fee is that of the next block. Raises as `quote`."""
    try:
        if not isinstance(history, Mapping):
            raise MalformedHex("no object")
        base = quantity(history["baseFeePerGas"][-1])
        rewards = [quantity(row[0]) for row in history.get("reward") or [] if row]
    except (MalformedHex, KeyError, IndexError, TypeError) as error:
        raise RpcUnavailable(f"unreadable fee history: {error}", sent=True) from None
    paid = sorted(reward for reward in rewards if reward > 0)
    priority = max(LEAST_PRIORITY_WEI, paid[len(paid) // 2] if paid else 0)
    if base + priority > ceiling:
        raise FeeCeilingExceeded(base + priority, ceiling)
    return Fees(min(2 * base + priority, ceiling), priority)


class FeeCache:
    """A quote that is at most CACHE_SECONDS old. A failed quote is not kept."""

    def __init__(
        self,
        endpoint: Reader,
        ceiling: int = CEILING_WEI,
        seconds: float = CACHE_SECONDS,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._endpoint, self._ceiling, self._seconds, self._clock = endpoint, ceiling, seconds, clock
        self._fees: Fees | None = None
        self._until = 0.0

    def quote(self) -> Fees:
        """As `fees.quote`, from memory while fresh."""
        if self._fees is None or self._clock() >= self._until:
            self._fees = None
            self._fees = quote(self._endpoint, self._ceiling)
            self._until = self._clock() + self._seconds
        return self._fees


def padded_gas(estimate: int) -> int:
    """The gas limit for an estimate: 1.2 times, truncated, and one storage word more.

    The state may move before the transaction is mined: a payee that empties its account meanwhile makes the payment dearer by such a
    word, which is more than a fifth of it. Gas that is not used is not paid.
    """
    return estimate * 12 // 10 + EMPTY_WORD_GAS


def bumped(fees: Fees, market: Fees) -> Fees:
    """Fees of a replacement: each at least 12.5 % (rounded up) above the replaced ones, and at least the market's.

    geth drops replacements below 10 % on either field; the ceiling is the caller's to check.
    """
    return Fees(
        max(market.max_fee_per_gas, -(-fees.max_fee_per_gas * 9 // 8)),
        max(market.max_priority_fee, -(-fees.max_priority_fee * 9 // 8)),
    )
