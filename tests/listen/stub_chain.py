"""A gateway node whose blocks, events, views and faults the test decides, behind real HTTP and the real client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from requests_app.config import GatewayConfig
from tests.chain.stub_node import StubNode, json_reply, results, stub_node
from tests.listen import world
from workers.chain.calldata import IS_DECRYPTION_DONE, IS_PROOF_REJECTED, IS_PROOF_VERIFIED
from workers.chain.clients import Clients
from workers.chain.endpoints import Endpoints
from workers.chain.events import Envelope
from workers.chain.gateway import GatewayClient

CHAIN_ID = 4242
NO_ANSWER = {"error": {"code": -32000, "message": "try again"}}


class StubChain:
    """Blocks 0..head of fork 0. `known_head`: what the node really has; `range_limit`: blocks that eth_getLogs accepts."""

    def __init__(self) -> None:
        self.head = 0
        self.known_head: int | None = None
        self.range_limit = 1_000_000
        self.forks: dict[int, int] = {}
        self.events: list[Envelope] = []
        self.done: set[bytes] = set()
        self.rejected: set[bytes] = set()
        self.receipts: dict[bytes, dict[str, Any]] = {}
        self.faults: dict[str, Any] = {}
        self.asked: list[tuple[str, Any]] = []
        self.genesis = b"\x99" * 32

    def put(self, *events: Envelope, head: int | None = None) -> None:
        """Add events; the head moves to the last one's block, or to `head`."""
        self.events += events
        self.head = head if head is not None else max([self.head, *(one.position >> 20 for one in events)])

    def mine(self, tx_hash: bytes, *events: Envelope, status: int = 1) -> None:
        """A receipt with these events as its logs."""
        block = events[0].position >> 20 if events else self.head
        self.receipts[tx_hash] = {
            "transactionHash": "0x" + tx_hash.hex(), "blockNumber": hex(block), "blockHash": "0x" + self.hash(block).hex(),
            "status": hex(status), "from": "0x" + "01" * 20, "to": "0x" + "02" * 20, "gasUsed": "0x1",
            "logs": [raw(one) for one in events],
        }  # fmt: skip

    def hash(self, block: int) -> bytes:
        return self.genesis if block == 0 else world.block_hash(block, self.forks.get(block, 0))

    def respond(self, document: Any, count: int) -> bytes:
        return json_reply(results(document, self._answer))

    def _answer(self, method: str, params: Any) -> Any:
        self.asked.append((method, params))
        if method in self.faults:
            return self.faults[method]
        return getattr(self, method)(*params)

    def eth_chainId(self) -> str:
        return hex(CHAIN_ID)

    def eth_getBlockByNumber(self, tag: str, full: bool) -> Any:
        number = self.head if tag in ("latest", "finalized") else int(tag, 16)
        top = self.head if self.known_head is None else self.known_head
        if tag != "latest" and number > top:
            return None
        header = {"number": hex(number), "hash": "0x" + self.hash(number).hex(), "timestamp": "0x1"}
        return {**header, "parentHash": "0x" + (self.hash(number - 1) if number else bytes(32)).hex()}

    def eth_getLogs(self, query: dict[str, Any]) -> Any:
        lo, hi = int(query["fromBlock"], 16), int(query["toBlock"], 16)
        if hi - lo + 1 > self.range_limit:
            return {"error": {"code": -32005, "message": "query returned more than 10000 results"}}
        top = hi if self.known_head is None else min(hi, self.known_head)
        refs = None if len(query["topics"]) < 2 else query["topics"][1]
        return [
            raw(one)
            for one in self.events
            if lo <= one.position >> 20 <= top and (refs is None or "0x" + one.ref.hex() in refs)
        ]

    def eth_call(self, call: dict[str, Any], tag: str) -> str:
        selector, ref = bytes.fromhex(call["data"][2:10]), bytes.fromhex(call["data"][10:])
        sets = {
            IS_DECRYPTION_DONE.selector: self.done,
            IS_PROOF_VERIFIED.selector: self.done,
            IS_PROOF_REJECTED.selector: self.rejected,
        }
        return "0x" + int(ref in sets[selector]).to_bytes(32, "big").hex()

    def eth_getTransactionReceipt(self, tx_hash: str) -> Any:
        return self.receipts.get(bytes.fromhex(tx_hash[2:]))


def raw(one: Envelope) -> dict[str, Any]:
    """The log that a node shows for an envelope."""
    count = one.payload[0]
    topics = [one.payload[1 + 32 * n : 33 + 32 * n] for n in range(count)]
    return {
        "address": "0x" + one.contract.hex(), "topics": ["0x" + item.hex() for item in topics],
        "data": "0x" + one.payload[1 + 32 * count :].hex(), "blockNumber": hex(one.position >> 20),
        "logIndex": hex(one.position & 0xFFFFF), "blockHash": "0x" + one.block_hash.hex(),
        "transactionHash": "0x" + one.tx_hash.hex(), "removed": False,
    }  # fmt: skip


@contextmanager
def running(chain: StubChain) -> Iterator[tuple[Clients, StubNode]]:
    """The chain behind HTTP, and clients of it."""
    with stub_node(chain.respond) as node:
        endpoints = Endpoints([node.url], CHAIN_ID)
        config = GatewayConfig(CHAIN_ID, (node.url,), world.DECRYPTION, world.INPUTS, (), None, 1)
        clients = Clients(GatewayClient(endpoints, config), {}, endpoints, None)
        try:
            yield clients, node
        finally:
            clients.close()
