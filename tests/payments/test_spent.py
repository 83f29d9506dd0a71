"""Who used an authorization, searched in the logs from the newest block backwards, in ranges that the node takes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from requests_app.config import GatewayConfig
from workers.chain.gateway import GatewayClient
from workers.chain.keccak import topic
from workers.chain.payment_events import CANCELED, USED
from workers.chain.payments import AuthorizationKey
from workers.chain.rpc_errors import RpcError

KEY = AuthorizationKey(b"\xd1" * 20, b"\xa2" * 20, b"\x33" * 32)
HEAD = 200_000


class Logs:
    """Endpoints of a chain with a block a second whose node takes only so many blocks at once."""

    def __init__(self, widest: int, *events: tuple[int, str]) -> None:
        self.widest, self.events = widest, events
        self.asked: list[tuple[int, int]] = []

    def call(self, method: str, params: Any) -> Any:
        if method == "eth_blockNumber":
            return hex(HEAD)
        if method == "eth_getBlockByNumber":
            number = int(params[0], 16)
            word = "0x" + number.to_bytes(32, "big").hex()
            return {"number": hex(number), "hash": word, "parentHash": word, "timestamp": hex(number)}
        assert method == "eth_getLogs"
        (query,) = params
        first, last = int(query["fromBlock"], 16), int(query["toBlock"], 16)
        if last - first >= self.widest:
            raise RpcError(-32005, "query returned more than 10000 results")
        self.asked.append((first, last))
        assert query["topics"][1:] == [["0x" + "00" * 12 + "a2" * 20], ["0x" + "33" * 32]]
        return [self._log(block, name) for block, name in self.events if first <= block <= last]

    def _log(self, block: int, name: str) -> dict[str, Any]:
        return {
            "address": "0x" + "d1" * 20, "data": "0x", "removed": False, "logIndex": "0x0", "blockNumber": hex(block),
            "topics": ["0x" + topic(name).hex(), "0x" + "00" * 12 + "a2" * 20, "0x" + "33" * 32],
            "transactionHash": "0x" + block.to_bytes(32, "big").hex(), "blockHash": "0x" + "0b" * 32,
        }  # fmt: skip


def search(logs: Logs, since: int) -> Any:
    config = GatewayConfig(1, ("http://node",), b"\x01" * 20, b"\x02" * 20, (), None, 0)
    return GatewayClient(logs, config).find_spent(KEY, since)  # type: ignore[arg-type]


@pytest.mark.parametrize("widest", [10**9, 50_000, 10_000, 1_000])
def test_it_is_found_whatever_range_the_node_takes(widest: int) -> None:
    found = search(Logs(widest, (150_123, USED)), since=150_000)
    assert (found.block_number, found.tx_hash, found.canceled) == (150_123, (150_123).to_bytes(32, "big"), False)


def test_the_search_ends_where_the_payment_did_not_exist_yet() -> None:
    logs = Logs(10_000, (10, USED))
    assert search(logs, since=190_000) is None
    assert min(first for first, _ in logs.asked) > 180_000
    covered = sorted(logs.asked)
    assert covered[-1][1] == HEAD
    assert all(after[0] == before[1] + 1 for before, after in pairwise(covered))


def test_an_execution_counts_before_a_cancellation() -> None:
    assert search(Logs(10**9, (199_000, CANCELED)), since=0).canceled
    assert not search(Logs(10**9, (199_000, CANCELED), (198_999, USED)), since=0).canceled


def test_a_node_that_takes_no_range_is_said() -> None:
    with pytest.raises(RpcError):
        search(Logs(0), since=0)
