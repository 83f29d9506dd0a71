"""The web server: granian over WSGI, `python -m relayer_site.web`.

As a program of our own because two things cannot be said on granian's command line: an idle connection is kept for more than five
minutes (its limit there is one), so that a client's kept connection is never closed under a request; and worker processes end with
their parent, however that ends.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from granian import Granian
from granian.constants import Interfaces
from granian.http import HTTP1Settings
from granian.log import LogLevels

from relayer_site import env

KEEP_ALIVE_MILLISECONDS = 310_000


def main() -> None:
    """Serve until SIGTERM or SIGINT. Ends at once, with what is wrong, when a setting cannot be read."""
    os.environ.setdefault("RELAYER_ROLE", "web")
    os.environ["RELAYER_TIED"] = str(os.getpid())
    try:
        server = made()
    except ImproperlyConfigured as error:
        sys.exit(str(error))
    server.serve()


def made() -> Any:
    """The server by API_HOST, API_PORT, WEB_WORKERS, WEB_THREADS. Raises ImproperlyConfigured."""
    return Granian(
        "relayer_site.wsgi:application",
        address=env.text("API_HOST", "127.0.0.1"),
        port=env.number("API_PORT", 8000),
        interface=Interfaces.WSGI,
        workers=env.number("WEB_WORKERS", 2),
        blocking_threads=env.number("WEB_THREADS", 32),
        blocking_threads_idle_timeout=600,
        backlog=2048,
        websockets=False,
        http1_settings=HTTP1Settings(header_read_timeout=KEEP_ALIVE_MILLISECONDS),
        log_level=LogLevels.warning,
        respawn_failed_workers=True,
        workers_kill_timeout=5,
    )


if __name__ == "__main__":
    main()
