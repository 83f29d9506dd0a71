"""The books are looked at all the time: the invariants of payments window by window, and the journal's head told to the outside.

At each run every invariant is judged in one window, whose place follows from the clock: nothing is remembered, any process may go on.
With the default sizes a million payments come round in about eight hours; `manage.py relayer_check_invariants` looks at all at once.
The head goes into the log, which leaves the machine: with it a journal that lost its tail, or was written anew, is found out
(`relayer_ledger verify --head`).
"""

from __future__ import annotations

import logging
from time import monotonic
from typing import Final

import psycopg

from requests_app.metrics import invariant_violations
from requests_app.store import invariants, ledger
from requests_app.store.invariants import INVARIANTS, Invariant
from workers.leases import HeldLease
from workers.shift import ShiftContext

log = logging.getLogger("relayer.books")

INTERVAL: Final = 60.0
WINDOW: Final = 2_000
PATIENCE_SECONDS: Final = 2.0  # the other duties of the shift wait so long
PUBLISH_SECONDS: Final = 3600.0  # at least daily is asked for; a process that begins publishes at once

_published: dict[str, float] = {}


def run(context: ShiftContext, lease: HeldLease) -> int:
    """One window of each invariant, and the head when it is due. Reads only: not fenced. Returns 0: there is never work left over."""
    reach = invariants.spans(context.conn)
    minute = int(invariants.clock(context.conn) // INTERVAL)
    with invariants.patience(context.conn, PATIENCE_SECONDS):
        for one in INVARIANTS:
            if context.stopping():
                return 0
            _look(context, one, *window(minute, *reach[one.over]))
    if monotonic() - _published.get("head", -PUBLISH_SECONDS) >= PUBLISH_SECONDS:
        _published["head"] = monotonic()
        publish_head(context)
    return 0


def window(turn: int, first: int, last: int) -> tuple[int, int]:
    """The window (low, high] of a turn within (first, last]: one after the other, then from the beginning."""
    if last - first <= WINDOW:
        return first, last
    low = first + turn % -(-(last - first) // WINDOW) * WINDOW
    return low, min(low + WINDOW, last)


def publish_head(context: ShiftContext) -> None:
    """Number and hash of the last entry into the log."""
    head = ledger.head(context.conn)
    log.info("ledger head", extra={"action": "ledger_head", "seq": head.seq, "hash": head.hash.hex()})


def _look(context: ShiftContext, invariant: Invariant, low: int, high: int) -> None:
    """Judge one window; what breaks it is counted and named. A statement that takes too long is left to the command."""
    try:
        found = invariants.check(context.conn, invariant, low, high)
    except psycopg.errors.QueryCanceled:
        log.warning(
            "invariant not judged", extra={"action": "invariant_timeout", "invariant": invariant.name, "low": low}
        )
        return
    if found:
        invariant_violations.labels(invariant.name).inc(len(found))
        named = [f"{one.subject}: {one.detail}" for one in found[:10]]
        log.error(
            "invariant violated",
            extra={"action": "invariant_violated", "invariant": invariant.name, "rows": len(found), "named": named},
        )
