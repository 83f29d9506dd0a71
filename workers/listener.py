"""The listener: every event of the gateway's two contracts into the envelope log, in order, then onto the requests.

One process a source holds the lease `listener:<source>`; others stand by. Nothing is passed over: the seal moves only in the
statement that stores the events, block by block, under the lease's epoch. Empty blocks are remembered here and sealed with the
next event, or once a second.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import Any, Final

from django.conf import settings
from psycopg import Connection

from requests_app.config import config
from requests_app.crash_points import crash_point
from requests_app.errors import ForeignChain, SourceHalted, StaleEpoch
from requests_app.models.reviews import ReasonCode
from requests_app.store import bands, conflicts, envelopes, reorgs
from requests_app.store.chain_identity import claim_identity
from requests_app.store.conflicts import Conflict
from requests_app.store.envelopes import Gap, Sight
from requests_app.store.signing import Fence
from requests_app.transitions.reorgs import undo
from workers.apply import Applier
from workers.blocks import Blocks, NotYetThere, Unreadable, Window, WindowRefused
from workers.chain.events import REQUEST_KINDS
from workers.chain.rpc_errors import RpcUnavailable
from workers.facts import Reader, contracts_of
from workers.forks import ForkWatch, TooDeep
from workers.leases import HeldLease, LeaseKeeper
from workers.shift import ShiftContext, TurnLoop, new_instance
from workers.thresholds import thresholds_of

log = logging.getLogger("relayer.listener")

GATEWAY: Final = 1  # source id of the gateway chain
FIRST_WINDOW: Final = 1000
LARGEST_WINDOW: Final = 5000
IDLE_SEAL_SECONDS: Final = 1.0
IDLE_CURSOR_SECONDS: Final = 30.0
STANDBY_SECONDS: Final = 0.25


def resource(source_id: int) -> str:
    """The lease of a source's listener."""
    return f"listener:{source_id}"


