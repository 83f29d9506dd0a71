from __future__ import annotations

import os
import select
import socket
import threading
import time
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest

from requests_app.errors import ConfigurationError
from requests_app.sockets import free_port
from tests.chain.stub_node import LastReply, http, json_reply, results, stub_node
from tests.waiting import wait_until
from workers.chain.rpc import BATCH_LIMIT, REQUEST_BYTES, RpcEndpoint
from workers.chain.rpc_errors import Failed, Missing, Ok, RpcError, RpcRateLimited, RpcUnavailable, WrongChain, redact

FAST = (1.0, 0.3)


def echo(document: Any, count: int) -> bytes:
    return json_reply(results(document, lambda method, params: [method, *params]))


def test_calls_share_one_connection() -> None:
    with stub_node(echo) as node:
        endpoint = RpcEndpoint(node.url)
        assert [endpoint.call("eth_a", [n]) for n in range(5)] == [["eth_a", n] for n in range(5)]
        assert node.connections == 1
        assert len({request["id"] for request in node.requests}) == 5
        endpoint.close()


def test_error_object_keeps_code_message_and_structured_data() -> None:
    error = {"code": 3, "message": "execution reverted", "data": {"originalError": {"data": "0xd93c0665"}}}
    respond = lambda d, n: json_reply({"jsonrpc": "2.0", "id": d["id"], "error": error})  # noqa: E731
    with stub_node(respond) as node, pytest.raises(RpcError) as caught:
        RpcEndpoint(node.url).call("eth_call", [])
    assert (caught.value.code, caught.value.message) == (3, "execution reverted")
    assert caught.value.revert_data == bytes.fromhex("d93c0665")


def test_json_rpc_error_with_http_error_status_is_still_an_answer() -> None:
    def respond(document: Any, count: int) -> bytes:
        return json_reply({"id": document["id"], "error": {"code": -32603, "message": "nonce too low"}}, 500)

    with stub_node(respond) as node, pytest.raises(RpcError, match="nonce too low"):
        RpcEndpoint(node.url).call("eth_sendRawTransaction", ["0x"])


@pytest.mark.parametrize(
    "reply",
    [
        http(b"<html><body>502 Bad Gateway</body></html>", 502),
        http(b"<html>welcome</html>"),
        json_reply({"jsonrpc": "2.0", "id": 999, "result": "0x1"}),
        json_reply({"jsonrpc": "2.0", "id": 1}),
        json_reply([1, 2]),
        LastReply(b"HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n{"),
        b"nonsense\r\n\r\n",
    ],
)
def test_unusable_answers_leave_the_outcome_unknown(reply: bytes) -> None:
    with stub_node(lambda d, n: reply) as node, pytest.raises(RpcUnavailable) as caught:
        RpcEndpoint(node.url, FAST).call("eth_sendRawTransaction", ["0x00"])
    assert caught.value.sent is True


def test_refused_connection_is_surely_not_sent() -> None:
    with pytest.raises(RpcUnavailable) as caught:
        RpcEndpoint(f"http://127.0.0.1:{free_port()}", FAST).call("eth_sendRawTransaction", ["0x"])
    assert caught.value.sent is False


def test_tls_failure_is_surely_not_sent() -> None:
    with stub_node(echo) as node, pytest.raises(RpcUnavailable) as caught:
        RpcEndpoint(node.url.replace("http:", "https:"), FAST).call("eth_sendRawTransaction", ["0x"])
    assert caught.value.sent is False
    assert not node.requests


def test_read_timeout_is_unknown_and_bounded() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(RpcUnavailable) as caught:
        RpcEndpoint(f"http://127.0.0.1:{silent.getsockname()[1]}", (1.0, 0.1)).call("eth_sendRawTransaction", ["0x"])
    assert caught.value.sent is True
    assert "imed" in str(caught.value)


