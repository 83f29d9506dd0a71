"""Partitions of the envelope log ahead of need, so that an insert almost never meets a missing one."""

from __future__ import annotations

from typing import Final

from requests_app.crash_points import crash_point
from requests_app.store import bands
from requests_app.store.envelopes import ensure_band
from requests_app.store.readers import list_originators
from workers.leases import HeldLease
from workers.shift import ShiftContext

INTERVAL: Final = 60.0
YOUNG_SECONDS: Final = 2 * INTERVAL


def run(context: ShiftContext, lease: HeldLease) -> int:
    """Make the bands of the head and of a quarter band later, of every originator that writes: how many were missing.

    A minute after a band was made every session is told of it again: before anything is in it, as a rule.
    """
    for source in bands.young(context.conn, YOUNG_SECONDS):
        bands.refresh(source)
    made = 0
    for originator in list_originators(context.conn):
        if originator.head is None:
            continue
        for position in (originator.head, originator.head + originator.width // 4):
            crash_point("before_duty_band_commit")
            made += ensure_band(context.conn, originator.source_id, max(0, position))
            crash_point("after_duty_band_commit")
    return made
