from __future__ import annotations

import threading
from typing import Any

import pytest

from requests_app.config import Config, HostChain
from requests_app.errors import WalletCheckFailed
from tests.chain.bodies import GATEWAY
from tests.chain.stub_node import http, json_reply, results, stub_node
from workers.chain.precheck import Verifier

ACCEPT = "0x1626ba7e" + "00" * 28


def config(url: str) -> Config:
    return Config(GATEWAY, {8009: HostChain(8009, url, b"\xac" * 20, None, None)}, 9)


def answering(answer: Any) -> Any:
    return lambda d, n: json_reply(results(d, lambda m, p: "0x1f49" if m == "eth_chainId" else answer))


def check(verifier: Verifier) -> bool:
    return verifier.is_valid(8009, b"\x01" * 20, b"\x02" * 32, b"signature")


def test_verdicts() -> None:
    for answer, expected in ((ACCEPT, True), ("0x", False)):
        with stub_node(answering(answer)) as node:
            assert check(Verifier(lambda url=node.url: config(url))) is expected  # type: ignore[misc]


def test_outage_is_asked_three_times_a_second_apart() -> None:
    pauses: list[float] = []
    with stub_node(lambda d, n: http(b"", 502)) as node:
        verifier = Verifier(lambda: config(node.url), pauses.append)
        with pytest.raises(WalletCheckFailed):
            check(verifier)
        assert len(node.requests) == 3
    assert pauses == [1.0, 1.0]


def test_third_attempt_may_succeed() -> None:
    def respond(document: Any, count: int) -> bytes:
        return http(b"", 502) if count < 3 else answering(ACCEPT)(document, count)

    with stub_node(respond) as node:
        assert check(Verifier(lambda: config(node.url), lambda seconds: None)) is True


def test_unknown_and_wrong_chains_are_failures_not_verdicts() -> None:
    with stub_node(lambda d, n: json_reply(results(d, lambda m, p: "0x1"))) as node:
        verifier = Verifier(lambda: config(node.url))
        with pytest.raises(WalletCheckFailed, match="serves chain 1"):
            check(verifier)
        with pytest.raises(WalletCheckFailed, match="no host chain 5"):
            verifier.is_valid(5, b"\x01" * 20, b"\x02" * 32, b"")


def test_threads_do_not_share_connections() -> None:
    with stub_node(answering(ACCEPT)) as node:
        verifier = Verifier(lambda: config(node.url))
        verdicts: list[bool] = []
        threads = [threading.Thread(target=lambda: verdicts.append(check(verifier))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert verdicts == [True] * 4
        assert node.connections == 4
