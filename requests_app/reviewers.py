"""Who acts on the desk: a person whose account is active until what they do is committed (design 2, I11)."""

from __future__ import annotations

from typing import Any

from psycopg import Connection

from requests_app.store.session import fetch_one


def lock_reviewer(conn: Connection[Any], reviewer_id: int) -> str | None:
    """The active person's name, locked against being disabled until the transaction ends; None when they are disabled or gone."""
    row = fetch_one(conn, "commands", "lock_reviewer", {"id": reviewer_id})
    return str(row.username) if row is not None and row.is_active else None
