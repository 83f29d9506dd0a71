"""A log with one source, empty, its lease held by this test."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.listen import world


@pytest.fixture
def log(conn: psycopg.Connection) -> Iterator[psycopg.Connection]:
    """A worker connection to a database with an empty log that starts at block 1."""
    world.clean(conn)
    yield conn
    conn.execute("TRUNCATE envelope_meta, envelope_blob")
