"""A node in a thread: enough of JSON-RPC over HTTP for the send side, with every raw transaction on record and faults on demand.

It knows nonces, a pool, blocks that the test mines, and receipts. It checks signatures by recovering the sender, as a node does.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import coincurve
import rlp

from workers.chain.keccak import keccak
from workers.chain.signer import address_of

CHAIN_ID = 654321


class Drop(Exception):
    """Close the connection instead of answering."""


class Fault(Exception):
    """Answer with a JSON-RPC error object."""

    def __init__(self, message: str, code: int = -32000, data: str | None = None) -> None:
        super().__init__(message)
        self.body = {"code": code, "message": message, **({"data": data} if data else {})}


@dataclass
class Tx:
    """A transaction as the node sees it."""

    sender: bytes
    nonce: int
    hash: bytes
    to: bytes
    data: bytes
    raw: bytes
    block: int | None = None
    status: int = 1


def parse(raw: bytes) -> Tx:
    """Decode a type-2 transaction and recover who signed it."""
    fields = rlp.decode(raw[1:])
    digest = keccak(raw[:1] + rlp.encode(fields[:9]))
    parity = b"\x01" if fields[9] else b"\x00"
    signature = fields[10].rjust(32, b"\0") + fields[11].rjust(32, b"\0") + parity
    sender = address_of(coincurve.PublicKey.from_signature_and_message(signature, digest, hasher=None))
    return Tx(sender, int.from_bytes(fields[1], "big"), keccak(raw), fields[5], fields[7], raw)


@dataclass
class Node:
    """State and switches of the stub. Hooks may raise Fault or Drop, or return what is to be answered."""

    url: str = ""
    raws: list[bytes] = field(default_factory=list)
    batches: list[list[str]] = field(default_factory=list)
    known: dict[bytes, Tx] = field(default_factory=dict)
    counts: dict[bytes, int] = field(default_factory=dict)
    finalized_counts: dict[bytes, int] = field(default_factory=dict)
    block: int = 100
    finalized: int = 0
    balance: int = 10**18
    base_fee: int = 10**9
    on_send: Callable[[Tx], None] | None = None
    after_send: Callable[[Tx], None] | None = None
    on_estimate: Callable[[dict[str, Any]], int] | None = None
    on_call: Callable[[dict[str, Any], str], str] | None = None
    on_batch: Callable[[list[str]], None] | None = None
    lock: threading.RLock = field(default_factory=threading.RLock)

    def answer(self, method: str, params: list[Any]) -> Any:
        """The result of one call."""
        handler = getattr(self, method, None)
        if handler is None:
            raise Fault(f"the method {method} does not exist", -32601)
        with self.lock:
            return handler(*params)

    def mine(self, *, status: int = 1, limit: int = 10**9) -> int:
        """Put the executable transactions of the pool into one block; how many."""
        with self.lock:
            self.block += 1
            mined = 0
            for tx in sorted(self.known.values(), key=lambda tx: tx.nonce):
                if tx.block is None and tx.nonce == self.counts.get(tx.sender, 0) and mined < limit:
                    tx.block, tx.status = self.block, status
                    self.counts[tx.sender] = tx.nonce + 1
                    mined += 1
            return mined

    def finalize(self) -> None:
        """Let nothing up to the head be taken back."""
        with self.lock:
            self.finalized = self.block
            self.finalized_counts = dict(self.counts)

    def use_elsewhere(self, sender: bytes, times: int = 1) -> None:
        """Somebody else sends with the same key."""
        with self.lock:
            self.counts[sender] = self.counts.get(sender, 0) + times

    def eth_chainId(self) -> str:
        return hex(CHAIN_ID)

    def eth_blockNumber(self) -> str:
        return hex(self.block)

    def eth_getBalance(self, address: str, tag: str) -> str:
        return hex(self.balance)

    def eth_feeHistory(self, *params: Any) -> dict[str, Any]:
        return {"baseFeePerGas": [hex(self.base_fee)] * 11, "reward": [["0x3b9aca00"]] * 10}

    def eth_getTransactionCount(self, address: str, tag: str) -> str:
        sender = bytes.fromhex(address[2:])
        count = (self.finalized_counts if tag == "finalized" else self.counts).get(sender, 0)
        if tag == "pending":
            waiting = {tx.nonce for tx in self.known.values() if tx.sender == sender}
            while count in waiting:
                count += 1
        return hex(count)

    def eth_estimateGas(self, call: dict[str, Any], tag: str) -> str:
        return hex(self.on_estimate(call) if self.on_estimate else 100_000)

    def eth_call(self, call: dict[str, Any], tag: str) -> str:
        if self.on_call is None:
            raise Fault("execution reverted", 3, "0x")
        return self.on_call(call, tag)

    def eth_getBlockByNumber(self, tag: str, full: bool) -> dict[str, str] | None:
        number = self.finalized if tag == "finalized" else self.block if tag == "latest" else int(tag, 16)
        block_hash = "0x" + number.to_bytes(32, "big").hex()
        return {"number": hex(number), "hash": block_hash, "parentHash": block_hash, "timestamp": "0x1"}

    def eth_sendRawTransaction(self, raw: str) -> str:
        tx = parse(bytes.fromhex(raw[2:]))
        self.raws.append(tx.raw)
        if self.on_send:
            self.on_send(tx)
        if tx.hash in self.known:
            raise Fault("already known")
        if tx.nonce < self.counts.get(tx.sender, 0):
            raise Fault("nonce too low: next nonce is past it")
        if any(other.sender == tx.sender and other.nonce == tx.nonce for other in self.known.values()):
            raise Fault("replacement transaction underpriced")
        self.known[tx.hash] = tx
        if self.after_send:
            self.after_send(tx)
        return "0x" + tx.hash.hex()

    def eth_getTransactionReceipt(self, tx_hash: str) -> dict[str, Any] | None:
        tx = self.known.get(bytes.fromhex(tx_hash[2:]))
        if tx is None or tx.block is None:
            return None
        return {
            "transactionHash": tx_hash,
            "blockNumber": hex(tx.block),
            "blockHash": "0x" + tx.block.to_bytes(32, "big").hex(),
            "status": hex(tx.status),
            "from": "0x" + tx.sender.hex(),
            "to": "0x" + tx.to.hex(),
            "gasUsed": "0x5208",
            "logs": [],
        }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # the body is a second packet: no 40 ms wait for an acknowledgement
    node: Node

    def do_POST(self) -> None:
        document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            calls = document if isinstance(document, list) else [document]
            methods = [call["method"] for call in calls]
            self.node.batches.append(methods)
            if self.node.on_batch:
                self.node.on_batch(methods)
            answers = [self._one(call) for call in calls]
            body = json.dumps(answers if isinstance(document, list) else answers[0]).encode()
        except Fault as fault:
            body = json.dumps({"jsonrpc": "2.0", "id": None, "error": fault.body}).encode()
        except Drop:
            self.close_connection = True
            self.connection.close()
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _one(self, call: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"jsonrpc": "2.0", "id": call["id"], "result": self.node.answer(call["method"], call["params"])}
        except Fault as fault:
            return {"jsonrpc": "2.0", "id": call["id"], "error": fault.body}

    def handle(self) -> None:
        # The client hung up, or we closed the connection on purpose.
        with contextlib.suppress(OSError, ValueError):
            super().handle()

    def finish(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            super().finish()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


class Server:
    """The stub behind a port of its own, until `close`."""

    def __init__(self) -> None:
        self.node = Node()
        handler = type("Handler", (_Handler,), {"node": self.node})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.node.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
