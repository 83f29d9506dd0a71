"""Partitions of the envelope log ahead of need, so that an insert almost never meets a missing one."""

from __future__ import annotations

from typing import Final

from requests_app.crash_points import crash_point
from requests_app.store.envelopes import ensure_band, list_sources, position_of
from workers.leases import HeldLease
from workers.shift import ShiftContext

INTERVAL: Final = 60.0


def run(context: ShiftContext, lease: HeldLease) -> int:
    """Make the bands of the seal and of a quarter band later, of every source: how many were missing."""
    made = 0
    for source in list_sources(context.conn):
        for block in (source.block, source.block + source.band_blocks // 4):
            crash_point("before_duty_band_commit")
            made += ensure_band(context.conn, source.source_id, position_of(max(0, block)))
            crash_point("after_duty_band_commit")
    return made
