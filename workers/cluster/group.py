"""One q2 process group: its queue key, its first shifts, its start and its end (engine_spike section 1).

A group is named after its cluster and the place where it runs, `settle-<host>`; the name is its queue key, so that two groups never
take each other's shifts. Its slots are the leases `shift:<group>:<n>`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from types import FrameType
from typing import Any

from django.conf import settings
from django.db import connections
from django.utils import timezone
from django.utils.module_loading import import_string

from requests_app.crash_points import crash_point
from requests_app.store import leases as table
from requests_app.store.session import connect
from workers import heap, lifeline
from workers.cluster import queue_locks
from workers.cluster.stop import request_stop
from workers.slots import slot_resource
from workers.tasks import enqueue_shift

log = logging.getLogger("relayer.cluster")

_SCHEDULE_PREFIX = "shifts of "
_FORGOTTEN_AFTER = timedelta(days=1)


def group_name(cluster: str, suffix: str = "") -> str:
    """The name of this host's group of a cluster; `suffix` tells several of one host apart."""
    return "-".join(part for part in (cluster, str(settings.HOST_NAME), suffix) if part)


def slots_of(group: str) -> list[str]:
    """The lease resources of a group's slots."""
    return [slot_resource(group, slot) for slot in range(int(settings.SHIFT_SLOTS))]


def run_group(cluster: str, group: str) -> int:
    """Run the group until it is told to stop: 0 after an orderly end, 1 when its sentinel ended on its own.

    Raises psycopg.OperationalError or django.db.OperationalError when the database is away at the start; the watchdog tries again.
    """
    _preload(cluster)
    _prepare(cluster, group)
    queue_locks.install()
    lifeline.tie_every_fork()
    connections.close_all()
    heap.freeze_loaded()
    started = _cluster_class()()
    started.start()
    if started.stopping_for_good:
        started.stop()  # the signal came before there was a sentinel to stop
    sentinel = started.sentinel
    sentinel.join()
    log.info("group ended", extra={"action": "group_ended", "group": group, "exit_code": sentinel.exitcode})
    return 0 if started.stopping_for_good else 1


def _cluster_class() -> Callable[[], Any]:
    from django_q.cluster import Cluster

    class RelayerCluster(Cluster):
        stopping_for_good = False

        def sig_handler(self, number: int, frame: FrameType | None) -> None:
            self.stopping_for_good = True
            request_stop()
            if self.sentinel is not None and self.stop_event is not None:
                super().sig_handler(number, frame)

    return RelayerCluster


def _preload(cluster: str) -> None:
    # Before the forks: web3 alone takes most of a second, and the children share its memory.
    for name in settings.SHIFT_TURNS[cluster]:
        import_string(name)


def _prepare(cluster: str, group: str) -> None:
    from django_q.models import OrmQ

    OrmQ.objects.filter(key=group).delete()  # shifts that were meant for the processes before these
    slots = slots_of(group)
    length = float(settings.SHIFT_SECONDS)
    with connect("worker", name=group) as conn:
        for slot, resource in enumerate(slots):
            crash_point("before_slot_open_commit")
            table.open_lease(conn, resource)
            crash_point("after_slot_open_commit")
            row = table.look_at_lease(conn, resource)
            # Staggered for good by the length of the first shift: slots must neither poll nor end in step.
            enqueue_shift(
                cluster,
                group,
                slot,
                after=row.epoch if row else 0,
                wait=float(settings.LEASE_SECONDS) + 1,
                seconds=length * (slot + 1) / len(slots),
            )
    _schedule(cluster, group)


def _schedule(cluster: str, group: str) -> None:
    from django_q.models import OrmQ, Schedule

    # of hosts that are no more
    long_ago = timezone.now() - _FORGOTTEN_AFTER
    Schedule.objects.filter(name__startswith=_SCHEDULE_PREFIX, next_run__lt=long_ago).delete()
    OrmQ.objects.filter(lock__lt=long_ago).delete()
    Schedule.objects.update_or_create(
        name=_SCHEDULE_PREFIX + group,
        defaults={
            "func": "workers.tasks.restart_shifts",
            "args": repr((cluster, group)),
            "schedule_type": Schedule.MINUTES,
            "minutes": 1,
            "repeats": -1,
            "cluster": group,
            "next_run": timezone.now() + timedelta(minutes=1),
        },
    )
