from __future__ import annotations

from typing import Any

import pytest

from workers.chain.fees import (
    CEILING_WEI,
    EMPTY_WORD_GAS,
    FeeCache,
    FeeCeilingExceeded,
    Fees,
    bumped,
    from_history,
    padded_gas,
)
from workers.chain.rpc_errors import RpcUnavailable


def history(*base: int, rewards: list[int] | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"oldestBlock": "0x1", "baseFeePerGas": [hex(fee) for fee in base]}
    if rewards is not None:
        found["reward"] = [[hex(reward)] for reward in rewards]
    return found


class Node:
    def __init__(self, answer: Any) -> None:
        self.answer, self.calls = answer, 0

    def call(self, method: str, params: Any = ()) -> Any:
        assert (method, params) == ("eth_feeHistory", ["0xa", "latest", [20]])
        self.calls += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_twice_the_next_base_fee_plus_the_median_priority() -> None:
    assert from_history(history(5, 7, 100, rewards=[30, 0, 10, 20])) == Fees(220, 20)


def test_priority_is_never_zero() -> None:
    assert from_history(history(100)) == Fees(201, 1)
    assert from_history(history(100, rewards=[0, 0])) == Fees(201, 1)
    assert from_history(history(0, rewards=[])) == Fees(1, 1)


def test_ceiling_caps_the_reserve_and_refuses_the_market() -> None:
    assert from_history(history(90, rewards=[9]), ceiling=100) == Fees(100, 9)
    with pytest.raises(FeeCeilingExceeded) as caught:
        from_history(history(92, rewards=[9]), ceiling=100)
    assert (caught.value.asked, caught.value.ceiling) == (101, 100)
    assert CEILING_WEI == 500_000_000_000


@pytest.mark.parametrize("bad", [None, [], {}, {"baseFeePerGas": []}, {"baseFeePerGas": ["x"]}, {"baseFeePerGas": 5}])
def test_unreadable_histories_are_outages(bad: Any) -> None:
    with pytest.raises(RpcUnavailable):
        from_history(bad)


def test_cache_keeps_a_quote_for_its_seconds_and_no_failure() -> None:
    now = [0.0]
    node = Node(history(100))
    cache = FeeCache(node, seconds=3.0, clock=lambda: now[0])
    assert {cache.quote() for _ in range(5)} == {Fees(201, 1)}
    assert node.calls == 1
    now[0] = 3.0
    node.answer = RpcUnavailable("down", sent=True)
    for _ in range(2):
        with pytest.raises(RpcUnavailable):
            cache.quote()
    node.answer = history(50)
    assert cache.quote() == Fees(101, 1)
    assert node.calls == 4


def test_gas_margin_is_a_fifth_truncated_and_one_storage_word() -> None:
    assert [padded_gas(estimate) - EMPTY_WORD_GAS for estimate in (21000, 1, 9)] == [25200, 1, 10]


def test_replacement_rises_by_an_eighth_rounded_up_or_to_the_market() -> None:
    assert bumped(Fees(100, 1), Fees(1, 1)) == Fees(113, 2)
    assert bumped(Fees(100, 8), Fees(500, 10)) == Fees(500, 10)
