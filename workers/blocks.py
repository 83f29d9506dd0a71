"""Reading the gateway's blocks: the head, and the events of a window of blocks together with proof of what was read.

A window is one JSON-RPC batch to one node: the logs, the header of its last block and the header of the block before it.
A node that does not know the last block answers eth_getLogs with an empty list and no error; its header tells the two apart.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from requests_app.crash_points import crash_point
from requests_app.errors import RelayerError
from requests_app.store.envelopes import INDEX_BITS
from workers.chain.client import log_filter
from workers.chain.events import TOPICS, DecodedLogs, Envelope, decode_logs
from workers.chain.gateway import GatewayClient
from workers.chain.hexdata import MalformedHex, hex_quantity
from workers.chain.rpc import Call, RpcEndpoint
from workers.chain.rpc_errors import Answer, Failed, Missing, Ok, RpcError, RpcUnavailable, WrongChain
from workers.chain.views import Block, block_of

log = logging.getLogger("relayer.listener")


class WindowRefused(RelayerError):
    """The node would not, or could not, answer for so many blocks."""


class NotYetThere(RelayerError):
    """The node does not know the window's blocks (yet): it is behind the node that was asked for the head."""


class Unreadable(RelayerError):
    """The answer contradicts itself or is no list of logs: nothing of it may be used."""


@dataclass(frozen=True, slots=True)
class Window:
    """The events of a range, the hash of its last block, and the hash the chain shows now for the block before it.

    `hashes`: of the range's blocks that were asked for their headers, the last one always.
    """

    envelopes: list[Envelope]
    last_hash: bytes
    before_hash: bytes
    hashes: Mapping[int, bytes] = field(default_factory=dict)


class Witness(NamedTuple):
    """What one endpoint says of a block: its hash there, and the endpoint's own head."""

    endpoint: str
    hash: bytes
    head: int


