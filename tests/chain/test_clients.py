from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from eth_abi.abi import encode

from requests_app.config import Config, HostChain
from requests_app.states import Kind
from tests.chain.bodies import GATEWAY, PUBLIC
from tests.chain.stub_node import StubNode, json_reply, results, stub_node
from workers.chain import Clients, open_clients, open_signers
from workers.chain.calldata import ContractCall, encode_readiness
from workers.chain.client import log_filter
from workers.chain.endpoints import Endpoints
from workers.chain.events import TOPICS, EventKind
from workers.chain.fees import EMPTY_WORD_GAS
from workers.chain.gateway import GatewayClient
from workers.chain.rpc import FINALIZED
from workers.chain.rpc_errors import Failed, Missing, Ok, RpcUnavailable, WrongChain
from workers.chain.views import Account

YES, NO = (1).to_bytes(32, "big"), bytes(32)
ACL, PROTOCOL = b"\xac" * 20, b"\xbc" * 20
BLOCK = {"hash": "0x" + "01" * 32, "parentHash": "0x" + "02" * 32, "timestamp": "0x1", "baseFeePerGas": "0x1"}
Value = Callable[[str, Any], Any]


def hexed(raw: bytes) -> str:
    return "0x" + raw.hex()


def reply(value: Value) -> Callable[[Any, int], bytes]:
    return lambda document, count: json_reply(results(document, value))


@contextmanager
def gateway(value: Value) -> Iterator[tuple[GatewayClient, StubNode]]:
    with stub_node(reply(value)) as node:
        client = GatewayClient(Endpoints([node.url]), GATEWAY)
        yield client, node
        client.close()


def header(number: int) -> dict[str, str]:
    return {"number": hex(number), "hash": "0x" + "aa" * 32, "parentHash": "0x" + "bb" * 32, "timestamp": "0x5"}


def test_identity_and_blocks() -> None:
    tags: list[Any] = []

    def value(method: str, params: Any) -> Any:
        if method != "eth_getBlockByNumber":
            return "0x10"
        tags.append(params[0])
        return None if params[0] == "0x7" else header({"latest": 9, "finalized": 7}.get(params[0], 0))

    with gateway(value) as (client, _):
        assert (client.chain_id(), client.head_number()) == (16, 16)
        assert (client.head().number, client.finalized().number) == (9, 7)
        assert client.genesis_hash() == b"\xaa" * 32
        first, second = client.blocks([1, 7])
        assert isinstance(first, Ok)
        assert second == Ok(None)
    assert tags == ["latest", "finalized", "0x0", "0x1", "0x7"]


def test_readiness_of_hundreds_of_rows_keeps_order_and_isolates_failures() -> None:
    answers = {
        0: hexed(YES),
        1: hexed(NO),
        2: {"error": {"code": 3, "message": "execution reverted"}},
        3: "0x",
        4: "zz",
    }
    count = 0

    def value(method: str, params: Any) -> Any:
        nonlocal count
        assert method == "eth_call"
        assert params[0]["to"] == hexed(GATEWAY.decryption)
        count += 1
        return answers[(count - 1) % 5]

    with gateway(value) as (client, node):
        found = client.is_ready([encode_readiness(Kind.PUBLIC_DECRYPT, PUBLIC)] * 205)
        assert len(node.requests) == 5
    for index, answer in enumerate(found):
        if index % 5 in (0, 1):
            assert answer == Ok(index % 5 == 0)
        else:
            assert isinstance(answer, Failed)


def test_reconciliation_views_ask_the_right_contract_with_the_right_selector() -> None:
    asked: list[tuple[str, str]] = []

    def value(method: str, params: Any) -> Any:
        asked.append((params[0]["to"], params[0]["data"][:10]))
        return hexed(YES)

    ref = (1 << 248).to_bytes(32, "big")
    with gateway(value) as (client, node):
        assert client.is_decryption_done([ref]) == [Ok(True)]
        assert client.is_proof_verified([ref]) == [Ok(True)]
        assert client.is_proof_rejected([ref], "finalized") == [Ok(True)]
        assert node.requests[-1][0]["params"][1] == "finalized"
        assert node.requests[0][0]["params"][0]["data"].endswith(ref.hex())
    decryption, verification = hexed(GATEWAY.decryption), hexed(GATEWAY.input_verification)
    assert asked == [(decryption, "0x58f5b8ab"), (verification, "0xe96f88ea"), (verification, "0x0c615839")]


