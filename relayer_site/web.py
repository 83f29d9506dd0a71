"""The web server: granian over WSGI, `python -m relayer_site.web`.

As a program of our own because two things cannot be said on granian's command line: an idle connection is kept for more than five
minutes (its limit there is one), so that a client's kept connection is never closed under a request; and worker processes end with
their parent, however that ends.
"""

from __future__ import annotations

import os

from granian import Granian
from granian.constants import Interfaces
from granian.http import HTTP1Settings
from granian.log import LogLevels

KEEP_ALIVE_MILLISECONDS = 310_000


def main() -> None:
    """Serve until SIGTERM or SIGINT. Reads API_HOST, API_PORT, WEB_WORKERS, WEB_THREADS from the environment."""
    os.environ.setdefault("RELAYER_ROLE", "web")
    os.environ["RELAYER_TIED"] = str(os.getpid())
    Granian(
        "relayer_site.wsgi:application",
        address=os.environ.get("API_HOST", "127.0.0.1"),
        port=int(os.environ.get("API_PORT", "8000")),
        interface=Interfaces.WSGI,
        workers=int(os.environ.get("WEB_WORKERS", "2")),
        blocking_threads=int(os.environ.get("WEB_THREADS", "32")),
        blocking_threads_idle_timeout=600,
        backlog=2048,
        websockets=False,
        http1_settings=HTTP1Settings(header_read_timeout=KEEP_ALIVE_MILLISECONDS),
        log_level=LogLevels.warning,
        respawn_failed_workers=True,
        workers_kill_timeout=5,
    ).serve()


if __name__ == "__main__":
    main()
