"""Deliveries that nobody will make: of removed webhooks, and those that have waited for too long."""

from __future__ import annotations

from typing import Final

from django.conf import settings

from requests_app.crash_points import crash_point
from requests_app.transitions import deliveries
from workers.leases import HeldLease
from workers.shift import ShiftContext

INTERVAL: Final = 30.0
BATCH: Final = 500
DAY: Final = 86_400.0


def run(context: ShiftContext, lease: HeldLease) -> int:
    """End a bounded number of them; how many. Guarded by their state: twins do no harm."""
    crash_point("before_drop_webhooks_commit")
    dropped = deliveries.drop_removed(context.conn, BATCH)
    crash_point("after_drop_webhooks_commit")
    crash_point("before_expire_webhooks_commit")
    expired = deliveries.expire(context.conn, float(settings.WEBHOOK_EXPIRY_DAYS) * DAY, BATCH)
    crash_point("after_expire_webhooks_commit")
    return dropped + expired
