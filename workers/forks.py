"""Reorganisations: whether the chain still shows what was sealed, and where the two chains part (queue_settle 4.7).

One wrong hash is not believed, and neither is one of two nodes that disagree, while another still shows what is sealed and is
not behind. How deep a reorganisation may reach is the source's `reorg_depth`; a deeper one stops the source.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, Final

from psycopg import Connection

from requests_app.errors import RelayerError
from requests_app.store import reorgs as store
from requests_app.transitions.reorgs import Fork
from workers.blocks import Blocks, Unreadable
from workers.chain.rpc_errors import RpcUnavailable

log = logging.getLogger("relayer.listener")

MISMATCHES: Final = 3  # looks in a row that must show another hash
DISAGREE_SECONDS: Final = 30.0  # how long a node that shows what is sealed, but is behind the others, is believed

SHRUNK_SECONDS: Final = 30.0  # how long a chain must end below the seal: a node that lags catches up before


class TooDeep(RelayerError):
    """The chain parted from what is sealed further down than a reorganisation may reach."""


def fork_block(stored: Mapping[int, bytes], shown: Mapping[int, bytes], *, floor: int, first: int) -> int:
    """The first block to take back: above the highest block that both name alike.

    `floor` is the lowest block that was compared, `first` the first block of the source. Raises TooDeep when no block of
    those compared is alike, unless they reach below `first`, where nothing is sealed.
    """
    alike = [block for block, hash_ in stored.items() if shown.get(block) == hash_ and block >= floor]
    if alike:
        return max(alike) + 1
    if floor < first:
        return first
    raise TooDeep(f"no block from {floor} on is as it was sealed")


class ForkWatch:
    """Judges one source's mismatches. Made anew with its listener; remembers only what it has seen since."""

    def __init__(self, source_id: int, blocks: Blocks, *, clock: Callable[[], float] = monotonic) -> None:
        self._source_id, self._blocks, self._clock = source_id, blocks, clock
        self._mismatches = 0
        self._disagreeing_since: float | None = None
        self._shrunk_since: float | None = None

    def joined(self) -> None:
        """The chain shows what was sealed: what was seen before says nothing of the next mismatch."""
        self._mismatches = 0
        self._shrunk_since = self._disagreeing_since = None

    def proven(self, sealed: int, sealed_hash: bytes) -> bool:
        """Another look at a mismatch of the sealed block: whether to take the block back now. Raises RpcUnavailable."""
        witnesses = self._blocks.witnesses(sealed)
        loyal = [one for one in witnesses if one.hash == sealed_hash]
        others = [one for one in witnesses if one.hash != sealed_hash]
        if not others:
            self._mismatches = 0
            return False
        if loyal:
            self._mismatches = 0
            return self._disagreement(max(loyal, key=lambda one: one.head), max(one.head for one in others))
        self._mismatches += 1
        return self._mismatches >= MISMATCHES

    def shrunk(self, head: int, sealed: int) -> bool:
        """Another look at a chain that ends below the seal: whether no node knows the sealed block any more."""
        if any(one.head >= sealed for one in self._blocks.witnesses(head)):
            self._shrunk_since = None
            return False
        now = self._clock()
        self._shrunk_since = self._shrunk_since if self._shrunk_since is not None else now
        return now - self._shrunk_since >= SHRUNK_SECONDS

    def find(self, conn: Connection[Any], sealed: int, compare_to: int, depth: int, first: int) -> Fork:
        """Where the chains part; blocks above `compare_to` are not on the chain. Raises TooDeep, RpcUnavailable, Unreadable."""
        floor = max(0, sealed - depth)
        stored = store.known_hashes(conn, self._source_id, floor, sealed)
        shown = self._blocks.headers(range(floor, compare_to + 1))
        block = fork_block(stored, shown, floor=floor, first=first)
        return Fork(block, shown.get(block - 1) if block > first else None, shown.get(sealed, b""))

    def describe(self, conn: Connection[Any], sealed: int, compared_from: int, first: int) -> dict[str, Any]:
        """What a person is shown of a fork that lies below `compared_from`.

        Every node's word on the sealed block, and where the two chains part as far as the stored events tell (`block`, None when the nodes
        did not say).
        """
        said = [
            {"node": one.endpoint, "hash": f"0x{one.hash.hex()}", "head": one.head}
            for one in self._blocks.witnesses(sealed)
        ]
        try:
            block: int | None = self._parted(conn, compared_from, first)
        except (Unreadable, RpcUnavailable) as error:
            log.warning("the fork is not known: %s", error, extra={"action": "fork_unknown"})
            block = None
        return {"block": block, "compared_from": compared_from, "nodes": said}

    def _parted(self, conn: Connection[Any], below: int, first: int) -> int:
        """The block after the newest stored event below block `below` whose block the chain still shows; `first` without one.

        Blocks alike have only alike ones below them: steps that double find one, halving finds the highest.
        """
        unlike, alike, step = below, first - 1, 1
        while unlike - step > alike:
            event = store.event_block(conn, self._source_id, unlike - step)
            if event is None or event[0] <= alike:
                break
            if self._shows(*event):
                alike = event[0]
            else:
                unlike, step = event[0], step * 2
        low = alike
        while unlike - low > 1:
            middle = (low + unlike) // 2
            event = store.event_block(conn, self._source_id, middle)
            if event is None or event[0] <= alike:
                low = middle  # no event between
            elif self._shows(*event):
                alike, low = event[0], middle
            else:
                unlike = event[0]
        return alike + 1

    def _shows(self, block: int, hash_: bytes) -> bool:
        return self._blocks.headers([block]).get(block) == hash_

    def _disagreement(self, loyal: Any, others_head: int) -> bool:
        """Two nodes show two chains: stay with the sealed one, unless its node falls behind for a while."""
        now = self._clock()
        if self._disagreeing_since is None:
            self._disagreeing_since = now
            log.warning(
                "endpoints disagree about a sealed block",
                extra={"action": "providers_disagree", "source": self._source_id, "believed": loyal.endpoint},
            )
        if loyal.head >= others_head:
            self._disagreeing_since = now
        if now - self._disagreeing_since < DISAGREE_SECONDS:
            self._blocks.prefer(loyal.endpoint)
            return False
        self._disagreeing_since = None
        self._blocks.prefer("")
        return True
