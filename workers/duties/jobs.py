"""The safety net under the queue: a row that waits for work always has a job."""

from __future__ import annotations

from typing import Final

from requests_app.crash_points import crash_point
from requests_app.store.queue import RESCUE
from requests_app.store.sweep import enqueue_lost
from workers.leases import HeldLease
from workers.shift import ShiftContext

INTERVAL: Final = 15.0
IDLE_SECONDS: Final = 60.0
BATCH: Final = 1000


def run(context: ShiftContext, lease: HeldLease) -> int:
    """Make missing jobs of rows that were idle for a minute. One job a row whatever happens: its key is unique."""
    crash_point("before_enqueue_lost_commit")
    made = enqueue_lost(context.conn, IDLE_SECONDS, BATCH, RESCUE)
    crash_point("after_enqueue_lost_commit")
    return made