@pytest.mark.parametrize("told", [b"HTTP/1.1 200 OK\r\nx: ", b"HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n", b"HT"])
@pytest.mark.parametrize("closing", [b"", b"HTTP/1.1 200 OK\r\nconnection: close\r\n"])
def test_a_dripping_node_holds_nobody(told: bytes, closing: bytes) -> None:
    """Each byte comes in time, in the headers as in the body; all of them together have one timeout."""
    done = threading.Event()

    def serve(server: socket.socket) -> None:
        client, _ = server.accept()
        with client, suppress(OSError):
            client.recv(1 << 16)
            client.sendall(closing + told.removeprefix(b"HTTP/1.1 200 OK\r\n") if closing else told)
            while not done.wait(0.05):
                client.sendall(b"1")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        endpoint = RpcEndpoint(f"http://127.0.0.1:{server.getsockname()[1]}", (1.0, 0.4))
        began = time.monotonic()
        try:
            with pytest.raises(RpcUnavailable) as caught:
                endpoint.call("eth_blockNumber")
        finally:
            done.set()
            thread.join(60)
    assert caught.value.sent
    assert time.monotonic() - began < 30


def test_429_is_refused_and_carries_retry_after() -> None:
    with stub_node(lambda d, n: http(b"slow down", 429, "retry-after: 7")) as node:
        endpoint = RpcEndpoint(node.url, clock=lambda: 100.0)
        with pytest.raises(RpcRateLimited) as caught:
            endpoint.call("eth_sendRawTransaction", ["0x"])
    assert (caught.value.sent, caught.value.retry_after, endpoint.available_at) == (False, 7.0, 107.0)


@pytest.mark.parametrize("headers", [["connection: close"], []], ids=["announced", "silent"])
def test_connection_closed_after_an_answer_is_replaced_before_anything_is_sent(headers: list[str]) -> None:
    """A silent hang-up makes the idle socket readable, which is seen before a byte is written: even a send is safe."""

    def respond(document: Any, count: int) -> bytes:
        reply = json_reply(results(document, lambda m, p: m), 200, *headers)
        return LastReply(reply) if count == 1 else reply

    with stub_node(respond) as node:
        endpoint = RpcEndpoint(node.url)
        endpoint.call("eth_a")
        kept = endpoint._connection._connection
        if kept is not None:
            wait_until(lambda: select.select([kept.sock], [], [], 0)[0], 60)
        assert endpoint.call("eth_sendRawTransaction", ["0x"]) == "eth_sendRawTransaction"
        assert (node.connections, len(node.requests)) == (2, 2)


def answers_then_hangs_up(first: int) -> Any:
    """Answers `first` requests, then takes one and closes the connection without an answer, then answers again."""

    def respond(document: Any, count: int) -> bytes | None:
        return None if count == first + 1 else json_reply(results(document, lambda m, p: m))

    return respond


def test_read_on_a_stale_connection_is_asked_once_more() -> None:
    with stub_node(answers_then_hangs_up(1)) as node:
        endpoint = RpcEndpoint(node.url)
        endpoint.call("eth_a")
        assert endpoint.call("eth_blockNumber") == "eth_blockNumber"
        assert [request["method"] for request in node.requests] == ["eth_a", "eth_blockNumber", "eth_blockNumber"]


def test_read_on_a_fresh_connection_is_not_repeated() -> None:
    with stub_node(lambda d, n: None) as node:
        with pytest.raises(RpcUnavailable):
            RpcEndpoint(node.url).call("eth_blockNumber")
        assert len(node.requests) == 1


def test_send_is_never_repeated() -> None:
    with stub_node(answers_then_hangs_up(1)) as node:
        endpoint = RpcEndpoint(node.url)
        endpoint.call("eth_a")
        with pytest.raises(RpcUnavailable) as caught:
            endpoint.call("eth_sendRawTransaction", ["0x"])
        assert caught.value.sent is True
        assert [request["method"] for request in node.requests] == ["eth_a", "eth_sendRawTransaction"]


def test_batch_with_a_send_is_never_repeated() -> None:
    with stub_node(answers_then_hangs_up(1)) as node:
        endpoint = RpcEndpoint(node.url)
        endpoint.call("eth_a")
        answers = endpoint.batch([("eth_getBalance", []), ("eth_sendRawTransaction", ["0x"])])
        assert [type(answer) for answer in answers] == [Missing, Missing]
        assert all(isinstance(answer, Missing) and answer.sent for answer in answers)
        assert len(node.requests) == 2


