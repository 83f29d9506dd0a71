"""Django's PostgreSQL backend over the embedded server; used only when no DATABASE_URL is set."""

from __future__ import annotations

from typing import Any

from django.db.backends.postgresql import base

from relayer_site import embedded, env


class DatabaseWrapper(base.DatabaseWrapper):
    """Starts the embedded server at the first need, and again when it has gone away."""

    def get_connection_params(self) -> dict[str, Any]:
        """Connection parameters for psycopg. The server runs when this returns."""
        embedded.EmbeddedPostgres(env.VAR).ensure()
        parameters: dict[str, Any] = super().get_connection_params()
        return parameters
