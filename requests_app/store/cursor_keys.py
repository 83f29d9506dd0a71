"""The keys that sign list cursors: kept in the database, so that every process and every restart knows them (design 5.5.4)."""

from __future__ import annotations

import secrets
from typing import Any, Final, NamedTuple

from psycopg import Connection

from requests_app.crash_points import crash_point
from requests_app.store.session import fetch_one, run

SIZE: Final = 32
MOST: Final = 255  # a cursor names its key in one byte


class Key(NamedTuple):
    """A signing key: version 1 to 255, 32 secret bytes."""

    version: int
    secret: bytes


def current_key(conn: Connection[Any]) -> Key:
    """The newest key that is not retired; made at the first use."""
    row = fetch_one(conn, "readers", "current_key")
    if row is None:
        add_key(conn, only_first=True)
        row = fetch_one(conn, "readers", "current_key")
    assert row is not None  # noqa: S101 - made by us or by a twin
    return Key(row.version, bytes(row.secret))


def key_of(conn: Connection[Any], version: int) -> Key | None:
    """The key of a version; None for an unknown or retired one."""
    row = fetch_one(conn, "readers", "key_of", {"version": version})
    return Key(row.version, bytes(row.secret)) if row else None


def add_key(conn: Connection[Any], *, only_first: bool = False) -> int | None:
    """A new key, used from now on; cursors of older ones stay valid until those are retired. Its version.

    None when a twin made the version first, with `only_first` when there is a valid key, and when all versions are used up.
    """
    parameters = {"secret": secrets.token_bytes(SIZE), "force": not only_first, "most": MOST}
    crash_point("before_cursor_key_commit")
    row = fetch_one(conn, "readers", "add_key", parameters)
    crash_point("after_cursor_key_commit")
    return row.version if row else None


def retire_key(conn: Connection[Any], version: int) -> bool:
    """End a key: its cursors are refused from now on. Whether it was valid."""
    return run(conn, "readers", "retire_key", {"version": version}) == 1
