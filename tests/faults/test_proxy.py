"""Every fault of the proxy as the relayer's own RPC client sees it, before a node that counts what reaches it."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.chain.stub_node import StubNode, json_reply, results, stub_node
from tests.faults.proxy import FaultProxy, ProxyClient
from tests.faults.rules import Fault, Rule
from workers.chain.rpc import RpcEndpoint
from workers.chain.rpc_errors import Missing, Ok, RpcError, RpcRateLimited, RpcUnavailable

HEAD = 100
RECEIPT = {"transactionHash": "0x01", "blockNumber": hex(99), "status": "0x1"}
LOGS: list[dict[str, str]] = [{"blockNumber": hex(number)} for number in (97, 98, 99, 100)]
VALUES: dict[str, Any] = {
    "eth_blockNumber": hex(HEAD),
    "eth_chainId": "0x7",
    "eth_getTransactionReceipt": RECEIPT,
    "eth_getLogs": LOGS,
    "eth_sendRawTransaction": "0xabc",
}


def value(method: str, params: Any) -> Any:
    if method == "eth_getTransactionCount":
        return params[1]  # shows which block was asked for
    if method == "eth_getBlockByNumber":
        return {"number": params[0] if params[0].startswith("0x") else hex(HEAD)}
    return VALUES[method]


@pytest.fixture
def node() -> Iterator[StubNode]:
    with stub_node(lambda document, count: json_reply(results(document, value))) as running:
        yield running


@pytest.fixture
def proxy(node: StubNode) -> Iterator[FaultProxy]:
    with FaultProxy(node.url, seed=1) as running:
        yield running


@pytest.fixture
def client(proxy: FaultProxy) -> Iterator[RpcEndpoint]:
    endpoint = RpcEndpoint(proxy.url, (30, 30))
    yield endpoint
    endpoint.close()


def asked(node: StubNode) -> list[str]:
    return [call["method"] for document in node.requests for call in document]


def test_without_rules_everything_passes_in_order(client: RpcEndpoint) -> None:
    assert client.call("eth_blockNumber") == hex(HEAD)
    assert client.batch([("eth_chainId", ()), ("eth_blockNumber", ())]) == [Ok("0x7"), Ok(hex(HEAD))]


@pytest.mark.parametrize("fault", [Fault.REFUSE, Fault.DROP_REQUEST])
def test_a_request_that_never_arrives(client: RpcEndpoint, proxy: FaultProxy, node: StubNode, fault: Fault) -> None:
    proxy.add(Rule(fault, "eth_sendRawTransaction", times=1))
    with pytest.raises(RpcUnavailable) as error:
        client.call("eth_sendRawTransaction", ["0x02"])
    assert error.value.sent
    assert asked(node) == []
    assert client.call("eth_sendRawTransaction", ["0x02"]) == "0xabc"


def test_a_lost_answer_leaves_the_work_done(client: RpcEndpoint, proxy: FaultProxy, node: StubNode) -> None:
    proxy.add(Rule(Fault.DROP_ANSWER, "eth_send*", times=1))
    with pytest.raises(RpcUnavailable) as error:
        client.call("eth_sendRawTransaction", ["0x02"])
    assert error.value.sent
    assert asked(node) == ["eth_sendRawTransaction"]
    assert proxy.script.sent == {"0x02": 1}


def test_a_duplicate_reaches_the_node_twice(client: RpcEndpoint, proxy: FaultProxy) -> None:
    proxy.add(Rule(Fault.DUPLICATE, "eth_sendRawTransaction"))
    assert client.call("eth_sendRawTransaction", ["0x02"]) == "0xabc"
    assert proxy.script.sent == {"0x02": 2}


def test_delay(client: RpcEndpoint, proxy: FaultProxy) -> None:
    proxy.add(Rule(Fault.DELAY, options={"seconds": 5}))
    with pytest.raises(RpcUnavailable) as error:
        RpcEndpoint(proxy.url, (30, 0.2)).call("eth_blockNumber")
    assert error.value.sent


def test_pages_limits_and_lone_errors(client: RpcEndpoint, proxy: FaultProxy) -> None:
    proxy.add(Rule(Fault.RATE_LIMIT, times=1, options={"retry_after": 3}), Rule(Fault.HTML, skip=1, times=1))
    proxy.add(Rule(Fault.ONE_ERROR))
    with pytest.raises(RpcRateLimited) as limited:
        client.call("eth_blockNumber")
    assert limited.value.retry_after == 3
    with pytest.raises(RpcUnavailable) as page:
        client.call("eth_blockNumber")
    assert page.value.answer_status == 502
    assert client.call("eth_blockNumber") == hex(HEAD)
    assert all(isinstance(answer, Missing) for answer in client.batch([("eth_chainId", ()), ("eth_blockNumber", ())]))


def test_a_lagging_node_is_consistent(client: RpcEndpoint, proxy: FaultProxy) -> None:
    proxy.add(Rule(Fault.STALE_HEAD, options={"blocks": 3}))
    assert client.call("eth_blockNumber") == hex(97)
    assert client.call("eth_getLogs", [{"fromBlock": "0x1", "toBlock": hex(HEAD)}]) == LOGS[:1]
    assert client.call("eth_getTransactionReceipt", ["0x01"]) is None
    assert client.call("eth_getTransactionCount", ["0x02", "latest"]) == hex(97)
    assert client.call("eth_getBlockByNumber", ["latest", False]) == {"number": hex(97)}
    assert client.call("eth_getBlockByNumber", [hex(99), False]) is None


def test_single_calls_of_a_batch(client: RpcEndpoint, proxy: FaultProxy, node: StubNode) -> None:
    proxy.add(Rule(Fault.NULL_RECEIPT, times=1), Rule(Fault.WRONG_CHAIN, options={"chain_id": 9}))
    proxy.add(Rule(Fault.ERROR, "eth_sendRaw*", skip=1, times=1, options={"code": -32000, "message": "nonce too low"}))
    receipt = ("eth_getTransactionReceipt", ["0x01"])
    answers = client.batch([receipt, receipt, ("eth_chainId", ())])
    assert answers == [Ok(None), Ok(RECEIPT), Ok("0x9")]
    assert client.call("eth_sendRawTransaction", ["0x02"]) == "0xabc"
    with pytest.raises(RpcError, match="nonce too low"):
        client.call("eth_sendRawTransaction", ["0x02"])
    assert asked(node).count("eth_sendRawTransaction") == 1


def test_an_error_after_the_work(client: RpcEndpoint, proxy: FaultProxy) -> None:
    proxy.add(Rule(Fault.ERROR, "eth_sendRaw*", options={"executed": True}))
    with pytest.raises(RpcError, match="Internal error"):
        client.call("eth_sendRawTransaction", ["0x02"])
    assert proxy.script.sent == {"0x02": 1}


def test_chance_follows_the_seed(node: StubNode) -> None:
    def pattern(seed: int) -> list[bool]:
        with FaultProxy(node.url, seed=seed) as proxy:
            proxy.add(Rule(Fault.NULL_RECEIPT, probability=0.5))
            endpoint = RpcEndpoint(proxy.url)
            found = [endpoint.call("eth_getTransactionReceipt", ["0x01"]) is None for _ in range(24)]
            endpoint.close()
            return found

    assert pattern(3) == pattern(3) != pattern(4)
    assert any(pattern(3))
    assert not all(pattern(3))


def test_cut_and_back(client: RpcEndpoint, proxy: FaultProxy) -> None:
    assert client.call("eth_blockNumber") == hex(HEAD)
    proxy.cut()
    with pytest.raises(RpcUnavailable):
        client.call("eth_blockNumber")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(proxy.url.rsplit(":", 1)[1])))
    proxy.listen()
    assert client.call("eth_blockNumber") == hex(HEAD)


def test_a_proxy_of_its_own_process(node: StubNode) -> None:
    line = [sys.executable, "-m", "tests.faults.proxy", "--target", node.url]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            steering = ProxyClient(process.stdout.readline().strip())
            steering.add(Rule(Fault.ERROR, "eth_chainId", times=1, options={"code": -32000, "message": "busy"}))
            endpoint = RpcEndpoint(steering.url)
            with pytest.raises(RpcError, match="busy"):
                endpoint.call("eth_chainId")
            assert steering.injected() == {"error": 1}
            steering.clear()
            assert endpoint.call("eth_chainId") == "0x7"
            endpoint.close()
        finally:
            process.kill()


def test_a_node_that_contradicts_itself(proxy: FaultProxy, client: RpcEndpoint, node: StubNode) -> None:
    proxy.add(Rule(Fault.OTHER_HASH, times=1), Rule(Fault.TWO_EVENTS, times=1))
    assert client.call("eth_sendRawTransaction", ["0x02"]) == "0x" + "ab" * 32
    assert asked(node) == []
    found = client.call("eth_getLogs", [{}])
    assert [entry.get("data") for entry in found] == [None, "0x01"] * len(LOGS)
    assert client.call("eth_sendRawTransaction", ["0x02"]) == "0xabc"
    assert client.call("eth_getLogs", [{}]) == LOGS
