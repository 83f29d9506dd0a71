"""A log of the chain that payments settle on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.payments import shown


@pytest.fixture
def log(conn: psycopg.Connection[Any]) -> Iterator[psycopg.Connection[Any]]:
    """A worker connection to a database with an empty log that starts at block 1, and no payments."""
    shown.clean(conn)
    yield conn
    conn.execute("TRUNCATE envelope_meta, envelope_blob")