def test_accounts_take_the_greater_count() -> None:
    def value(method: str, params: Any) -> Any:
        if method == "eth_getBalance":
            return "0x64"
        return {"latest": "0x9", "pending": "0x7"}[params[1]]

    with gateway(value) as (client, _):
        assert client.accounts([b"\x01" * 20] * 40) == [Ok(Account(9, 9, 100))] * 40
        assert client.transaction_counts([b"\x01" * 20]) == [Ok(9)]


def test_an_account_without_one_of_its_answers_is_not_an_account() -> None:
    def value(method: str, params: Any) -> Any:
        return {"error": {"code": -1, "message": "no"}} if method == "eth_getBalance" else "0x1"

    with gateway(value) as (client, _):
        assert isinstance(client.accounts([b"\x01" * 20])[0], Failed)


RECEIPT = {
    "transactionHash": "0x" + "a1" * 32,
    "blockNumber": "0x5",
    "blockHash": "0x" + "b1" * 32,
    "status": "0x0",
    "from": "0x" + "01" * 20,
    "to": "0x" + "d0" * 20,
    "gasUsed": "0x64",
    "logs": [],
}


def test_receipts_come_in_batches_of_fifty() -> None:
    def value(method: str, params: Any) -> Any:
        kind = int(params[0][-2:], 16) % 3
        return [RECEIPT, None, {**RECEIPT, "status": None}][kind]

    with gateway(value) as (client, node):
        found = client.receipts([bytes(31) + bytes([index]) for index in range(120)])
        assert [len(request) for request in node.requests] == [50, 50, 20]
    first, second, third = found[:3]
    assert isinstance(first, Ok)
    assert first.value is not None
    assert (first.value.status, first.value.block_number, first.value.to) == (0, 5, b"\xd0" * 20)
    assert second == Ok(None)
    assert isinstance(third, Failed)


def test_transactions_tell_pending_from_mined() -> None:
    seen = {"hash": "0x" + "a1" * 32, "from": "0x" + "01" * 20, "to": None, "nonce": "0x4"}
    mined = {**seen, "blockHash": "0x" + "b1" * 32, "blockNumber": "0x5"}
    answers = iter([{**seen, "blockHash": None, "blockNumber": None}, mined, None])
    with gateway(lambda method, params: next(answers)) as (client, _):
        pending, included, unknown = client.transactions([b"\xa1" * 32] * 3)
    assert isinstance(pending, Ok)
    assert pending.value is not None
    assert (pending.value.nonce, pending.value.block_number) == (4, None)
    assert isinstance(included, Ok)
    assert included.value is not None
    assert included.value.block_number == 5
    assert unknown == Ok(None)


def test_estimates_carry_the_margin_and_the_revert() -> None:
    def value(method: str, params: Any) -> Any:
        assert (method, params[0]["from"], params[1]) == ("eth_estimateGas", "0x" + "01" * 20, "latest")
        if params[0]["data"] == "0x02":
            return {"error": {"code": 3, "message": "execution reverted", "data": "0x2a873d27"}}
        return "0x3e8"

    with gateway(value) as (client, _):
        good, bad = client.estimate_gas(b"\x01" * 20, [ContractCall(ACL, b"\x01"), ContractCall(ACL, b"\x02")])
    assert good == Ok(1200 + EMPTY_WORD_GAS)
    assert isinstance(bad, Failed)
    assert bad.error.revert_data == bytes.fromhex("2a873d27")


def test_fee_token_reads() -> None:
    with gateway(lambda method, params: hexed((7).to_bytes(32, "big"))) as (client, node):
        assert client.fee_balances([b"\x01" * 20]) == [Ok(7)]
        assert client.fee_allowances([b"\x01" * 20], b"\x02" * 20) == [Ok(7)]
        assert {request[0]["params"][0]["to"] for request in node.requests} == {hexed(GATEWAY.fee_token or b"")}


SHARE_TOPIC = "0x7fcdfb5381917f554a717d0a5470a33f5a49ba6445f05ec43c74c0bc2cc608b2"


