"""Statements about runtime settings. Values are JSON."""

from __future__ import annotations

import json
from typing import Any

import psycopg

from requests_app.store.session import Row, fetch_all, run

Connection = psycopg.Connection[Any]


def load_settings(conn: Connection) -> dict[str, Any]:
    """Every parameter that differs from its default, by name."""
    return {row.name: row.value for row in fetch_all(conn, "runtime", "load_settings")}


def lock_settings(conn: Connection) -> None:
    """Keep other changes out until the caller's transaction ends."""
    run(conn, "runtime", "lock_settings")


def store_change(conn: Connection, name: str, before: Any, after: Any, by: str, reason: str) -> None:
    """Write one change with its history row, in the caller's transaction. None stands for the default."""
    parameters = {"name": name, "before": _json(before), "after": _json(after), "by": by, "reason": reason}
    run(conn, "runtime", "store_change", parameters)


def history(conn: Connection, name: str | None, limit: int) -> list[Row]:
    """The newest changes, of one parameter or of all: (id, name, before, after, changed_by, reason, at)."""
    return fetch_all(conn, "runtime", "history", {"name": name, "limit": limit})


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value)
