"""Which payments the confirm duty looks at: by the log's order, and page by page through all that wait."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from psycopg import Connection

from requests_app.store.session import fetch_all, fetch_only


class Place(NamedTuple):
    """Where a page of waiting payments ended: state, time of the last transition, id."""

    state: str
    at: datetime | str
    id: int


START: Final = Place("", "-infinity", 0)


def any_active(conn: Connection[Any]) -> bool:
    """Whether any payment waits for the chain or for a person."""
    return bool(fetch_only(conn, "confirming", "any_active").found)


def final_page(conn: Connection[Any], source_id: int, after: int, upto: int, limit: int) -> tuple[list[int], int]:
    """Ids of confirming payments whose transaction the log shows at after < position <= upto, and how far the page came.

    It looks at `limit` observations at most; at `upto` it is at its end.
    """
    parameters = {"source": source_id, "after": after, "upto": upto, "limit": limit}
    rows = fetch_all(conn, "confirming", "final_page", parameters)
    reached = rows[-1].position if len(rows) >= limit else upto
    return sorted({row.id for row in rows if row.id is not None}), reached


def active_page(conn: Connection[Any], after: Place, limit: int) -> tuple[list[int], Place]:
    """Ids of payments that wait, behind `after`, and where the page ended: START when there are no more."""
    rows = fetch_all(conn, "confirming", "active_page", {**after._asdict(), "limit": limit})
    last = rows[-1] if len(rows) >= limit else None
    return [row.id for row in rows], START if last is None else Place(last.state, last.updated_at, last.id)


def signed_before(conn: Connection[Any], ids: Sequence[int], age_seconds: float) -> set[int]:
    """Those of these payments that were signed, or sent on by a person, at least so long ago."""
    parameters = {"ids": list(ids), "age": age_seconds}
    return {row.id for row in fetch_all(conn, "confirming", "signed_before", parameters)} if ids else set()
