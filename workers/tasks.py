"""The tasks that django-q2 delivers: a shift, and the safety net under the shifts. A delivery may come twice; a lease decides."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import close_old_connections

from requests_app.crash_points import crash_point
from requests_app.store import leases as table
from requests_app.store.session import connect
from workers.cluster.stop import stop_requested
from workers.slots import ShiftPlan, slot_prefix, slot_resource, work_shift

IDLE_SECONDS = 2.0
"""A slot without a holder for longer than this has lost its succession."""


def run_shift(
    cluster: str, group: str, slot: int, after: int, wait: float, seconds: float | None, begin_at: float
) -> str:
    """Work one shift of a slot, as the successor of epoch `after`; what it did, in words.

    `wait`: seconds to wait for the predecessor. `seconds`: the shift's length, None for the usual one. `begin_at`: when the
    predecessor means to end, in seconds since 1970 by this host's clock (only a hint when to begin asking).
    """
    length = float(settings.SHIFT_SECONDS) if seconds is None else seconds
    plan = ShiftPlan(cluster, group, slot, after=after, wait=wait, seconds=length, begin_at=begin_at)
    return work_shift(plan, stop_requested, _enqueue_successor)


def restart_shifts(cluster: str, group: str) -> int:
    """Send a shift to each slot that nobody has worked for a while; how many. Runs once a minute."""
    with connect("worker", name="safety net") as conn:
        idle = table.idle_leases(conn, slot_prefix(group), IDLE_SECONDS)
    for lease in idle:
        enqueue_shift(cluster, group, int(lease.resource.rpartition(":")[2]), after=lease.epoch, wait=0.0)
    return len(idle)


def enqueue_shift(
    cluster: str,
    group: str,
    slot: int,
    *,
    after: int,
    wait: float,
    seconds: float | None = None,
    begin_at: float = 0.0,
) -> None:
    """Put a shift into the group's own queue. Raises django.db.OperationalError when the database is away."""
    from django_q.tasks import async_task

    close_old_connections()  # q2's own may have met a restart of the server since the shift began, and does not mend itself
    options: dict[str, Any] = {"cluster": group, "task_name": f"{slot_resource(group, slot)}>{after}"}
    crash_point("before_shift_enqueue_commit")
    async_task("workers.tasks.run_shift", cluster, group, slot, after, wait, seconds, begin_at, q_options=options)
    crash_point("after_shift_enqueue_commit")


def _enqueue_successor(plan: ShiftPlan, epoch: int, begin_at: float) -> None:
    # The successor of epoch `epoch`: the lease lets one and only one of them in, however often q2 delivers it.
    wait = float(settings.LEASE_SECONDS) + 1
    enqueue_shift(plan.cluster, plan.group, plan.slot, after=epoch, wait=wait, begin_at=begin_at)
