"""Run and look after this host's q2 process groups: `manage.py relayer_watchdog`."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser


class Command(BaseCommand):
    """Starts the clusters' process groups and restarts those that die or hang, until SIGTERM or SIGINT."""

    help = "Run this host's django-q2 process groups and restart those that die or hang."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Which clusters, and what tells two sets on one host apart."""
        known = sorted(settings.SHIFT_TURNS)
        parser.add_argument(
            "--clusters", nargs="+", choices=known, default=known, help="clusters to run (default: all)"
        )
        parser.add_argument("--suffix", default="", help="tells several watchdogs of one host apart")

    def handle(self, *args: Any, **options: Any) -> None:
        """Watch until a signal."""
        from workers.watchdog import Watchdog

        stop = threading.Event()

        def request_stop(number: int, frame: FrameType | None) -> None:
            stop.set()

        signal.signal(signal.SIGTERM, request_stop)
        signal.signal(signal.SIGINT, request_stop)
        Watchdog(options["clusters"], options["suffix"]).run(stop.wait)