def share_log(index: int) -> dict[str, Any]:
    return {
        "address": hexed(GATEWAY.decryption),
        "topics": [SHARE_TOPIC, "0x" + "02" * 32],
        "data": hexed(encode(["uint256", "bytes", "bytes", "bytes"], [index, b"s", b"g", b""])),
        "blockNumber": "0x5",
        "logIndex": hex(index),
        "blockHash": "0x" + "b1" * 32,
        "transactionHash": "0x" + "a1" * 32,
    }


def test_events_are_filtered_by_address_and_topic() -> None:
    with gateway(lambda method, params: [share_log(2), share_log(1)]) as (client, node):
        found = client.events(5, 9)
        assert [envelope.kind for envelope in found.envelopes] == [EventKind.USER_SHARE_RESPONDED] * 2
        asked = node.requests[0]["params"][0]
        assert (asked["fromBlock"], asked["toBlock"], len(asked["address"]), len(asked["topics"][0])) == (
            "0x5",
            "0x9",
            2,
            len(TOPICS),
        )
        client.events_of([b"\x02" * 32] * 150, 0, 9)
        assert [len(request["params"][0]["topics"][1]) for request in node.requests[1:]] == [100, 50]


def test_log_filter_places_alternatives_and_wildcards() -> None:
    assert log_filter(1, 2, [b"\x01" * 20], [None, [b"\x02" * 32]]) == {
        "fromBlock": "0x1",
        "toBlock": "0x2",
        "address": ["0x" + "01" * 20],
        "topics": [None, ["0x" + "02" * 32]],
    }


@pytest.mark.parametrize("answer", [None, {}, "0x", 5])
def test_logs_that_are_no_list_are_an_outage_not_an_empty_range(answer: Any) -> None:
    with gateway(lambda method, params: answer) as (client, _), pytest.raises(RpcUnavailable):
        client.events(1, 2)


def test_clients_cover_the_configuration_and_refuse_another_chain() -> None:
    with stub_node(reply(lambda method, params: hex(654321))) as node:
        gateway_config = type(GATEWAY)(
            **{**{f: getattr(GATEWAY, f) for f in GATEWAY.__slots__}, "rpc_urls": (node.url,)}
        )
        hosts = {8009: HostChain(8009, node.url, ACL, PROTOCOL, None), 5: HostChain(5, node.url, ACL, None, None)}
        config = Config(gateway_config, hosts, 9)
        clients = open_clients(config)
        assert isinstance(clients, Clients)
        assert node.connections == 0
        assert clients.protocol is clients.hosts[8009]
        assert clients.gateway.chain_id() == 654321
        with pytest.raises(WrongChain):
            clients.hosts[8009].head_number()
        clients.close()
        assert [signer.chain_id for signer in open_signers(config).values()] == [654321]


def test_with_a_depth_everybody_asks_below_the_head() -> None:
    """What closes a nonce, settles a payment and proves a nonce dead (each node by itself) is one setting."""

    def value(method: str, params: Any) -> Any:
        found = {"eth_chainId": hex(654321), "eth_blockNumber": "0x64", "eth_getTransactionCount": "0x5"}
        return found.get(method) or {**BLOCK, "number": params[0]}

    with stub_node(reply(value)) as node:
        clients = open_clients(Config(replace(GATEWAY, rpc_urls=(node.url,), finality_depth=12), {}, 9))
        assert clients.gateway.finalized().number == 88
        assert clients.gateway.transaction_counts([b"\x01" * 20], FINALIZED) == [Ok(5)]
        for endpoint in clients.endpoints.all:
            assert endpoint.batch([("eth_getTransactionCount", ["0x", FINALIZED])]) == [Ok("0x5")]
        clients.close()
        flat = [call for sent in node.requests for call in (sent if isinstance(sent, list) else [sent])]
    asked = [call["params"] for call in flat if call["method"] in ("eth_getBlockByNumber", "eth_getTransactionCount")]
    assert [params for params in asked if "0x58" not in params] == []


def test_nothing_raises_when_the_chain_is_away() -> None:
    client = GatewayClient(Endpoints(["http://127.0.0.1:1"]), GATEWAY)
    assert all(isinstance(answer, Missing) and not answer.sent for answer in client.receipts([b"\x01" * 32] * 3))
    assert all(isinstance(answer, Missing) for answer in client.accounts([b"\x01" * 20] * 3))
