"""The safety net under payments: one that waits always has a job, one whose time is over before anything was signed is canceled."""

from __future__ import annotations

from typing import Final

from requests_app.crash_points import crash_point
from requests_app.errors import StaleEpoch
from requests_app.store import intents as intent_store
from requests_app.store import leases
from requests_app.store import settling as store
from requests_app.store.queue import RESCUE
from requests_app.store.session import transaction
from requests_app.transitions import intents
from workers.leases import HeldLease
from workers.shift import ShiftContext

INTERVAL: Final = 15.0
IDLE_SECONDS: Final = 60.0
BATCH: Final = 1000


def run(context: ShiftContext, lease: HeldLease) -> int:
    """Make missing jobs of payments that were idle for a minute, and cancel the expired; how many of both."""
    conn = context.conn
    crash_point("before_enqueue_payments_commit")
    made = intent_store.enqueue_settle(conn, store.lost_payments(conn, IDLE_SECONDS, BATCH), RESCUE)
    crash_point("after_enqueue_payments_commit")
    with transaction(conn):
        if not leases.fence(conn, lease.resource, lease.instance, lease.epoch):
            raise StaleEpoch(lease.resource)
        expired = intents.expire(conn, BATCH, epoch=lease.epoch)
        crash_point("before_expire_payments_commit")
    crash_point("after_expire_payments_commit")
    return len(made) + len(expired)
