"""Blocks that look committed and are not: what psycopg and PostgreSQL let pass in silence is an error here."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from requests_app.store.session import connect, transaction
from tests.core.rows import insert_account

pytestmark = pytest.mark.django_db(transaction=True)

ROOT = Path(__file__).resolve().parent.parent.parent
Connection = psycopg.Connection[Any]


def lose_session(conn: Connection, own: Connection) -> None:
    """End a session under its owner, who asks something that he does not need and so learns of it without an error."""
    conn.execute("SELECT pg_terminate_backend(%s, 5000)", (own.info.backend_pid,))
    with suppress(psycopg.OperationalError):
        own.execute("SELECT 1")


def accounts(conn: Connection) -> int:
    row = conn.execute("SELECT count(*) FROM client_account").fetchone()
    assert row is not None
    return int(row[0])


def test_a_block_over_a_lost_session_raises(conn: Connection) -> None:
    before = accounts(conn)
    with connect("worker") as own:

        def work() -> None:
            with transaction(own):
                insert_account(own)
                lose_session(conn, own)

        with pytest.raises(psycopg.OperationalError, match="lost before the commit"):
            work()
    assert accounts(conn) == before


def test_a_savepoint_over_a_lost_session_raises(conn: Connection) -> None:
    with connect("worker") as own:

        def work() -> None:
            with transaction(own), transaction(own):
                lose_session(conn, own)

        with pytest.raises(psycopg.OperationalError, match="lost before the commit"):
            work()


def test_a_block_in_which_an_error_was_swallowed_raises(conn: Connection) -> None:
    before = accounts(conn)

    def work() -> None:
        with transaction(conn):
            insert_account(conn)
            with suppress(psycopg.errors.DivisionByZero):
                conn.execute("SELECT 1/0")

    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        work()
    assert accounts(conn) == before
    assert conn.info.transaction_status is psycopg.pq.TransactionStatus.IDLE


def test_errors_returns_and_wanted_rollbacks_are_as_before(conn: Connection) -> None:
    before = accounts(conn)

    def early() -> int:
        with transaction(conn):
            insert_account(conn)
            return 7

    assert early() == 7
    assert accounts(conn) == before + 1
    with transaction(conn) as opened:
        insert_account(conn)
        opened.force_rollback = True
    with transaction(conn):
        insert_account(conn)
        raise psycopg.Rollback

    def fail() -> None:
        with transaction(conn):
            insert_account(conn)
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        fail()
    with transaction(conn):
        with pytest.raises(psycopg.errors.DivisionByZero), transaction(conn):
            conn.execute("SELECT 1/0")
        insert_account(conn)  # the savepoint has brought the outer one back
    assert accounts(conn) == before + 2


def test_no_block_is_opened_past_it() -> None:
    sources = [path for folder in ("requests_app", "workers", "relayer_site") for path in (ROOT / folder).rglob("*.py")]
    direct = [str(path) for path in sources if re.search(r"\.transaction\(", path.read_text())]
    assert direct == [str(ROOT / "requests_app/store/session.py")]
