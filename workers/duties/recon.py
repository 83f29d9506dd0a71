"""The chain's payments against our books, window by window over final blocks (reference queue_settle 4.7).

The chain is asked once more for the events of each window: what a node had withheld when the block was sealed is stored and applied
first. Windows grow while the node answers and are halved when it finds them too large.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from requests_app.crash_points import crash_point
from requests_app.store import consumers, envelopes
from requests_app.store import recon as store
from requests_app.store.envelopes import INDEX_BITS
from requests_app.store.session import retry_serialization
from requests_app.store.signing import Fence
from requests_app.transitions.reconciling import Reconciled, reconcile
from workers.chain.events import DecodedLogs
from workers.chain.rpc_errors import RpcError, RpcUnavailable
from workers.duties import chain_evidence, confirm
from workers.listener import GATEWAY
from workers.shift import ShiftContext

if TYPE_CHECKING:
    from workers.leases import HeldLease

log = logging.getLogger("relayer.recon")

INTERVAL: Final = 5.0
FIRST_WINDOW: Final = 1000
LARGEST_WINDOW: Final = 20_000
WINDOWS_A_RUN: Final = 8


class Reconciliation:
    """The duty, with the window that the node answers for. Made anew with each process."""

    def __init__(self) -> None:
        self.window = FIRST_WINDOW

    def run(self, context: ShiftContext, lease: HeldLease) -> int:
        """Reconcile what became final since the last run: how many findings. An idle chain of no payments costs one request."""
        if not context.clients.gateway.config.tokens:
            return 0
        source = envelopes.read_source(context.conn, GATEWAY)
        if source is None or source.halted is not None:
            return 0
        chain = confirm.how_far(context)
        if chain is None:
            return 0
        final = min(chain.settled(confirm.policy()), source.block)
        return self.up_to(context, Fence(lease.resource, lease.instance, lease.epoch), final)

    def up_to(self, context: ShiftContext, fence: Fence, final: int) -> int:
        """Reconcile at most WINDOWS_A_RUN windows up to block `final`, which is sealed: how many findings."""
        crash_point("before_open_recon_commit")
        lo = store.open_cursor(context.conn, GATEWAY) + 1
        crash_point("after_open_recon_commit")
        found = 0
        for _ in range(WINDOWS_A_RUN):
            hi = min(final, self._applied(context), lo + self.window - 1)
            if hi < lo or context.stopping():
                break
            asked = self.window
            shown = self._ask(context, lo, hi)
            if shown is None and self.window < asked:
                continue
            done = None if shown is None else self._compare(context, fence, lo, hi, shown)
            if done is None:
                break
            found += len(done.findings)
            lo = hi + 1
        return found

    def _compare(self, context: ShiftContext, fence: Fence, lo: int, hi: int, shown: DecodedLogs) -> Reconciled | None:
        """One window that was read: None when somebody else has reconciled it. Raises Conflict when the log holds another event."""
        lacking = store.not_logged(context.conn, GATEWAY, {one.position: one.digest for one in shown.envelopes})
        if lacking:
            chain_evidence.store_and_apply(context, [one for one in shown.envelopes if one.position in lacking])
        done = retry_serialization(lambda: reconcile(context.conn, GATEWAY, fence, lo, hi))
        if hi - lo + 1 >= self.window:
            self.window = min(LARGEST_WINDOW, self.window + max(1, self.window // 8))
        if done is not None and done.findings:
            log.critical(
                "the chain and the books differ",
                extra={
                    "action": "recon_findings",
                    "blocks": f"{lo}..{hi}",
                    "findings": [f"{one.kind} 0x{one.ref.hex()}" for one in done.findings][:20],
                    "cases": done.cases,
                },
            )
        return done

    def _ask(self, context: ShiftContext, lo: int, hi: int) -> DecodedLogs | None:
        """The chain's payment events of the window; None when it is to be asked again, for less where it refuses so much."""
        crash_point("before_recon_window_rpc")
        try:
            shown = context.clients.gateway.payment_events(lo, hi)
        except RpcError as error:
            self.window = min(self.window, max(1, (hi - lo + 1) // 2))
            log.info("smaller window: %s", error, extra={"action": "recon_window_halved", "blocks": self.window})
            return None
        except RpcUnavailable as error:
            log.warning("window not read: %s", error, extra={"action": "recon_unavailable"})
            return None
        crash_point("after_recon_window_rpc")
        if shown.bad:
            log.error("unreadable payment events: %s", shown.bad[0], extra={"action": "recon_unreadable"})
            return None
        return shown

    def _applied(self, context: ShiftContext) -> int:
        """The last block that the applier has come past: what it has not seen is not missing. It may be behind the seal all the time."""
        return (consumers.read_consumer(context.conn, GATEWAY).position + 1 >> INDEX_BITS) - 1