class Listener:
    """Follows one source while the lease lasts; made anew at each take-over."""

    def __init__(self, source_id: int, blocks: Blocks, applier: Applier, fence: Fence) -> None:
        self._source_id, self._blocks, self._applier, self._fence = source_id, blocks, applier, fence
        self._forks = ForkWatch(source_id, blocks)
        self._window = FIRST_WINDOW
        self._sealed = self._scanned = -1  # blocks: in the database, and looked at here
        self._scanned_hash: bytes | None = None
        self._sealed_hash: bytes | None = None
        self._hashes: dict[int, bytes] = {}  # of blocks looked at since the seal
        self._head = self._first = self._reorg_depth = 0
        self._sealed_at = self._cursor_at = 0.0
        self._band_width = 0
        self._bands: set[int] = set()

    def open(self, conn: Connection[Any], chain_id: int, start_block: int) -> None:
        """Read where the source stands, make it if it is new, and apply what is recorded already.

        Raises ForeignChain when the chain behind the endpoints is not the one this database belongs to.
        """
        claim_identity(conn, chain_id, self._blocks.genesis())
        crash_point("before_source_commit")
        # Block 0 holds no events; the block before the first one is asked for its hash.
        source = envelopes.add_source(
            conn, self._source_id, name="gateway", chain_id=chain_id, start_block=max(1, start_block)
        )
        crash_point("after_source_commit")
        if source.halted is not None:
            raise SourceHalted(source.halted)
        self._sealed = self._scanned = source.block
        self._scanned_hash = self._sealed_hash = source.head_hash
        self._reorg_depth, self._first = source.reorg_depth, source.start_block
        self._window = source.window_blocks or FIRST_WINDOW
        self._band_width = source.band_blocks
        self._catch_up(conn)

    def poll(self, conn: Connection[Any]) -> int:
        """Look once: at most one window of blocks. How many events it held, at least 1 while more blocks wait."""
        if self._applier.behind or monotonic() - self._cursor_at >= IDLE_CURSOR_SECONDS:
            self._catch_up(conn)
            if self._applier.behind:
                return 1
        head = self._blocks.head()
        self._head = head.number
        if self._head < self._sealed:
            return self._shorter(conn)
        if self._head <= self._scanned:
            if self._head == self._scanned:
                self._joins(conn, head.hash)  # no new block, but the newest one may be another than the one looked at
            return 0
        lo, hi = self._scanned + 1, min(self._head, self._scanned + self._window)
        try:
            window = self._blocks.window(lo, hi, self._head - self._reorg_depth)
        except WindowRefused:
            if lo == hi:
                raise
            self._resize(conn, max(1, (hi - lo + 1) // 2))
            log.info("smaller window", extra={"action": "window_halved", "blocks": self._window})
            return 1
        except NotYetThere:
            return 0
        if not self._joins(conn, window.before_hash):
            return 0
        if hi - lo + 1 >= self._window:
            self._resize(conn, min(LARGEST_WINDOW, self._window + max(1, self._window // 8)))
        self._take(conn, window, hi)
        return max(len(window.envelopes), int(hi < self._head))

    def _resize(self, conn: Connection[Any], blocks: int) -> None:
        """Ask for more or fewer blocks from now on, also after a take-over."""
        if blocks != self._window:
            self._window = blocks
            crash_point("before_window_commit")
            reorgs.remember_window(conn, self._source_id, blocks)
            crash_point("after_window_commit")

    def _shorter(self, conn: Connection[Any]) -> int:
        """The chain ends below the seal: a node behind the others, or blocks that gave way and have no successors yet.

        Far below, it is a node that reads the chain anew: it contradicts nothing. Raises Unreadable then, now and then.
        """
        if self._sealed_hash is not None and self._forks.shrunk(self._head, self._sealed):
            if self._head < self._sealed - self._reorg_depth:
                self._forks.joined()
                raise Unreadable(f"the chain ends at block {self._head}, far below sealed block {self._sealed}")
            self._undo(conn, self._head)
            return 1
        return 0

    def _take(self, conn: Connection[Any], window: Window, hi: int) -> None:
        self._hashes |= window.hashes
        idle = not window.envelopes and hi - self._sealed < FIRST_WINDOW
        if idle and monotonic() - self._sealed_at < IDLE_SEAL_SECONDS:
            self._scanned, self._scanned_hash = hi, window.last_hash
            return
        self._ensure_bands(hi)
        lo = self._sealed + 1
        kept = {block: found for block, found in self._hashes.items() if block >= hi - self._reorg_depth}
        recorded = envelopes.record_range(
            conn, self._source_id, lo, hi, window.envelopes, self._fence, window.last_hash,
            request_kinds=REQUEST_KINDS, make_band=self._make_band,
            sight=Sight(self._head, kept, self._reorg_depth),
        )  # fmt: skip
        self._sealed = self._scanned = hi
        self._scanned_hash = self._sealed_hash = window.last_hash
        self._hashes.clear()
        self._sealed_at = monotonic()
        if window.envelopes:
            log.debug(
                "range recorded", extra={"action": "range_recorded", "lo": lo, "hi": hi, "new": recorded.inserted}
            )
            self._applier.offer(conn, window.envelopes, lo, hi)
            self._cursor_at = monotonic()

    def _catch_up(self, conn: Connection[Any]) -> None:
        self._applier.catch_up(conn)
        self._cursor_at = monotonic()

    def _joins(self, conn: Connection[Any], shown: bytes) -> bool:
        """Whether the chain shows the block looked at last as it was then: `shown` is its hash now."""
        if self._scanned_hash in (None, shown):
            self._forks.joined()
            return True
        if self._scanned > self._sealed:
            # Nothing of the blocks looked at since the seal was stored: look at them again.
            self._scanned, self._scanned_hash = self._sealed, self._sealed_hash
            self._hashes.clear()
        elif self._sealed_hash is not None and self._forks.proven(self._sealed, self._sealed_hash):
            self._undo(conn, self._sealed)
        return False

    def _undo(self, conn: Connection[Any], compare_to: int) -> None:
        """Take back the blocks that gave way, found by comparing those up to `compare_to`. Raises SourceHalted, StaleEpoch."""
        try:
            fork = self._forks.find(conn, self._sealed, compare_to, self._reorg_depth, self._first)
        except TooDeep as error:
            reason = (
                f"reorganisation deeper than {self._reorg_depth} blocks: {error}; "
                f"block {self._sealed} was sealed as 0x{(self._sealed_hash or b'').hex()}"
            )
            found = self._forks.describe(conn, self._sealed, max(0, self._sealed - self._reorg_depth), self._first)
            evidence = {
                "source": self._source_id,
                "sealed_block": self._sealed,
                "sealed_hash": f"0x{(self._sealed_hash or b'').hex()}",
                **found,
            }
            crash_point("before_halt_commit")
            conflicts.halt_source(conn, self._source_id, reason, ReasonCode.DEEP_REORG, evidence, self._fence)
            crash_point("after_halt_commit")
            log.critical("source halted: %s", reason, extra={"action": "source_halted", "source": self._source_id})
            raise SourceHalted(reason) from None
        undone = undo(conn, self._source_id, fork, self._fence, sealed=self._sealed, request_kinds=REQUEST_KINDS)
        self._sealed = self._scanned = fork.block - 1
        self._sealed_hash = self._scanned_hash = fork.parent_hash
        self._hashes.clear()
        self._forks.joined()
        self._applier.forget()
        log.warning(
            "reorganisation undone",
            extra={
                "action": "reorg_undone",
                "source": self._source_id,
                "fork_block": fork.block,
                "envelopes": undone.envelopes,
                "withdrawn": undone.withdrawn,
                "final_rows": undone.final,
            },
        )

    def _ensure_bands(self, hi: int) -> None:
        """Make the band of `hi`, and the next one when an eighth of a band or less is left, before they are needed."""
        for block in (hi, hi + self._band_width // 8):
            if block // self._band_width not in self._bands:
                self._make_band(envelopes.position_of(block))

    def _make_band(self, position: int) -> None:
        with bands.own_connection() as own:
            crash_point("before_band_commit")
            envelopes.ensure_band(own, self._source_id, position)
            crash_point("after_band_commit")
        self._bands.add((position >> envelopes.INDEX_BITS) // self._band_width)


class ListenerTurn:
    """The listener as a turn: holds the lease while it can, stands by while another process has it."""

    name = "listener"

    def __init__(self, source_id: int = GATEWAY, *, on_held: Callable[[str], None] = lambda _: None) -> None:
        self._source_id, self._on_held = source_id, on_held
        self._lease: HeldLease | None = None
        self._listener: Listener | None = None
        self._try_at = 0.0
        self.fatal: ForeignChain | None = None

    def run(self, context: ShiftContext) -> int:
        """One poll under the lease; 0 on standby and when idle."""
        lease = self._held(context)
        if lease is None:
            return 0
        try:
            if self._listener is None:
                self._listener = self._open(context, lease)
            crash_point("before_listener_examine_rpc")
            context.clients.endpoints.examine()
            crash_point("after_listener_examine_rpc")
            return self._listener.poll(context.conn)
        except ForeignChain as error:
            self.fatal = error
            raise
        except (StaleEpoch, Gap, SourceHalted, Conflict):
            self._listener = None  # read again where the source stands
            raise
        except (Unreadable, RpcUnavailable) as error:
            log.warning("poll failed: %s", error, extra={"action": "poll_failed"})
            self._try_at = monotonic() + STANDBY_SECONDS
            return 0

    def close(self) -> None:
        """Give the lease up, so that a standby need not wait."""
        if self._lease is not None:
            self._lease.release()
        self._lease = self._listener = None

    def _held(self, context: ShiftContext) -> HeldLease | None:
        if monotonic() < self._try_at:
            return None
        if self._lease is not None and self._lease.lost:
            self._lease = self._listener = None
        if self._lease is None:
            self._lease = context.leases.try_hold(resource(self._source_id))
            if self._lease is None:
                self._try_at = monotonic() + STANDBY_SECONDS
                return None
            self._on_held(self._lease.resource)
        return self._lease

    def _open(self, context: ShiftContext, lease: HeldLease) -> Listener:
        settled = config()
        contracts = contracts_of(settled)
        blocks = Blocks(context.clients.gateway)
        applier = Applier(self._source_id, Reader(contracts, thresholds_of(settled, context.clients)))
        listener = Listener(self._source_id, blocks, applier, Fence(lease.resource, lease.instance, lease.epoch))
        listener.open(context.conn, settled.gateway.chain_id, settled.gateway.start_block)
        return listener


def run(stop: Callable[[], bool]) -> None:
    """Listen until `stop()` is true. Raises ForeignChain, without a retry, when the chain is not this database's.

    The holder's signs of life stand under the name of the lease, which is where health checks look.
    """
    instance = new_instance("listener")
    keeper = LeaseKeeper(instance, float(settings.LEASE_SECONDS))
    turn = ListenerTurn(on_held=keeper.beat_as)
    context = ShiftContext(instance, keeper, lambda: stop() or turn.fatal is not None)
    loop = TurnLoop(context, [turn], float(settings.LISTENER_POLL_SECONDS), over=context.stopping)
    try:
        loop.run()
    finally:
        loop.close()
        context.close()
        keeper.close()
    if turn.fatal is not None:
        raise turn.fatal
