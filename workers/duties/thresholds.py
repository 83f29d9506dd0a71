"""Thresholds that could not be read when the shares came: asked again until the host chain answers."""

from __future__ import annotations

from typing import Final

from requests_app.config import config
from requests_app.crash_points import crash_point
from requests_app.store.answers import unresolved_thresholds
from requests_app.transitions.answers import resolve_thresholds
from workers.leases import HeldLease
from workers.shift import ShiftContext
from workers.thresholds import thresholds_of

INTERVAL: Final = 2.0
BATCH: Final = 500


def run(context: ShiftContext, lease: HeldLease) -> int:
    """Resolve what the chain answers now; rows that have enough shares complete. A fact of the chain: not fenced."""
    waiting = unresolved_thresholds(context.conn, BATCH)
    if not waiting:
        return 0
    # The host client remembers what it was told; what it was not told is asked again at every run.
    thresholds = thresholds_of(config(), context.clients)
    thresholds.prepare(bytes(row.extra_data) for row in waiting)
    known = {bytes(row.ref): found for row in waiting if (found := thresholds.known(bytes(row.extra_data))) is not None}
    if known:
        crash_point("before_thresholds_commit")
        resolve_thresholds(context.conn, known)
        crash_point("after_thresholds_commit")
    return len(known)
