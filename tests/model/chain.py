"""A scripted chain without a duplicate guard: it loses requests and answers, evicts, reorganises, and denies what it knows.

What it executes is counted by calldata, on the canonical chain: a request that is executed twice is paid twice.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson
import rlp

from tests.send.node import Fault, Node, Tx, parse
from workers.chain.connection import HttpAnswer
from workers.chain.hexdata import hex_data
from workers.chain.rpc_errors import RpcUnavailable

DEPTH = 2  # blocks that may be taken back


@dataclass
class Rates:
    """How often, of one, the node fails in each way."""

    lose_request: float = 0.08
    lose_answer: float = 0.20
    refuse: float = 0.10
    false_null: float = 0.30
    evict: float = 0.05
    reorg: float = 0.04


@dataclass
class Chain(Node):
    """The stub node of the send tests with forks and forgetting. `record` is told of every raw transaction that arrives."""

    rng: random.Random = field(default_factory=random.Random)
    rates: Rates = field(default_factory=Rates)
    happened: Counter[str] = field(default_factory=Counter)
    record: Callable[[Tx], None] | None = None
    fork: dict[int, int] = field(default_factory=dict)
    calm: bool = False

    def chance(self, what: str) -> bool:
        """Whether this fault happens now; never when calm."""
        if self.calm or self.rng.random() >= getattr(self.rates, what):
            return False
        self.happened[what] += 1
        return True

    def tick(self) -> None:
        """Time passes: a block, sometimes less of the pool, sometimes other blocks than before."""
        if self.chance("reorg") and self.block > self.finalized:
            self._undo(self.rng.randint(1, DEPTH))
        if self.chance("evict"):
            waiting = [tx for tx in self.known.values() if tx.block is None]
            if waiting:
                del self.known[self.rng.choice(waiting).hash]
        self.mine(limit=self.rng.randint(1, 4) if not self.calm else 10**9)
        self.finalized = max(self.finalized, self.block - DEPTH)
        for tx in self.known.values():
            if tx.block is not None and tx.block <= self.finalized:
                self.finalized_counts[tx.sender] = max(self.finalized_counts.get(tx.sender, 0), tx.nonce + 1)

    def _undo(self, depth: int) -> None:
        """Take blocks back; half of their transactions are forgotten altogether."""
        floor = max(self.finalized, self.block - depth)
        gone = [tx for tx in self.known.values() if tx.block is not None and tx.block > floor]
        for block in range(floor + 1, self.block + 1):
            self.fork[block] = self.fork.get(block, 0) + 1
        for tx in sorted(gone, key=lambda tx: -tx.nonce):
            self.counts[tx.sender] = min(self.counts[tx.sender], tx.nonce)
            tx.block = None
            if self.rng.random() < 0.5:
                del self.known[tx.hash]
        self.block = floor

    def hash_of(self, block: int) -> str:
        return hex_data(block.to_bytes(16, "big") + self.fork.get(block, 0).to_bytes(16, "big"))

    def eth_getBlockByNumber(self, tag: str, full: bool) -> dict[str, str] | None:
        number = self.finalized if tag == "finalized" else self.block if tag == "latest" else int(tag, 16)
        if number > self.block:
            return None
        parent = self.hash_of(number - 1)
        return {"number": hex(number), "hash": self.hash_of(number), "parentHash": parent, "timestamp": "0x1"}

    def eth_getTransactionReceipt(self, tx_hash: str) -> dict[str, Any] | None:
        if self.chance("false_null"):
            return None
        found = super().eth_getTransactionReceipt(tx_hash)
        return {**found, "blockHash": self.hash_of(int(found["blockNumber"], 16))} if found else None

    def eth_sendRawTransaction(self, raw: str) -> str:
        if self.record is not None:
            self.record(parse(bytes.fromhex(raw[2:])))
        if self.chance("refuse"):
            raise Fault("txpool is full")
        self._make_room(parse(bytes.fromhex(raw[2:])))
        return super().eth_sendRawTransaction(raw)

    def _make_room(self, tx: Tx) -> None:
        """A higher offer for a nonce takes the place of the one that waits, by the usual tenth."""
        for other in list(self.known.values()):
            rival = (other.sender, other.nonce, other.block) == (tx.sender, tx.nonce, None) and other.hash != tx.hash
            if rival and all(new >= old * 1.1 for new, old in zip(_fees(tx.raw), _fees(other.raw), strict=True)):
                del self.known[other.hash]

    def executed(self) -> Counter[bytes]:
        """How often each calldata was executed."""
        return Counter(tx.data for tx in self.known.values() if tx.block is not None)


def _fees(raw: bytes) -> tuple[int, int]:
    """(priority fee, whole fee) of a type-2 transaction."""
    fields = rlp.decode(raw[1:])
    return int.from_bytes(fields[2], "big"), int.from_bytes(fields[3], "big")


class Wire:
    """In the place of an endpoint's kept connection: whole requests and answers get lost here."""

    def __init__(self, chain: Chain, name: str) -> None:
        self._chain, self.name = chain, name

    def post(self, body: bytes) -> HttpAnswer:
        document = orjson.loads(body)
        if self._chain.chance("lose_request"):
            raise RpcUnavailable("request lost", sent=True)
        answers = [self._one(call) for call in (document if isinstance(document, list) else [document])]
        if self._chain.chance("lose_answer"):
            raise RpcUnavailable("answer lost", sent=True)
        return HttpAnswer(200, orjson.dumps(answers if isinstance(document, list) else answers[0]), None)

    def close(self) -> None:
        """Nothing is kept."""

    def _one(self, call: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"jsonrpc": "2.0", "id": call["id"], "result": self._chain.answer(call["method"], call["params"])}
        except Fault as fault:
            return {"jsonrpc": "2.0", "id": call["id"], "error": fault.body}
