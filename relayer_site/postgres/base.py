"""Django's PostgreSQL backend over the embedded server; used only when no DATABASE_URL is set."""

from __future__ import annotations

from typing import Any

from django.db.backends.postgresql import base

from relayer_site import embedded, env


class DatabaseWrapper(base.DatabaseWrapper):
    """Starts the embedded server at the first need, and again when it has gone away."""

    def get_connection_params(self) -> dict[str, Any]:
        """Connection parameters for psycopg. The server runs when this returns."""
        self.ensure_server()
        parameters: dict[str, Any] = super().get_connection_params()
        return parameters

    def ensure_server(self) -> None:
        """Have the server running, and in use by this process until it ends. Raises RuntimeError when it does not start."""
        embedded.EmbeddedPostgres(env.VAR).ensure()

    def release_server(self) -> None:
        """Stop using the server; wait for its end when this process was the last to use it."""
        embedded.EmbeddedPostgres(env.VAR).release()
