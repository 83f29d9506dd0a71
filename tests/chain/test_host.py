from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from eth_abi.abi import encode

from requests_app.config import HostChain
from requests_app.errors import ConfigurationError
from requests_app.states import Kind
from tests.chain.bodies import DIRECT
from tests.chain.stub_node import http, json_reply, results, stub_node
from workers.chain.acl import acl_checks
from workers.chain.endpoints import Endpoints
from workers.chain.host import HostClient
from workers.chain.rpc_errors import Failed, Ok, RpcError, RpcUnavailable

YES, NO = (1).to_bytes(32, "big"), bytes(32)
ACL, PROTOCOL = b"\xac" * 20, b"\xbc" * 20
Value = Callable[[str, Any], Any]


def hexed(raw: bytes) -> str:
    return "0x" + raw.hex()


@contextmanager
def host(value: Value, clock: Callable[[], float] = lambda: 0.0, protocol: bytes | None = PROTOCOL) -> Iterator[Any]:
    with stub_node(lambda d, n: json_reply(results(d, value))) as node:
        chain = HostChain(8009, node.url, ACL, protocol, None)
        client = HostClient(Endpoints([node.url]), chain, clock=clock)
        yield client, node
        client.close()


def test_acl_denials_by_request() -> None:
    checks = acl_checks(Kind.USER_DECRYPT, None, DIRECT)[8009]
    answers = iter(
        [
            hexed(encode(["bytes[]"], [[YES] * 4])),
            hexed(encode(["bytes[]"], [[YES, NO, YES, NO]])),
            {"error": {"code": -32000, "message": "header not found"}},
            hexed(encode(["bytes[]"], [[YES] * 3])),
        ]
    )
    with host(lambda method, params: next(answers)) as (client, node):
        allowed, denied, failed, short = client.acl_check([checks] * 4)
        assert len(node.requests) == 1
        assert node.requests[0][0]["params"] == [
            {"to": hexed(ACL), "data": node.requests[0][0]["params"][0]["data"]},
            "latest",
        ]
    assert allowed == Ok([])
    assert denied == Ok([checks[1], checks[3]])
    assert isinstance(failed, Failed)
    assert isinstance(short, Failed)


def test_threshold_is_remembered_for_its_time_and_failures_are_not() -> None:
    now = [0.0]
    answers: list[Any] = [
        {"error": {"code": 3, "message": "execution reverted", "data": "0x77ddbe81"}},
        "0x",
        hexed(bytes(32)),
        hexed((1 << 40).to_bytes(32, "big")),
        hexed((9).to_bytes(32, "big")),
        hexed((7).to_bytes(32, "big")),
    ]
    with host(lambda method, params: answers.pop(0), lambda: now[0]) as (client, node):
        for _ in range(4):
            with pytest.raises(RpcError):
                client.threshold_for_context(7 << 248)
        assert [client.threshold_for_context(7 << 248) for _ in range(3)] == [9, 9, 9]
        now[0] = 600.0
        assert client.threshold_for_context(7 << 248) == 7
        assert node.requests[0]["params"][0]["data"] == "0x281e8bfe" + (7 << 248).to_bytes(32, "big").hex()


def test_threshold_needs_a_contract_address() -> None:
    with host(lambda method, params: "0x", protocol=None) as (client, _), pytest.raises(ConfigurationError):
        client.threshold_for_context(1)


@pytest.mark.parametrize(
    ("answer", "accepted"),
    [
        ("0x1626ba7e" + "00" * 28, True),
        ("0x1626ba7e", False),
        ("0x", False),
        ("0xffffffff" + "00" * 28, False),
        ({"error": {"code": 3, "message": "execution reverted"}}, False),
        ({"error": {"code": -32000, "message": "reverted", "data": "0x08c379a0"}}, False),
        ({"error": {"code": -32000, "message": "out of gas"}}, False),
    ],
)
def test_wallet_answers(answer: Any, accepted: bool) -> None:
    with host(lambda method, params: answer) as (client, node):
        assert client.wallet_accepts(b"\x01" * 20, b"\x02" * 32, b"sig") is accepted
        assert node.requests[0]["params"][0]["gas"] == hex(100_000)
        assert node.requests[0]["params"][0]["data"].startswith("0x1626ba7e")


def test_a_silent_chain_is_no_verdict_on_a_wallet() -> None:
    lagging = {"error": {"code": -32000, "message": "header not found"}}
    with host(lambda method, params: lagging) as (client, _), pytest.raises(RpcUnavailable):
        client.wallet_accepts(b"\x01" * 20, b"\x02" * 32, b"")
    with stub_node(lambda document, count: http(b"", 502)) as node:
        client = HostClient(Endpoints([node.url]), HostChain(8009, node.url, ACL, None, None))
        with pytest.raises(RpcUnavailable):
            client.wallet_accepts(b"\x01" * 20, b"\x02" * 32, b"")
