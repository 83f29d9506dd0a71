"""A database that lives for one run, and a clock that stands still until it is told otherwise: for examples and tests of time.

The clock is a function `clock_timestamp()` in a schema that the session finds before pg_catalog. No statement knows of it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from psycopg import Connection

from requests_app.store.session import fetch_one, run


def create_database(conn: Connection[Any], name: str) -> None:
    """Make an empty database. `name` is an identifier that the code made."""
    run(conn, "scratch", "create_database", database=name)


def drop_database(conn: Connection[Any], name: str) -> None:
    """Remove it, whoever is still connected."""
    run(conn, "scratch", "drop_database", database=name)


def follow_clock(conn: Connection[Any], moment: datetime) -> None:
    """From now on this session's clock stands at `moment`. Creates the clock where it is missing: never in a database that works."""
    run(conn, "scratch", "create_clock_schema")
    run(conn, "scratch", "create_clock")
    set_clock(conn, moment)
    run(conn, "scratch", "follow_clock")


def set_clock(conn: Connection[Any], moment: datetime) -> None:
    """Move the session's clock."""
    fetch_one(conn, "scratch", "set_clock", {"moment": moment})
