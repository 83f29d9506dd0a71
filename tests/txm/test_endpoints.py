"""Several endpoints: which one is asked, what counts against one and what does not, and who is kept out."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chain.stub_node import json_reply, results, stub_node
from workers.chain.budget import TokenBucket
from workers.chain.endpoints import Endpoints
from workers.chain.errors import SendClass, classify_send
from workers.chain.rpc_errors import Missing, Ok, RpcError, RpcUnavailable, WrongChain


class Fake:
    """A node whose chain and height the test decides."""

    def __init__(self, chain: int = 7, height: int = 100) -> None:
        self.chain, self.height, self.error, self.methods = chain, height, "", list[str]()

    def respond(self, document: Any, count: int) -> bytes:
        return json_reply(results(document, self.answer))

    def answer(self, method: str, params: Any) -> Any:
        self.methods.append(method)
        if self.error and method not in ("eth_chainId", "eth_blockNumber"):
            return {"error": {"code": -32603, "message": self.error}}
        return {"eth_chainId": hex(self.chain), "eth_blockNumber": hex(self.height)}.get(method, "0x1")


def two(first: Fake, second: Fake, clock: Any, **options: Any) -> Any:
    from contextlib import ExitStack

    stack = ExitStack()
    urls = [stack.enter_context(stub_node(one.respond)).url for one in (first, second)]
    endpoints = Endpoints(urls, 7, clock=clock, **options)
    stack.callback(endpoints.close)
    return stack, endpoints


def test_verdicts_of_the_chain_never_count_against_an_endpoint() -> None:
    """OpenZeppelin 681: "nonce too low" paused every provider until nothing was sent any more."""
    first, second = Fake(), Fake()
    stack, endpoints = two(first, second, lambda: 0.0)
    first.error = "nonce too low"
    with stack:
        for _ in range(20):
            with pytest.raises(RpcError):
                endpoints.call("eth_call")
            answers = endpoints.send().batch([("eth_sendRawTransaction", ["0x"])] * 3)
            assert {classify_send(one) for one in answers} == {SendClass.NONCE_TOO_LOW}
        assert endpoints.send() is endpoints.all[0]
    assert second.methods == []


def test_a_node_of_another_chain_is_kept_out_and_asked_again_later() -> None:
    now = [0.0]
    first, second = Fake(chain=8), Fake()
    stack, endpoints = two(first, second, lambda: now[0])
    with stack:
        assert endpoints.call("eth_gasPrice") == "0x1"
        assert endpoints.batch([("eth_gasPrice", [])]) == [Ok("0x1")]
        assert endpoints.send() is endpoints.all[1]
        assert set(first.methods) == {"eth_chainId"}
        first.chain = 7
        now[0] = 61.0
        assert endpoints.send() is endpoints.all[0]


def test_all_nodes_of_another_chain_is_an_error() -> None:
    stack, endpoints = two(Fake(chain=8), Fake(chain=8), lambda: 0.0)
    with stack:
        with pytest.raises(WrongChain):
            endpoints.read()
        with pytest.raises(WrongChain):
            endpoints.batch([("eth_gasPrice", [])])
        with pytest.raises(WrongChain):
            endpoints.call("eth_gasPrice")


def test_a_node_that_becomes_another_chain_is_found_by_the_examination() -> None:
    now = [0.0]
    first, second = Fake(), Fake()
    stack, endpoints = two(first, second, lambda: now[0])
    with stack:
        assert endpoints.send() is endpoints.all[0]
        first.chain = 8
        assert endpoints.send() is endpoints.all[0]
        now[0] = 11.0
        endpoints.examine()
        assert endpoints.send() is endpoints.all[1]


def test_the_only_endpoint_on_another_chain_is_told_at_once() -> None:
    now, only = [0.0], Fake()
    with stub_node(only.respond) as node:
        endpoints = Endpoints([node.url], 7, clock=lambda: now[0])
        endpoints.call("eth_gasPrice")
        only.chain, now[0] = 8, 11.0
        with pytest.raises(WrongChain):
            endpoints.examine()
        endpoints.close()


def test_a_node_far_behind_is_asked_last() -> None:
    now = [0.0]
    first, second = Fake(height=100), Fake(height=130)
    stack, endpoints = two(first, second, lambda: now[0])
    with stack:
        assert endpoints.read() is endpoints.all[0]
        now[0] = 11.0
        endpoints.examine()
        assert endpoints.read() is endpoints.all[1]
        first.height, now[0] = 125, 22.0
        endpoints.examine()
        assert endpoints.read() is endpoints.all[0]


def test_the_budget_is_ours_and_not_the_nodes_fault() -> None:
    now = [0.0]
    first, second = Fake(), Fake()
    stack, endpoints = two(first, second, lambda: now[0], budget=5)
    with stack:
        for _ in range(4):  # and one for the chain id
            endpoints.call("eth_gasPrice")
        assert "eth_gasPrice" not in second.methods
        endpoints.call("eth_gasPrice")
        assert second.methods[-1] == "eth_gasPrice"  # the next endpoint has one of its own
        (answer,) = endpoints.all[0].batch([("eth_gasPrice", [])])
        assert isinstance(answer, Missing)
        assert not answer.sent
        # Sends have their own budget, and nothing of this is a failure.
        assert endpoints.all[0].batch([("eth_sendRawTransaction", ["0x"])]) == [Ok("0x1")]
        now[0] = 0.25
        assert endpoints.read() is endpoints.all[0]


def test_no_further_node_is_tried_after_the_deadline() -> None:
    now = [0.0]

    def slow(document: Any, count: int) -> bytes:
        now[0] += 25.0
        return b"HTTP/1.1 503 busy\r\nContent-Length: 0\r\n\r\n"

    good = Fake()
    with stub_node(slow) as bad, stub_node(good.respond) as node:
        endpoints = Endpoints([bad.url, node.url], clock=lambda: now[0])
        with pytest.raises(RpcUnavailable):
            endpoints.call("eth_gasPrice")
        assert good.methods == []
        endpoints.close()


def test_a_bucket() -> None:
    now = [0.0]
    bucket = TokenBucket(10, 5, clock=lambda: now[0])
    assert [bucket.take(1) for _ in range(6)] == [True] * 5 + [False]
    assert bucket.ready_at == pytest.approx(0.1)
    now[0] = 0.35
    assert bucket.take(3)
    assert not bucket.take(1)
    now[0] = 10.0
    assert bucket.take(50)  # a batch may overdraw, and is worked off
    now[0] = 14.0
    assert not bucket.take(1)
    now[0] = 14.7
    assert bucket.take(1)
    assert TokenBucket(0).take(10**9)
    assert TokenBucket(0).ready_at == 0.0
