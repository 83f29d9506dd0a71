"""Follow the gateway chain: `manage.py relayer_listener`."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from types import FrameType
from typing import Any

from django.core.management.base import BaseCommand

from requests_app.errors import ConfigurationError
from workers import heap, listener

log = logging.getLogger("relayer.listener")

EXIT_CONFIGURATION = 78  # sysexits.h EX_CONFIG: a restart does not help


class Command(BaseCommand):
    """Reads the gateway's events into the log and applies them. Any number may run; one a source works, the others stand by."""

    help = (
        "Read the gateway's events into the envelope log and move requests by them, until SIGTERM or SIGINT. "
        "Exit status 78: the configuration is incomplete, or the chain is not the one this database belongs to."
    )
    requires_system_checks = ()

    def handle(self, *args: Any, **options: Any) -> None:
        """Listen until a signal."""
        stop = threading.Event()

        def request_stop(number: int, frame: FrameType | None) -> None:
            stop.set()

        signal.signal(signal.SIGTERM, request_stop)
        signal.signal(signal.SIGINT, request_stop)
        heap.freeze_loaded()
        try:
            listener.run(stop.is_set)
        except ConfigurationError as error:
            log.critical("listener refuses to run: %s", error, extra={"action": "listener_refused"})
            self.stderr.write(self.style.ERROR(str(error)))
            sys.exit(EXIT_CONFIGURATION)
