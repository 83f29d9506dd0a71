"""Django's PostgreSQL backend over the embedded server; used only when no DATABASE_URL is set."""

from __future__ import annotations

import os
import time
from typing import Any

from relayer_site import embedded, env
from relayer_site.pooled import base

# Django asks for the parameters at every check-out from the pool, which is every web request; looking after the server
# takes a lock that all processes share. Once a second a process is enough: a server that died in between costs one error.
RECHECK_SECONDS = 1.0
_seen: tuple[int, float] = (0, 0.0)


class DatabaseWrapper(base.DatabaseWrapper):
    """Starts the embedded server at the first need, and again when it has gone away."""

    def get_connection_params(self) -> dict[str, Any]:
        """Connection parameters for psycopg. The server runs when this returns."""
        global _seen
        process, until = _seen
        if process != os.getpid() or time.monotonic() >= until:
            self.ensure_server()
            _seen = (os.getpid(), time.monotonic() + RECHECK_SECONDS)
        parameters: dict[str, Any] = super().get_connection_params()
        return parameters

    def ensure_server(self) -> None:
        """Have the server running, and in use by this process until it ends. Raises RuntimeError when it does not start."""
        embedded.EmbeddedPostgres(env.VAR).ensure()

    def release_server(self) -> None:
        """Stop using the server; wait for its end when this process was the last to use it."""
        global _seen
        _seen = (0, 0.0)
        embedded.EmbeddedPostgres(env.VAR).release()
