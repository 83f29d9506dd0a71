"""The slots of a process group and their succession of shifts (design 5.1 no. 2; engine_spike section 1).

A slot is the lease `shift:<group>:<n>`. A shift holds it for a bounded time, enqueues its successor a second before the end, and hands
over. A successor follows exactly one epoch: however often q2 delivers it, the lease lets one in.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

import psycopg
from django.conf import settings
from django.db import InterfaceError, OperationalError

from workers.leases import HeldLease, LeaseKeeper
from workers.shift import ShiftContext, cluster_loop, new_instance

log = logging.getLogger("relayer.shift")

HAND_OVER_SECONDS = 1.0
"""The successor is enqueued this long before the end, so that q2 has fetched it by then."""
OVERTIME_SECONDS = 10.0
"""How much longer a shift stays when its successor cannot be enqueued (an outage of the database)."""
STEP_SECONDS = 0.01
OUTAGE_STEP_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class ShiftPlan:
    """One shift of one slot, as the successor of lease epoch `after`. Durations are seconds, `begin_at` seconds since 1970."""

    cluster: str
    group: str
    slot: int
    after: int
    wait: float
    seconds: float
    begin_at: float = 0.0


Enqueue = Callable[[ShiftPlan, int, float], None]
"""(plan, epoch that the successor follows, when the shift means to end)."""


def slot_prefix(group: str) -> str:
    """What the lease resources of a group's slots start with."""
    return f"shift:{group}:"


def slot_resource(group: str, slot: int) -> str:
    """The lease resource of one slot."""
    return f"{slot_prefix(group)}{slot}"


def work_shift(plan: ShiftPlan, stop_requested: Callable[[], bool], enqueue: Enqueue) -> str:
    """Get the slot, work it for the plan's time, see to a successor, hand over. What became of it, in words."""
    resource = slot_resource(plan.group, plan.slot)
    keeper = LeaseKeeper(new_instance(f"{plan.group}/{plan.slot}"), float(settings.LEASE_SECONDS))
    try:
        _sleep_until(plan.begin_at, stop_requested)
        lease = _wait_for_slot(keeper, resource, plan, stop_requested)
        if lease is None:
            return "superseded"
        keeper.beat_as(resource)
        handled = _Shift(plan, keeper, lease, stop_requested, enqueue).work()
        return f"epoch {lease.epoch}: {handled} items{', lease lost' if lease.lost else ''}"
    finally:
        keeper.close()


class _Shift:
    """The time between getting the slot and giving it up."""

    def __init__(
        self,
        plan: ShiftPlan,
        keeper: LeaseKeeper,
        lease: HeldLease,
        stop_requested: Callable[[], bool],
        enqueue: Enqueue,
    ) -> None:
        self._plan, self._keeper, self._lease = plan, keeper, lease
        self._stop_requested, self._enqueue = stop_requested, enqueue
        self._ends = monotonic() + plan.seconds
        self._successor_due = self._ends - min(HAND_OVER_SECONDS, plan.seconds / 2)
        self._succeeded = False

    def work(self) -> int:
        """Go round the turns until the end; how many items were handled."""
        cluster = self._plan.cluster
        context = ShiftContext(self._keeper.instance, self._keeper, self._wanted_back)
        loop = cluster_loop(context, cluster, over=self._over, after_round=self._see_to_successor)
        try:
            return loop.run()
        finally:
            loop.close()
            context.close()

    def _wanted_back(self) -> bool:
        # A turn that is busy for long must come back for the successor's sake, a second before the end. While the lease cannot be
        # renewed no turn runs, but the shift stays: after an outage it works on, if nobody has followed it meanwhile.
        return self._over() or self._lease.lost or (not self._succeeded and monotonic() >= self._successor_due)

    def _over(self) -> bool:
        if self._stop_requested() or self._lease.ended:
            return True
        return monotonic() >= self._ends + (0.0 if self._succeeded else OVERTIME_SECONDS)

    def _see_to_successor(self) -> None:
        now = monotonic()
        if self._succeeded or now < self._successor_due or self._over():
            return
        try:
            self._enqueue(self._plan, self._lease.epoch, time.time() + max(0.0, self._ends - now))
            self._succeeded = True
        except (OperationalError, InterfaceError) as error:
            self._successor_due = now + HAND_OVER_SECONDS / 2
            log.warning("successor not enqueued", extra={"action": "shift_successor", "error": str(error)})


def _sleep_until(begin_at: float, stop_requested: Callable[[], bool]) -> None:
    # The predecessor still works: asking for its lease meanwhile would be load without use.
    while not stop_requested():
        remaining = min(begin_at - time.time(), HAND_OVER_SECONDS)
        if remaining <= 0:
            return
        time.sleep(min(remaining, 0.05))


def _wait_for_slot(
    keeper: LeaseKeeper, resource: str, plan: ShiftPlan, stop_requested: Callable[[], bool]
) -> HeldLease | None:
    give_up = monotonic() + plan.wait
    last = give_up + OVERTIME_SECONDS
    while True:
        try:
            lease = keeper.try_hold(resource, after=plan.after)
            if lease is not None:
                return lease
            # Only while the row still stands at the epoch that this shift follows is there anything to wait for.
            if stop_requested() or monotonic() >= give_up or keeper.epoch_of(resource) != plan.after:
                return None
        except psycopg.OperationalError as error:
            # The succession must not end with an outage that falls on a hand-over.
            if stop_requested() or monotonic() >= last:
                raise
            give_up = min(last, monotonic() + plan.wait)
            log.warning("waiting for the database: %s", error, extra={"action": "shift_wait"})
            time.sleep(OUTAGE_STEP_SECONDS)
        time.sleep(STEP_SECONDS)
