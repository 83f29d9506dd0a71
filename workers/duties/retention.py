"""Final rows leave after their retention, with payload, shares, views and history. Rows that are not final never do.

RETENTION_ENABLED=false keeps them for ever. Foreign references (other relayers share the gateway; their shares are counted like early ones of ours) leave after
an hour, signs of life of what has long been gone and reviewers' holds a day after their end, idempotency keys an hour after theirs,
webhooks' deliveries WEBHOOK_RETENTION_DAYS after their end, always.
Should one of them turn out to be ours after all, the applier reads its answers from the log again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

import psycopg
from django.conf import settings

from requests_app.crash_points import crash_point
from requests_app.states import REQUEST_KINDS, Kind
from requests_app.store.beats import forget_silent
from requests_app.store.idempotency import purge_keys
from requests_app.store.leases import forget_holds
from requests_app.store.session import connect
from requests_app.store.sweep import purge_foreign, purge_requests
from requests_app.store.webhooks import purge_deliveries, purge_webhooks
from workers.leases import HeldLease
from workers.shift import ShiftContext

log = logging.getLogger("relayer.sweep")

INTERVAL: Final = 60.0
BATCH: Final = 500
BATCHES_A_RUN: Final = 20
FOREIGN_SECONDS: Final = 3600.0
DAY: Final = 86_400.0


def days(kind: Kind) -> float:
    """The retention of a kind: setting `<KIND>_RETENTION_DAYS`, for example USER_DECRYPT_RETENTION_DAYS."""
    return float(getattr(settings, f"{kind.name}_RETENTION_DAYS"))


def run(context: ShiftContext, lease: HeldLease) -> int:
    """Purge a bounded number of rows; how many. Own connection: retention waits 200 ms for a lock, then lets others pass."""
    removed = 0
    with connect("maintenance", name="retention") as conn:
        removed += _batches(context, partial(purge_foreign, conn, FOREIGN_SECONDS, BATCH))
        removed += _batches(context, partial(forget_silent, conn, DAY))
        removed += _batches(context, partial(forget_holds, conn, DAY, BATCH))
        removed += _batches(context, partial(purge_keys, conn, BATCH))
        removed += _batches(
            context, partial(purge_deliveries, conn, float(settings.WEBHOOK_RETENTION_DAYS) * DAY, BATCH)
        )
        removed += _batches(context, partial(purge_webhooks, conn, BATCH))
        if settings.RETENTION_ENABLED:
            for kind in REQUEST_KINDS:
                removed += _batches(context, partial(purge_requests, conn, kind, days(kind) * DAY, BATCH))
    return removed


def _batches(context: ShiftContext, purge: Callable[[], int]) -> int:
    """Batches until one is not full, the shift ends, or somebody else holds a lock."""
    removed = 0
    for _ in range(BATCHES_A_RUN):
        if context.stopping():
            break
        try:
            crash_point("before_purge_commit")
            count = purge()
            crash_point("after_purge_commit")
        except psycopg.errors.LockNotAvailable:
            log.info("retention gives way", extra={"action": "retention_lock"})
            break
        removed += count
        if count < BATCH:
            break
    return removed
