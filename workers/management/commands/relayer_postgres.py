"""Keep the embedded PostgreSQL up: `manage.py relayer_postgres`."""

from __future__ import annotations

import logging
import signal
import threading
from types import FrameType
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import connection

log = logging.getLogger("relayer.postgres")

LOOK_SECONDS = 0.25


class Command(BaseCommand):
    """Starts the embedded server, starts it again when it dies, until SIGTERM or SIGINT. It stops with its last user."""

    help = "Keep the embedded PostgreSQL running until told to stop. It stops when its last user ends."
    requires_system_checks = ()

    def handle(self, *args: Any, **options: Any) -> None:
        """Look four times a second. Raises CommandError when DATABASE_URL names a server of somebody else."""
        ensure = getattr(connection, "ensure_server", None)
        if ensure is None:
            raise CommandError("DATABASE_URL is set: that server is not ours to keep")
        stop = threading.Event()

        def request_stop(number: int, frame: FrameType | None) -> None:
            stop.set()

        signal.signal(signal.SIGTERM, request_stop)
        signal.signal(signal.SIGINT, request_stop)
        while not stop.wait(LOOK_SECONDS):
            try:
                ensure()
            except (RuntimeError, OSError) as error:
                log.error("embedded PostgreSQL: %s", error, extra={"action": "postgres_start"})
