"""Which payments the confirm duty looks at. Ids, in the order in which they have waited."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from psycopg import Connection

from requests_app.store.session import fetch_all, fetch_only


def any_active(conn: Connection[Any]) -> bool:
    """Whether any payment waits for the chain or for a person."""
    return bool(fetch_only(conn, "confirming", "any_active").found)


def shown(conn: Connection[Any], source_id: int, upto: int, limit: int, without: Collection[int] = ()) -> list[int]:
    """Confirming payments whose transaction the log shows at a position up to `upto`; those in `without` are left out."""
    parameters = {"source": source_id, "upto": upto, "limit": limit, "without": list(without)}
    return [row.id for row in fetch_all(conn, "confirming", "shown", parameters)]


def hidden(conn: Connection[Any], source_id: int, age_seconds: float, limit: int) -> list[int]:
    """Confirming payments that the log does not show `age_seconds` after they became so."""
    parameters = {"source": source_id, "age": age_seconds, "limit": limit}
    return [row.id for row in fetch_all(conn, "confirming", "hidden", parameters)]


def misused(conn: Connection[Any], source_id: int, upto: int, limit: int) -> list[int]:
    """Payments whose payer's authorization is used at a position up to `upto`, by another transaction than theirs."""
    parameters = {"source": source_id, "upto": upto, "limit": limit}
    return [row.id for row in fetch_all(conn, "confirming", "misused", parameters)]


def stuck(conn: Connection[Any], source_id: int, age_seconds: float, limit: int) -> list[int]:
    """Settling or confirming payments that were signed, or sent on by a person, so long ago, and that the log shows nothing of."""
    parameters = {"source": source_id, "age": age_seconds, "limit": limit}
    return [row.id for row in fetch_all(conn, "confirming", "stuck", parameters)]
