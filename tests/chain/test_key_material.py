from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from eth_abi.abi import encode

from requests_app.config import HostChain
from requests_app.errors import ConfigurationError
from tests.chain.stub_node import http, json_reply, results, stub_node
from workers.chain.key_material import KeyMaterial, KeyMaterialUnavailable, read_key_material
from workers.chain.rpc_errors import WrongChain

CONTEXT, KEY, CRS = (7 << 248) + 2, (4 << 248) + 3, (5 << 248) + 4
PROTOCOL, GENERATION = b"\xbc" * 20, b"\xbd" * 20
NEW_CONTEXT = "0x204d6b80121154cd87d99cf54c639a3dd0a53b3084277098de972ebdd34c6be9"


def hexed(types: list[str], values: list[Any]) -> str:
    return "0x" + encode(types, values).hex()


def node_of(url: str, prefix: str) -> tuple[Any, ...]:
    return ("0x" + "01" * 20, "0x" + "02" * 20, "1.2.3.4", url, 1, "mpc", b"cert", prefix)


def context_log(nodes: list[tuple[Any, ...]]) -> dict[str, Any]:
    types = [
        "(address,address,string,string,int32,string,bytes,string)[]",
        "(uint256,uint256,uint256,uint256)",
        "string",
        "(bytes,bytes,bytes)[]",
    ]
    return {
        "address": "0x" + PROTOCOL.hex(),
        "topics": [
            NEW_CONTEXT,
            "0x" + CONTEXT.to_bytes(32, "big").hex(),
            "0x" + (CONTEXT - 1).to_bytes(32, "big").hex(),
        ],
        "data": hexed(types, [nodes, (9, 9, 9, 4), "v1", []]),
        "blockNumber": "0x2a",
        "logIndex": "0x0",
        "transactionIndex": "0x0",
        "transactionHash": "0x" + "a1" * 32,
        "blockHash": "0x" + "b1" * 32,
        "removed": False,
    }


def chain(changes: dict[str, Any] | None = None, asked: list[Any] | None = None) -> Callable[[Any, int], bytes]:
    answers: dict[str, Any] = {
        "0xd52f10eb": hexed(["uint256"], [KEY]),
        "0xbaff211e": hexed(["uint256"], [CRS]),
        "0x65b394af": hexed(["uint256", "uint256"], [CONTEXT, 8 << 248]),
        "0x936608ae": hexed(["string[]", "(uint8,bytes)[]"], [["s"], [(0, b"d")]]),
        "0xc55b8724": hexed(["string[]", "bytes"], [["s"], b"d"]),
        "0xc999a8b4": hexed(["uint256", "bytes32"], [42, b"\x01" * 32]),
        "eth_getLogs": [
            context_log([node_of("http://old:1", "OLD")]),
            context_log([node_of("http://minio:9000/kms-public/", "PUB-p1"), node_of("http://other:1", "PUB-p2")]),
        ],
        "eth_chainId": "0x1f49",
        "eth_getCode": "0x",
        **(changes or {}),
    }

    def value(method: str, params: Any) -> Any:
        if asked is not None:
            asked.append((method, params))
        if method == "eth_call":
            return answers[(params[0].get("data") or params[0]["input"])[:10]]
        return answers[method]

    return lambda document, count: json_reply(results(document, value))


def host(url: str) -> HostChain:
    return HostChain(8009, url, b"\xac" * 20, PROTOCOL, GENERATION)


def asks_at(one: HostChain) -> set[Any]:
    """The blocks that a chain with a head of 100 is asked at."""
    asked: list[Any] = []
    with stub_node(chain({"eth_blockNumber": "0x64"}, asked=asked)) as node:
        read_key_material(replace(one, url=node.url))
    return {params[1] for method, params in asked if method == "eth_call"}


def test_first_node_of_the_last_event_in_the_anchor_block_is_published() -> None:
    asked: list[Any] = []
    with stub_node(chain(asked=asked)) as node:
        material = read_key_material(host(node.url))
    assert material == KeyMaterial(
        KEY.to_bytes(32, "big"),
        CRS.to_bytes(32, "big"),
        CONTEXT.to_bytes(32, "big"),
        "http://minio:9000/kms-public/",
        "PUB-p1",
    )
    key, crs = KEY.to_bytes(32, "big").hex(), CRS.to_bytes(32, "big").hex()
    assert material.body() == {
        "fheKeyInfo": [
            {
                "fhePublicKey": {
                    "dataId": "0x" + key,
                    "urls": [f"http://minio:9000/kms-public/PUB-p1/PublicKey/{key}"],
                }
            }
        ],
        "crs": {"2048": {"dataId": "0x" + crs, "urls": [f"http://minio:9000/kms-public/PUB-p1/CRS/{crs}"]}},
    }
    assert {params[1] for method, params in asked if method == "eth_call"} == {"finalized"}
    assert asks_at(replace(host(""), finality_depth=12)) == {"0x58"}
    (logs,) = [params[0] for method, params in asked if method == "eth_getLogs"]
    assert (logs["fromBlock"], logs["toBlock"]) == ("0x2a", "0x2a")
    assert logs["topics"] == [NEW_CONTEXT, "0x" + CONTEXT.to_bytes(32, "big").hex()]


@pytest.mark.parametrize(
    "changes",
    [
        {"0xc999a8b4": hexed(["uint256", "bytes32"], [0, bytes(32)])},
        {"0x936608ae": {"error": {"code": 3, "message": "execution reverted", "data": "0x12345678"}}},
        {"0xd52f10eb": "0x"},
        {"0xbaff211e": "0x01"},
        {"eth_getLogs": []},
        {"eth_getLogs": [context_log([])]},
        {"eth_getLogs": [context_log([node_of("", "p")])]},
        {"eth_getLogs": {"error": {"code": -32000, "message": "pruned"}}},
        {"eth_chainId": {"error": {"code": -32000, "message": "no"}}},
    ],
)
def test_what_cannot_be_read_is_unavailable(changes: dict[str, Any]) -> None:
    with stub_node(chain(changes)) as node, pytest.raises(KeyMaterialUnavailable):
        read_key_material(host(node.url))


def test_an_error_page_is_asked_for_only_once_and_keeps_the_url_secret() -> None:
    with stub_node(lambda document, count: http(b"<html>", 503)) as node:
        with pytest.raises(KeyMaterialUnavailable) as caught:
            read_key_material(host(node.url + "/v2/s3cr3t"))
        assert len(node.requests) == 1
    assert "s3cr3t" not in str(caught.value)
    with pytest.raises(KeyMaterialUnavailable) as caught:
        read_key_material(host("http://127.0.0.1:1/s3cr3t"))
    assert "s3cr3t" not in str(caught.value)


def test_another_chain_is_refused() -> None:
    with stub_node(chain({"eth_chainId": "0x1"})) as node, pytest.raises(WrongChain):
        read_key_material(host(node.url))


def test_addresses_must_be_configured() -> None:
    with pytest.raises(ConfigurationError):
        read_key_material(HostChain(8009, "http://127.0.0.1:1", b"\xac" * 20, None, GENERATION))
