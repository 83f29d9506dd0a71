"""Shared fixtures. The test database lives on the embedded server under var/test (or $RELAYER_VAR), which starts by itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

ROOT = Path(__file__).resolve().parent.parent
os.environ.setdefault("RELAYER_VAR", str(ROOT / "var" / "test"))
# The tests' server need not survive a power cut.
os.environ.setdefault("RELAYER_PG_OPTIONS", "-c fsync=off -c full_page_writes=off")


@pytest.fixture(scope="session", autouse=True)
def quick_flush() -> None:
    """A test's rows go without Django's slow flush."""
    from tests.flush import install

    install()


@pytest.fixture
def conn(transactional_db: None) -> Iterator[psycopg.Connection]:
    """A raw autocommit connection with a worker's time-outs, in the test database."""
    from requests_app.store.session import connect

    with connect("worker") as connection:
        yield connection


@pytest.fixture
def two_conns(transactional_db: None) -> Iterator[tuple[psycopg.Connection, psycopg.Connection]]:
    """Two such connections, for whatever must hold between two workers."""
    from requests_app.store.session import connect

    with connect("worker") as first, connect("worker") as second:
        yield first, second
