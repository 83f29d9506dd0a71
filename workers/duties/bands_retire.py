"""Old bands of the envelope log leave whole: detached without blocking anybody, then dropped (reference/envelopes.md 6.3).

A band goes when it is settled (full, below the reorg depth), every required consumer has read it, nothing of it waits for a redrive,
and no row of it must be kept. Payloads may go earlier (ENVELOPE_BLOB_RETAIN_DAYS). No row is ever deleted one by one.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any, Final

import psycopg
from django.conf import settings
from psycopg import Connection

from requests_app.crash_points import crash_point
from requests_app.store import retirement
from requests_app.store.publish import purge_published
from requests_app.store.retirement import BLOB, META, Band, BandState, Gate
from requests_app.store.session import connect
from requests_app.store.usage import purge_congestion
from workers.leases import HeldLease
from workers.shift import ShiftContext

log = logging.getLogger("relayer.envelopes")

INTERVAL: Final = 600.0
BANDS_A_RUN: Final = 8
ALARM_BANDS: Final = 64
MOST_BANDS: Final = 200


def run(context: ShiftContext, lease: HeldLease) -> int:
    """Retire a bounded number of bands; how many. Own connection: it waits 200 ms for a lock, then lets others pass."""
    with connect("maintenance", name="bands-retire") as conn:
        crash_point("before_purge_congestion_commit")
        purge_congestion(conn)
        crash_point("after_purge_congestion_commit")
        bands = retirement.live_bands(conn)
        _alarm(bands)
        if not settings.ENVELOPE_RETENTION_ENABLED:
            return 0
        retired, blocked = 0, Counter[str]()
        waiting: set[int] = set()  # originators with a detach that waits for readers: PostgreSQL allows one a table
        for band in bands:
            if band.source_id in waiting:
                continue
            if context.stopping() or lease.lost or retired >= BANDS_A_RUN:
                break
            try:
                held = retire(conn, band)
            except (psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled):
                blocked["lock"] += 1  # the catalogue knows how far it came
                waiting.add(band.source_id)
                continue
            retired += held is None
            if held is not None:
                blocked[held.value] += 1
        if blocked:
            log.info("bands kept", extra={"action": "bands_kept", **{f"by_{why}": n for why, n in blocked.items()}})
        return retired


def retire(conn: Connection[Any], band: Band) -> Gate | None:
    """Bring one band as far as it may go: None when something of it left, else what holds it back."""
    state = band.state
    if state in (BandState.OPEN, BandState.BLOBS_DROPPED):
        held = retirement.gate(conn, band)
        if held is None:
            if not retirement.mark(conn, band, state, BandState.RETIRING):
                return Gate.DEPTH
            state = BandState.RETIRING
        elif state is BandState.BLOBS_DROPPED or not _blobs_may_go(conn, band):
            return held
        elif retirement.mark(conn, band, state, BandState.BLOBS_RETIRING):
            state = BandState.BLOBS_RETIRING
    if state is BandState.BLOBS_RETIRING:
        retirement.remove_partition(conn, BLOB, band.source_id, band.band_no)
        retirement.mark(conn, band, state, BandState.BLOBS_DROPPED)
    elif state is BandState.RETIRING:
        for base in (BLOB, META):
            retirement.remove_partition(conn, base, band.source_id, band.band_no)
        crash_point("before_purge_published_commit")
        purge_published(conn, band.source_id, band.lo, band.hi)
        crash_point("after_purge_published_commit")
        retirement.mark(conn, band, state, BandState.DROPPED)
    log.info("band retired", extra={"action": "band_retired", "source": band.source_id, "band": band.band_no})
    return None


def _blobs_may_go(conn: Connection[Any], band: Band) -> bool:
    days = int(settings.ENVELOPE_BLOB_RETAIN_DAYS)
    return days > 0 and retirement.gate(conn, band, days) is None


def _alarm(bands: list[Band]) -> None:
    """Planning slows down with the number of bands (T12): say so while there is time."""
    for source, count in Counter(band.source_id for band in bands).items():
        if count > ALARM_BANDS:
            level = logging.ERROR if count >= MOST_BANDS else logging.WARNING
            log.log(level, "many live bands", extra={"action": "many_bands", "source": source, "bands": count})
