"""A seeded database for all tests of a module, of the size that its LAYOUT says, with what the sweep keeps of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from bench.scale_pages import counted_figures
from requests_app.store.seeding import filling
from requests_app.store.seeding.layout import Layout
from requests_app.store.session import connect
from tests.flush import empty_database


@pytest.fixture(scope="module")
def seeded(
    request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: Any
) -> Iterator[psycopg.Connection[Any]]:
    """The database as `relayer_seed` leaves it; emptied afterwards."""
    began, layout = time.monotonic(), request.module.LAYOUT
    assert isinstance(layout, Layout)
    with django_db_blocker.unblock():
        with connect("maintenance") as conn:
            base = datetime.now(UTC)
            filling.fill(conn, layout, base, lambda what, work: None)
            filling.count_figures(conn, lambda what, work: None)
            counted_figures(conn)
            filling.tidy(conn, layout, lambda what, work: None)
            print(f"seeded in {time.monotonic() - began:.1f} s")
            yield conn
        empty_database()
