"""The sweep cluster's turns: one duty each, by its interval, in one process of the deployment at a time.

The lease `singleton:<duty>` says which process. It is kept from turn to turn and given up with the shift; writes that decide
something carry its epoch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import Final

from workers.duties import (
    bands,
    bands_retire,
    books,
    confirm,
    conflicts,
    deadlines,
    figures,
    jobs,
    keys,
    payment_jobs,
    recon,
    reorgs,
    retention,
    thresholds,
    webhooks,
)
from workers.leases import HeldLease
from workers.shift import ShiftContext

log = logging.getLogger("relayer.sweep")

STANDBY_SECONDS: Final = 1.0
Duty = Callable[[ShiftContext, HeldLease], int]


class DutyTurn:
    """A duty as a turn. `duty(context, lease)` does a bounded amount of work and says how many items it was."""

    def __init__(self, name: str, interval_seconds: float, duty: Duty) -> None:
        self.name = name
        self._interval = interval_seconds
        self._duty = duty
        self._lease: HeldLease | None = None
        self._due_at = 0.0

    def run(self, context: ShiftContext) -> int:
        """Do the duty when it is due and ours. Work left over is taken up at once, not after the interval."""
        if monotonic() < self._due_at:
            return 0
        if self._lease is None or self._lease.lost:
            self._lease = context.leases.try_hold(f"singleton:{self.name}")
        if self._lease is None:
            self._due_at = monotonic() + max(STANDBY_SECONDS, self._interval)
            return 0
        # Set first, so that a duty that raises is not due again before its interval.
        self._due_at = monotonic() + self._interval
        handled = self._duty(context, self._lease)
        if handled:
            log.info("duty done", extra={"action": "duty_done", "duty": self.name, "items": handled})
            self._due_at = min(self._due_at, monotonic() + STANDBY_SECONDS)
        return handled

    def close(self) -> None:
        """Give the lease up."""
        if self._lease is not None:
            self._lease.release()
            self._lease = None


def duties() -> list[DutyTurn]:
    """New turns for every duty. Intervals are seconds."""
    return [
        DutyTurn("thresholds", thresholds.INTERVAL, thresholds.run),
        DutyTurn("deadlines", deadlines.INTERVAL, deadlines.run),
        DutyTurn("confirm", confirm.INTERVAL, confirm.Confirmation().run),
        DutyTurn("jobs", jobs.INTERVAL, jobs.run),
        DutyTurn("payment_jobs", payment_jobs.INTERVAL, payment_jobs.run),
        DutyTurn("keys", keys.INTERVAL, keys.run),
        DutyTurn("reorgs", reorgs.INTERVAL, reorgs.run),
        DutyTurn("conflicts", conflicts.INTERVAL, conflicts.run),
        DutyTurn("recon", recon.INTERVAL, recon.Reconciliation().run),
        DutyTurn("bands", bands.INTERVAL, bands.run),
        DutyTurn("bands_retire", bands_retire.INTERVAL, bands_retire.run),
        DutyTurn("books", books.INTERVAL, books.run),
        DutyTurn("figures", figures.INTERVAL, figures.run),
        DutyTurn("webhooks", webhooks.INTERVAL, webhooks.run),
        DutyTurn("retention", retention.INTERVAL, retention.run),
    ]