def test_batch_is_split_ordered_and_mapped_by_id() -> None:
    def respond(document: Any, count: int) -> bytes:
        return json_reply(list(reversed(results(document, lambda m, p: p[0] if p[0] % 7 else {"error": {"code": 1}}))))

    with stub_node(respond) as node:
        answers = RpcEndpoint(node.url).batch([("eth_a", [n]) for n in range(123)])
    assert [len(request) for request in node.requests] == [BATCH_LIMIT, BATCH_LIMIT, 23]
    for number, answer in enumerate(answers):
        assert answer == Ok(number) if number % 7 else isinstance(answer, Failed)


@pytest.mark.parametrize(
    "broken",
    [
        lambda answers: {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "batch too large"}},
        lambda answers: answers[:-1],
        lambda answers: [*answers[:-1], answers[0]],
        lambda answers: [*answers[:-1], {"id": answers[-1]["id"]}],
        lambda answers: [*answers[:-1], {"id": 10**9, "result": 1}],
        lambda answers: [*answers[:-1], {"id": "x", "result": 1}],
        lambda answers: [*answers[:-1], 7],
        lambda answers: "ok",
        lambda answers: None,
    ],
)
def test_broken_batch_answer_is_missing_for_all(broken: Any) -> None:
    with stub_node(lambda d, n: json_reply(broken(results(d, lambda m, p: 1)))) as node:
        answers = RpcEndpoint(node.url).batch([("eth_sendRawTransaction", ["0x"])] * 4)
    assert len(answers) == 4
    assert all(isinstance(answer, Missing) and answer.sent for answer in answers)


def test_batch_is_split_by_bytes_and_a_larger_call_goes_alone() -> None:
    calls = [("eth_a", ["0x" + "00" * size]) for size in (100_000, 100_000, REQUEST_BYTES, 100_000, 400_000, 100_000)]
    with stub_node(lambda d, n: json_reply(results(d, lambda method, params: len(params[0])))) as node:
        answers = RpcEndpoint(node.url).batch(calls)
        assert [answer.value for answer in answers if isinstance(answer, Ok)] == [len(call[1][0]) for call in calls]
        assert [len(request) for request in node.requests] == [2, 1, 1, 1, 1]


def test_transport_failure_in_a_later_request_keeps_the_earlier_answers() -> None:
    with stub_node(lambda d, n: echo(d, n) if n == 1 else None) as node:
        answers = RpcEndpoint(node.url).batch([("eth_sendRawTransaction", [n]) for n in range(BATCH_LIMIT * 3)])
    assert all(isinstance(answer, Ok) for answer in answers[:BATCH_LIMIT])
    second, third = answers[BATCH_LIMIT : 2 * BATCH_LIMIT], answers[2 * BATCH_LIMIT :]
    assert all(isinstance(answer, Missing) and answer.sent for answer in second)
    assert all(isinstance(answer, Missing) and not answer.sent for answer in third)
    assert len(node.requests) == 2


def test_lone_error_object_halves_the_next_batches_and_more_is_tried_ever_later() -> None:
    """A node that takes no more than 20 calls: what larger batches cost becomes rare."""

    def respond(document: Any, count: int) -> bytes:
        if len(document) > 20:
            return json_reply({"error": {"code": -32600, "message": "batch limit"}})
        return json_reply(results(document, lambda m, p: 1))

    with stub_node(respond) as node:
        endpoint = RpcEndpoint(node.url)
        for _ in range(3):
            endpoint.batch([("eth_a", [])] * 24)
        assert [len(request) for request in node.requests] == [24, 24, 12, 12]
        for _ in range(200):
            endpoint.batch([("eth_a", [])] * 24)
        sizes = [len(request) for request in node.requests]
    refused = [place for place, size in enumerate(sizes) if size > 20]
    gaps = [later - earlier for earlier, later in pairwise(refused[1:])]
    assert gaps == sorted(gaps)
    assert gaps[:5] == [5, 9, 17, 33, 65]


