"""Work a cluster's turns in one plain process: `manage.py relayer_worker settle|sweep`."""

from __future__ import annotations

import logging
import signal
import threading
from contextlib import closing
from types import FrameType
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from requests_app.store import beats
from workers import heap
from workers.leases import LeaseKeeper
from workers.shift import ShiftContext, cluster_loop, new_instance

log = logging.getLogger("relayer.worker")


class Command(BaseCommand):
    """A shift without an end, for deployments that want plain processes instead of q2 clusters."""

    help = "Work a cluster's turns in this process until SIGTERM or SIGINT."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """The cluster."""
        parser.add_argument("cluster", choices=sorted(settings.SHIFT_TURNS))

    def handle(self, *args: Any, **options: Any) -> None:
        """Work until a signal."""
        cluster = str(options["cluster"])
        stop = threading.Event()

        def request_stop(number: int, frame: FrameType | None) -> None:
            stop.set()

        signal.signal(signal.SIGTERM, request_stop)
        signal.signal(signal.SIGINT, request_stop)
        instance = new_instance(f"{cluster}@{settings.HOST_NAME}")
        keeper = LeaseKeeper(instance, float(settings.LEASE_SECONDS), beat=f"worker:{instance}")
        with closing(keeper), closing(ShiftContext(instance, keeper, stop.is_set)) as context:
            loop = cluster_loop(context, cluster, over=stop.is_set)
            with closing(loop):
                heap.freeze_loaded()
                handled = loop.run()
            beats.forget_beats(context.conn, [f"worker:{instance}"])
        log.info("worker ended", extra={"action": "worker_ended", "cluster": cluster, "items": handled})
