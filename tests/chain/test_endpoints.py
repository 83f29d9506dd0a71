from __future__ import annotations

from typing import Any

import pytest

from requests_app.errors import ConfigurationError
from tests.chain.stub_node import http, json_reply, results, stub_node
from workers.chain.endpoints import Endpoints
from workers.chain.rpc_errors import Ok, RpcUnavailable


def echo(document: Any, count: int) -> bytes:
    return json_reply(results(document, lambda method, params: [method, *params]))


def test_reads_fail_over_and_the_failed_node_rests() -> None:
    now = [0.0]
    with stub_node(lambda d, n: http(b"down", 503)) as bad, stub_node(echo) as good:
        endpoints = Endpoints([bad.url, good.url], clock=lambda: now[0])
        assert endpoints.call("eth_a") == ["eth_a"]
        assert endpoints.call("eth_b") == ["eth_b"]
        assert len(bad.requests) == 1
        assert endpoints.send() is endpoints.all[1]
        now[0] += 1.0
        assert endpoints.send() is endpoints.all[0]
        endpoints.close()


def test_with_every_node_at_rest_the_soonest_is_tried() -> None:
    with stub_node(lambda d, n: http(b"", 503)) as first, stub_node(lambda d, n: http(b"", 503)) as second:
        endpoints = Endpoints([first.url, second.url], clock=lambda: 0.0)
        for _ in range(3):
            with pytest.raises(RpcUnavailable):
                endpoints.call("eth_a")
        assert (len(first.requests), len(second.requests)) == (3, 3)


def test_batch_elements_without_answer_are_asked_on_the_next_node() -> None:
    with stub_node(lambda d, n: json_reply(results(d, lambda m, p: 1)[:-1])) as short, stub_node(echo) as good:
        answers = Endpoints([short.url, good.url]).batch([("eth_a", [n]) for n in range(3)])
    assert answers == [Ok(["eth_a", n]) for n in range(3)]


def test_submissions_do_not_fail_over() -> None:
    with pytest.raises(ValueError, match="not a read"):
        Endpoints(["http://127.0.0.1:1"]).call("eth_sendRawTransaction", ["0x"])
    with pytest.raises(ValueError, match="send"):
        Endpoints(["http://127.0.0.1:1"]).batch([("eth_call", []), ("eth_sendRawTransaction", ["0x"])])


def test_no_endpoint_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError):
        Endpoints([])