def test_a_node_that_stumbles_now_and_then_is_asked_by_large_batches_again() -> None:
    """Found by `make chaos-payments`: after some lone errors a process asked for single calls, for ten minutes after the last."""

    def respond(document: Any, count: int) -> bytes:
        if count % 20 == 1:
            return json_reply({"error": {"code": -32603, "message": "try again"}})
        return json_reply(results(document, lambda m, p: 1))

    with stub_node(respond) as node:
        endpoint = RpcEndpoint(node.url)
        for _ in range(100):
            endpoint.batch([("eth_a", [])] * BATCH_LIMIT)
        sizes = [len(request) for request in node.requests]
    assert sum(sizes) / len(sizes) > BATCH_LIMIT * 0.8
    assert min(sizes) >= BATCH_LIMIT // 4


def test_a_batch_that_a_slow_node_cannot_answer_in_time_becomes_smaller_until_it_can() -> None:
    """Found by `make bench-flow`: fifty estimates took a busy node longer than the timeout, were asked again, and made it busier."""

    def respond(document: Any, count: int) -> bytes:
        time.sleep(0.02 * len(document))
        return json_reply(results(document, lambda m, p: 1))

    with stub_node(respond) as node:
        endpoint = RpcEndpoint(node.url, FAST)
        answers: list[Any] = []
        while not any(isinstance(answer, Ok) for answer in answers):
            assert len(node.requests) < 20
            answers = endpoint.batch([("eth_a", [])] * BATCH_LIMIT)
        sizes = [len(request) for request in node.requests]
    assert sizes[0] == BATCH_LIMIT
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < 0.3 / 0.02


def test_a_slow_node_is_not_asked_for_longer_than_one_answer_may_take() -> None:
    """The lease of whoever asks runs meanwhile. What was answered is used, the rest is surely not sent."""
    now = [0.0]

    def respond(document: Any, count: int) -> bytes:
        now[0] += 0.2
        return json_reply(results(document, lambda m, p: 1))

    with stub_node(respond) as node:
        endpoint = RpcEndpoint(node.url, FAST, clock=lambda: now[0])
        answers = endpoint.batch([("eth_sendRawTransaction", [])] * 100, 10)
    assert [len(request) for request in node.requests] == [10, 5], "two requests took longer than one answer may"
    assert all(isinstance(answer, Ok) for answer in answers[:15])
    assert all(isinstance(answer, Missing) and not answer.sent for answer in answers[15:])
    assert len(answers) == 100


def test_one_call_that_is_refused_says_nothing_of_batches() -> None:
    def respond(document: Any, count: int) -> bytes:
        if len(document) == 1:
            return json_reply({"error": {"code": -32603, "message": "try again"}})
        return json_reply(results(document, lambda m, p: 1))

    with stub_node(respond) as node:
        endpoint = RpcEndpoint(node.url)
        for calls in (1, 1, BATCH_LIMIT):
            endpoint.batch([("eth_a", [])] * calls)
        assert [len(request) for request in node.requests] == [1, 1, BATCH_LIMIT]


def test_chain_id_is_checked_once_and_again_after_an_outage() -> None:
    def respond(document: Any, count: int) -> bytes:
        if count == 3:
            return http(b"", 503)
        return json_reply(results(document, lambda m, p: "0x7" if m == "eth_chainId" else m))

    with stub_node(respond) as node:
        endpoint = RpcEndpoint(node.url, chain_id=7)
        endpoint.call("eth_a")
        with pytest.raises(RpcUnavailable):
            endpoint.call("eth_b")
        endpoint.call("eth_c")
    methods = [request["method"] for request in node.requests]
    assert methods == ["eth_chainId", "eth_a", "eth_b", "eth_chainId", "eth_c"]


