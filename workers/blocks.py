"""Reading the gateway's blocks: the head, and the events of a window of blocks together with proof of what was read.

A window is one JSON-RPC batch to one node: the logs, the header of its last block and the header of the block before it.
A node that does not know the last block answers eth_getLogs with an empty list and no error; its header tells the two apart.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from requests_app.errors import RelayerError
from requests_app.store.envelopes import INDEX_BITS
from workers.chain.client import log_filter
from workers.chain.events import TOPICS, DecodedLogs, Envelope, decode_logs
from workers.chain.gateway import GatewayClient
from workers.chain.hexdata import MalformedHex, hex_quantity
from workers.chain.rpc_errors import Answer, Failed, Missing, Ok, RpcError, RpcUnavailable
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
    """The events of a range, the hash of its last block, and the hash the chain shows now for the block before it."""

    envelopes: list[Envelope]
    last_hash: bytes
    before_hash: bytes


class Blocks:
    """Asks the gateway's nodes about blocks and their events. Not thread-safe."""

    def __init__(self, gateway: GatewayClient) -> None:
        self._gateway = gateway

    def head(self) -> Block:
        """The newest block. Raises RpcError, RpcUnavailable."""
        return self._gateway.head()

    def genesis(self) -> bytes:
        """The hash of block 0, as block 1 names it. Raises RpcError, RpcUnavailable.

        An anvil that was restarted from its state file makes a block 0 of its own each time and may answer with any of them;
        the parent hash of block 1 is the one that the chain is built on.
        """
        (first,) = self._gateway.blocks([1])
        if isinstance(first, Missing):
            raise RpcUnavailable(first.reason, sent=True)
        if isinstance(first, Ok) and first.value is not None:
            return first.value.parent_hash
        return self._gateway.genesis_hash()

    def window(self, lo: int, hi: int) -> Window:
        """The events of blocks lo..hi (lo >= 1), all from one node.

        Raises WindowRefused (ask for less), NotYetThere (ask later), Unreadable (ask again), RpcUnavailable.
        """
        logs, last, before = self._gateway.endpoints.read().batch(
            [
                ("eth_getLogs", [log_filter(lo, hi, self._gateway.contracts, [tuple(TOPICS)])]),
                ("eth_getBlockByNumber", [hex_quantity(hi), False]),
                ("eth_getBlockByNumber", [hex_quantity(lo - 1), False]),
            ]
        )
        if isinstance(logs, Failed):
            raise WindowRefused(f"logs of {lo}..{hi}: {logs.error}")
        if isinstance(logs, Missing):
            if lo < hi:
                raise WindowRefused(f"logs of {lo}..{hi}: {logs.reason}")
            raise RpcUnavailable(logs.reason, sent=True)
        if not isinstance(logs.value, list):
            raise Unreadable("eth_getLogs did not answer with a list")
        last_hash, before_hash = _hash(last), _hash(before)
        return Window(self._checked(decode_logs(logs.value), lo, hi, last_hash), last_hash, before_hash)

    def answers_of(self, refs: list[bytes], lo: int, hi: int) -> list[Envelope]:
        """All events with these references in lo..hi, in halves where the node finds the range too large.

        Raises RpcError, RpcUnavailable, Unreadable.
        """
        if not refs or hi < lo:
            return []
        try:
            return self._checked(self._gateway.events_of(refs, lo, hi), lo, hi, None)
        except RpcError:
            if lo == hi:
                raise
            middle = (lo + hi) // 2
            return self.answers_of(refs, lo, middle) + self.answers_of(refs, middle + 1, hi)

    def _checked(self, decoded: DecodedLogs, lo: int, hi: int, last_hash: bytes | None) -> list[Envelope]:
        if decoded.bad:
            raise Unreadable(f"{len(decoded.bad)} unreadable logs in {lo}..{hi}, first: {decoded.bad[0]}")
        for envelope in decoded.envelopes:
            block = envelope.position >> INDEX_BITS
            if not lo <= block <= hi or (last_hash and block == hi and envelope.block_hash != last_hash):
                raise Unreadable(f"a log of block {block} does not belong to {lo}..{hi}")
        kept = [envelope for envelope in decoded.envelopes if envelope.contract in self._gateway.contracts]
        if len(kept) < len(decoded.envelopes):
            log.warning(
                "node ignored the address filter",
                extra={"action": "foreign_logs", "count": len(decoded.envelopes) - len(kept)},
            )
        return kept


def _hash(answer: Answer[Any]) -> bytes:
    if isinstance(answer, Missing):
        raise RpcUnavailable(answer.reason, sent=True)
    try:
        block = block_of(answer.value) if isinstance(answer, Ok) else None
    except MalformedHex as error:
        raise Unreadable(f"not a block: {error}") from None
    if block is None:
        raise NotYetThere
    return block.hash
