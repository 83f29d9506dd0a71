"""A database with an empty log. Cleaned by hand: a flush of every table would cost more than most tests here."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from requests_app.store.session import connect
from tests.envelopes import scene


@pytest.fixture
def log(db: None) -> Iterator[psycopg.Connection]:
    """A worker connection; chain originator 11 exists, its bands do not."""
    with connect("worker") as conn:
        if conn.execute(f"SELECT EXISTS (SELECT 1 FROM envelope_source) OR EXISTS ({scene.LEFT_OVER})").fetchone() != (
            False,
        ):
            scene.empty(conn)
        scene.chain(conn)
        yield conn
    with connect("worker") as conn:
        scene.empty(conn)


@pytest.fixture
def twin(log: psycopg.Connection) -> Iterator[psycopg.Connection]:
    """A second connection."""
    with connect("worker") as conn:
        yield conn


@pytest.fixture
def poison(log: psycopg.Connection) -> Iterator[None]:
    """The database refuses one payload for good, as it would a value out of range."""
    log.execute("""CREATE OR REPLACE FUNCTION test_poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF NEW.payload = 'bad' THEN RAISE EXCEPTION 'poison' USING ERRCODE = '22003'; END IF; RETURN NEW; END $$""")
    log.execute("CREATE TRIGGER test_poison BEFORE INSERT ON envelope_blob FOR EACH ROW EXECUTE FUNCTION test_poison()")
    yield
    log.execute("DROP FUNCTION test_poison CASCADE")
