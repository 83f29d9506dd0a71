"""Django's PostgreSQL backend, whose pool gives out living connections without asking the server each time.

The pool's own check is a round trip a request. A connection that the server has closed (a restart, a killed backend) can be told by its
socket: an idle one has nothing to read. What dies without a word is found by TCP keepalives, as in the middle of a request.
"""

from __future__ import annotations

from typing import Any

import psycopg
from django.db.backends.postgresql import base

from requests_app.sockets import is_quiet


class DatabaseWrapper(base.DatabaseWrapper):
    """Used with CONN_HEALTH_CHECKS off where there is a pool."""

    def get_new_connection(self, conn_params: dict[str, Any]) -> psycopg.Connection[Any]:
        """A connection that answers. Raises psycopg.OperationalError (PoolTimeout) when there is none in time."""
        while True:
            connection: psycopg.Connection[Any] = super().get_new_connection(conn_params)
            if self.pool is None or _lives(connection):
                return connection
            connection.close()
            self.pool.putconn(connection)  # replaced by the pool


def _lives(connection: psycopg.Connection[Any]) -> bool:
    """Whether nobody has closed this idle connection. Only one that has something to read is asked: it may be a notice, too."""
    try:
        if not is_quiet(connection.fileno()):
            connection.execute("")
    except psycopg.Error:
        return False
    return not connection.closed