def test_wrong_chain_is_refused_before_anything_else_is_sent() -> None:
    with stub_node(lambda d, n: json_reply(results(d, lambda m, p: "0x8"))) as node:
        endpoint = RpcEndpoint(node.url, chain_id=7)
        with pytest.raises(WrongChain, match="serves chain 8, configured is chain 7"):
            endpoint.call("eth_sendRawTransaction", ["0x"])
        with pytest.raises(WrongChain):
            endpoint.batch([("eth_sendRawTransaction", ["0x"])])
        assert {request["method"] for request in node.requests} == {"eth_chainId"}


def test_batch_to_an_unreachable_node_is_surely_not_sent() -> None:
    for chain_id in (None, 7):
        answers = RpcEndpoint(f"http://127.0.0.1:{free_port()}", chain_id=chain_id).batch([("eth_a", [])] * 2)
        assert all(isinstance(answer, Missing) and not answer.sent for answer in answers)


def test_errors_and_logs_never_show_the_url(caplog: pytest.LogCaptureFixture) -> None:
    secret = "s3cr3tpath"
    url = f"http://user:{secret}@127.0.0.1:{free_port()}/v2/{secret}?key={secret}"
    with pytest.raises(RpcUnavailable) as caught:
        RpcEndpoint(url).call("eth_a")
    text = f"{caught.value} {caplog.text} {[vars(record) for record in caplog.records]}"
    assert secret not in text
    assert caplog.records
    message = f"HTTP error for url (https://node.example/v2/{secret}) api_key={secret} at wss://x/{secret}"
    assert secret not in str(RpcError(-32000, message))
    assert redact(message).startswith("HTTP error for url (<url>")


def test_credentials_of_the_url_become_a_header() -> None:
    with stub_node(echo) as node:
        RpcEndpoint(node.url.replace("//", "//me:pa%3Ass@")).call("eth_a")
    assert b"authorization: Basic bWU6cGE6c3M=" in node.heads[0]


def test_inherited_connection_is_not_used_after_a_fork() -> None:
    with stub_node(echo) as node:
        endpoint = RpcEndpoint(node.url)
        endpoint.call("eth_a")
        endpoint._connection._owner = os.getpid() + 1
        endpoint.call("eth_b")
        wait_until(lambda: node.connections == 2, 60)


@pytest.mark.parametrize("url", ["ftp://x", "127.0.0.1:8545", "http://", ""])
def test_bad_urls_are_configuration_errors_without_the_url(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        RpcEndpoint(url)
    assert not url or url not in str(caught.value)


def test_a_chain_without_a_final_mark_is_asked_so_many_blocks_below_its_head() -> None:
    """The head is this very node's: one that lags calls less final."""

    def respond(document: Any, count: int) -> bytes:
        heads = {"eth_blockNumber": "0x64"}
        return json_reply(results(document, lambda method, params: heads.get(method, params)))

    asked = [("eth_call", [{"to": "0x"}, "finalized"]), ("eth_getTransactionCount", ["0x", "latest"])]
    with stub_node(respond) as node:
        endpoint = RpcEndpoint(node.url, finality_depth=12)
        assert endpoint.batch(asked) == [Ok([{"to": "0x"}, "0x58"]), Ok(["0x", "latest"])]
        assert endpoint.call("eth_getBlockByNumber", ["finalized", False]) == ["0x58", False]
        before = len(node.requests)
        assert endpoint.call("eth_getBlockByNumber", ["latest", False]) == ["latest", False]
        assert len(node.requests) == before + 1
        assert RpcEndpoint(node.url, finality_depth=101).call("eth_call", ["finalized"]) == ["0x0"]
        assert RpcEndpoint(node.url).call("eth_call", ["finalized"]) == ["finalized"]


@pytest.mark.parametrize("head", ["nonsense", {"error": {"code": -32000, "message": "syncing"}}])
def test_without_a_head_nothing_is_asked_of_the_final_block(head: Any) -> None:
    with stub_node(lambda document, count: json_reply(results(document, lambda method, params: head))) as node:
        answers = RpcEndpoint(node.url, finality_depth=12).batch([("eth_call", ["finalized"])] * 2)
    assert [(type(one), getattr(one, "sent", None)) for one in answers] == [(Missing, False)] * 2
