"""The first page's figures: ended requests, step by step so that nobody ever counts the big tables, and what waits, over and over."""

from __future__ import annotations

from typing import Final

from requests_app.crash_points import crash_point
from requests_app.errors import StaleEpoch
from requests_app.states import Kind
from requests_app.store import figures, leases
from requests_app.store.session import transaction
from requests_app.store.signing import Fence
from workers.leases import HeldLease
from workers.shift import ShiftContext

INTERVAL: Final = 5.0
# Longer than any worker's transaction may last (statement 10 s, idle 5 s): what ended before is visible by then.
SETTLE_SECONDS: Final = 15.0
BATCH: Final = 20_000


def run(context: ShiftContext, lease: HeldLease) -> int:
    """Count what ended since the last run, at most BATCH rows a kind, and what waits now. Raises StaleEpoch when the duty went to somebody else."""
    counted = 0
    with transaction(context.conn):
        if not leases.fence(context.conn, lease.resource, lease.instance, lease.epoch):
            raise StaleEpoch(lease.resource)
        figures.count_live(context.conn)
        figures.count_jobs(context.conn)
        crash_point("before_waiting_figures_commit")
    crash_point("after_waiting_figures_commit")
    fence = Fence(lease.resource, lease.instance, lease.epoch)
    for kind in Kind:
        crash_point("before_figures_commit")
        counted += figures.count_ended(context.conn, kind, SETTLE_SECONDS, BATCH, fence)
        crash_point("after_figures_commit")
    crash_point("before_forget_steps_commit")
    figures.forget_steps(context.conn)
    crash_point("after_forget_steps_commit")
    return counted if counted >= BATCH else 0