class Blocks:
    """Asks the gateway's nodes about blocks and their events. Not thread-safe."""

    def __init__(self, gateway: GatewayClient) -> None:
        self._gateway = gateway
        self._preferred: RpcEndpoint | None = None

    def prefer(self, name: str) -> None:
        """Read from this endpoint while it answers and keeps up (two nodes disagree, and this one is believed)."""
        self._preferred = next((one for one in self._gateway.endpoints.all if one.name == name), None)

    def head(self) -> Block:
        """The newest block of the node that is read. Raises RpcError, RpcUnavailable, Unreadable."""
        crash_point("before_head_rpc")
        if self._node() is not self._preferred:
            head = self._gateway.head()
        else:
            head = _block(self._preferred.batch([("eth_getBlockByNumber", ["latest", False])])[0])
        crash_point("after_head_rpc")
        return head

    def headers(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """Hashes of these blocks as one node shows them, without those it does not have, linked where they follow each other.

        Raises Unreadable, RpcUnavailable.
        """
        crash_point("before_headers_rpc")
        answers = self._node().batch([("eth_getBlockByNumber", [hex_quantity(one), False]) for one in numbers])
        crash_point("after_headers_rpc")
        found: dict[int, Block] = {}
        for number, answer in zip(numbers, answers, strict=True):
            try:
                found[number] = _block(answer)
            except NotYetThere:
                continue
        return _linked(found)

    def witnesses(self, number: int) -> list[Witness]:
        """What every endpoint that answers says of one block, and how far it is."""
        found = []
        for endpoint in self._gateway.endpoints.all:
            calls: list[Call] = [
                ("eth_getBlockByNumber", [hex_quantity(number), False]),
                ("eth_getBlockByNumber", ["latest", False]),
            ]
            crash_point("before_witness_rpc")
            try:
                one, head = (_block(answer) for answer in endpoint.batch(calls))
            except (NotYetThere, Unreadable, RpcUnavailable, WrongChain):
                continue
            crash_point("after_witness_rpc")
            found.append(Witness(endpoint.name, one.hash, head.number))
        return found

    def genesis(self) -> bytes:
        """The hash of block 0, as block 1 names it. Raises RpcError, RpcUnavailable.

        An anvil that was restarted from its state file makes a block 0 of its own each time and may answer with any of them;
        the parent hash of block 1 is the one that the chain is built on.
        """
        crash_point("before_genesis_rpc")
        (first,) = self._gateway.blocks([1])
        if isinstance(first, Missing):
            raise RpcUnavailable(first.reason, sent=True)
        if isinstance(first, Ok) and first.value is not None:
            genesis = first.value.parent_hash
        else:
            genesis = self._gateway.genesis_hash()
        crash_point("after_genesis_rpc")
        return genesis

    def window(self, lo: int, hi: int, headers_from: int | None = None) -> Window:
        """The events of blocks lo..hi (lo >= 1), all from one node, with the headers of its blocks from `headers_from` on.

        Raises WindowRefused (ask for less), NotYetThere (ask later), Unreadable (ask again), RpcUnavailable.
        """
        numbers = [lo - 1, *range(max(lo, hi if headers_from is None else headers_from), hi + 1)]
        if numbers[-1] != hi:
            numbers.append(hi)
        crash_point("before_window_rpc")
        logs, *headers = self._node().batch(
            [
                ("eth_getLogs", [log_filter(lo, hi, self._gateway.contracts, [tuple(TOPICS)])]),
                *(("eth_getBlockByNumber", [hex_quantity(one), False]) for one in numbers),
            ]
        )
        crash_point("after_window_rpc")
        if isinstance(logs, Failed):
            raise WindowRefused(f"logs of {lo}..{hi}: {logs.error}")
        if isinstance(logs, Missing):
            if lo < hi:
                raise WindowRefused(f"logs of {lo}..{hi}: {logs.reason}")
            raise RpcUnavailable(logs.reason, sent=True)
        if not isinstance(logs.value, list):
            raise Unreadable("eth_getLogs did not answer with a list")
        hashes = _linked({one: _block(answer) for one, answer in zip(numbers, headers, strict=True)})
        before = hashes.pop(lo - 1)
        return Window(self._checked(decode_logs(logs.value), lo, hi, hashes), hashes[hi], before, hashes)

    def _node(self) -> RpcEndpoint:
        preferred = self._preferred
        endpoints = self._gateway.endpoints
        if preferred is not None and endpoints.usable(preferred) and not endpoints.lags(preferred):
            return preferred
        return self._gateway.endpoints.read()

    def answers_of(self, refs: list[bytes], lo: int, hi: int) -> list[Envelope]:
        """All events with these references in lo..hi, in halves where the node finds the range too large.

        Raises RpcError, RpcUnavailable, Unreadable.
        """
        if not refs or hi < lo:
            return []
        try:
            crash_point("before_range_rpc")
            found = self._gateway.events_of(refs, lo, hi)
            crash_point("after_range_rpc")
            return self._checked(found, lo, hi, {})
        except RpcError:
            if lo == hi:
                raise
            middle = (lo + hi) // 2
            return self.answers_of(refs, lo, middle) + self.answers_of(refs, middle + 1, hi)

    def _checked(self, decoded: DecodedLogs, lo: int, hi: int, hashes: Mapping[int, bytes]) -> list[Envelope]:
        if decoded.bad:
            raise Unreadable(f"{len(decoded.bad)} unreadable logs in {lo}..{hi}, first: {decoded.bad[0]}")
        for envelope in decoded.envelopes:
            block = envelope.position >> INDEX_BITS
            if not lo <= block <= hi or hashes.get(block, envelope.block_hash) != envelope.block_hash:
                raise Unreadable(f"a log of block {block} does not belong to {lo}..{hi}")
        kept = [envelope for envelope in decoded.envelopes if envelope.contract in self._gateway.contracts]
        if len(kept) < len(decoded.envelopes):
            log.warning(
                "node ignored the address filter",
                extra={"action": "foreign_logs", "count": len(decoded.envelopes) - len(kept)},
            )
        return kept


def _block(answer: Answer[Any]) -> Block:
    if isinstance(answer, Missing):
        raise RpcUnavailable(answer.reason, sent=True)
    try:
        block = block_of(answer.value) if isinstance(answer, Ok) else None
    except MalformedHex as error:
        raise Unreadable(f"not a block: {error}") from None
    if block is None:
        raise NotYetThere
    return block


def _linked(blocks: Mapping[int, Block]) -> dict[int, bytes]:
    """Their hashes. Raises Unreadable when one is not built on the one before it: the chain moved between two answers."""
    for number, block in blocks.items():
        before = blocks.get(number - 1)
        # A restarted anvil makes its block 0 anew (see genesis).
        if number > 1 and before is not None and block.parent_hash != before.hash:
            raise Unreadable(f"block {number} is not built on block {number - 1}: the chain moved meanwhile")
    return {number: block.hash for number, block in blocks.items()}
