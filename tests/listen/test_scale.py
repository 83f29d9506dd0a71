"""The log with many bands: reads touch the bands they need, and nothing else (envelopes.md T8, T11)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from requests_app.store import consumers, envelopes
from requests_app.store.envelopes import last_position, position_of
from requests_app.store.session import connect
from tests.listen import world
from tests.listen.world import SOURCE, record, share

Connection = psycopg.Connection[Any]
REF = b"\x02" + b"\x07" * 31
LOCKS = "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND relation::regclass::text LIKE 'envelope%'"


@pytest.fixture
def banded(log: Connection) -> Iterator[Connection]:
    """60 bands of 10 blocks with an event each."""
    world.clean_bands(log)
    log.execute("UPDATE envelope_source SET band_blocks = 10")
    record(log, 1, 600, [share(REF, n, (10 * n + 1, 0)) for n in range(60)])
    yield log
    log.execute("UPDATE envelope_source SET band_blocks = 1000")
    world.clean_bands(log)


@pytest.mark.parametrize("times", [1, 12])
def test_a_page_at_the_tip_locks_a_handful_of_relations(banded: Connection, times: int) -> None:
    """Also when the statement has been prepared for long: no generic plan over all bands."""
    after, upto = position_of(580), last_position(600)
    for _ in range(times - 1):
        consumers.read_page(banded, SOURCE, after, upto, 500)
    with banded.transaction():
        page = consumers.read_page(banded, SOURCE, after, upto, 500)
        assert banded.execute(LOCKS).fetchone()[0] <= 20
    assert [one.position >> 20 for one in page] == [581, 591]


@pytest.mark.parametrize("times", [1, 12])
def test_late_match_looks_at_the_bands_of_its_floor(banded: Connection, times: int) -> None:
    floor, upto = position_of(575), last_position(600)
    for _ in range(times - 1):
        consumers.read_by_refs(banded, SOURCE, [REF], floor, upto)
    with banded.transaction():
        assert len(consumers.read_by_refs(banded, SOURCE, [REF], floor, upto)) == 2
        assert banded.execute(LOCKS).fetchone()[0] <= 30


def test_racing_band_makers_make_each_band_once(log: Connection) -> None:
    world.clean_bands(log)
    failures: list[BaseException] = []
    barrier = threading.Barrier(4, timeout=120)

    def work() -> None:
        try:
            with connect("worker") as conn:
                for band in range(10):
                    barrier.wait()
                    envelopes.ensure_band(conn, SOURCE, position_of(band * 1000))
        except BaseException as error:
            failures.append(error)
            barrier.abort()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert failures == []
    assert log.execute("SELECT count(*), count(DISTINCT band_no) FROM envelope_band").fetchone() == (10, 10)


def test_the_log_has_no_foreign_key_and_no_default_partition(log: Connection) -> None:
    keys = """SELECT count(*) FROM pg_constraint WHERE contype = 'f' AND (conrelid::regclass::text ~ '^envelope_(meta|blob)'
                                                                  OR confrelid::regclass::text ~ '^envelope_(meta|blob)')"""
    assert log.execute(keys).fetchone() == (0,)
    assert log.execute("SELECT count(*) FROM pg_partitioned_table WHERE partdefid <> 0").fetchone() == (0,)
