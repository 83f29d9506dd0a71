"""Usage and congestion: once per envelope, in its transaction, at the price of the moment."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest

from requests_app.prices import Prices, prices
from requests_app.states import Kind
from requests_app.store import envelopes
from requests_app.store.envelopes import Fence, record_range
from requests_app.store.session import connect
from tests.envelopes import scene
from tests.envelopes.scene import CHAIN, OTHER, PRICE, Connection, item, minute, put
from tests.listen import world
from workers.chain.events import REQUEST_KINDS

FENCE = Fence(f"listener:{CHAIN}", "test", 1)


def test_usage_counts_what_was_inserted(log: Connection) -> None:
    one, two = scene.account(log), scene.account(log)
    done = put(log, item(1, one), item(2, two, kind=2), item(3, one), item(4))
    assert (done.inserted, done.duplicates, done.spend) == (4, 0, 1020)
    assert scene.usage(log) == [(one, CHAIN, 20, 2), (two, CHAIN, 1000, 1)]
    assert scene.congestion(log) == 4
    assert log.execute("SELECT max(last_position) FROM usage_unsettled WHERE payer = %s", (one,)).fetchone() == (3,)


def test_a_key_twice_in_one_batch_counts_once(log: Connection) -> None:
    """S-7, D2: spend 10, not 20."""
    payer = scene.account(log)
    assert put(log, item(1, payer), item(1, payer), item(2, payer)) == (2, 0, 20)
    assert scene.usage(log) == [(payer, CHAIN, 20, 2)]
    assert scene.congestion(log) == 2


def test_duplicates_count_nothing(log: Connection) -> None:
    """S-7: an exact replay and an overlap."""
    payer = scene.account(log)
    put(log, item(1, payer), item(2, payer))
    assert put(log, item(1, payer), item(2, payer)) == (0, 2, 0)
    assert put(log, item(2, payer), item(3, payer)) == (1, 1, 10)
    assert scene.usage(log) == [(payer, CHAIN, 30, 3)]
    assert scene.congestion(log) == 3


def test_a_late_envelope_never_lowers_the_last_position(log: Connection) -> None:
    payer = scene.account(log)
    put(log, item(9, payer))
    put(log, item(4, payer))
    assert log.execute("SELECT last_position FROM usage_unsettled").fetchone() == (9,)


def test_insert_and_counters_are_atomic(log: Connection) -> None:
    """R-9: a failing counter leaves no envelope; one connection, one statement, no second thread."""
    payer = scene.account(log)
    put(log, item(1, payer))
    log.execute("UPDATE usage_unsettled SET spend = 9223372036854775807")
    with pytest.raises(psycopg.errors.NumericValueOutOfRange):
        put(log, item(2, payer))
    assert scene.stored(log) == [1]
    assert log.execute("SELECT count(*) FROM envelope_blob").fetchone() == (1,)


def test_no_executor_in_the_store() -> None:
    """R-9: nothing in the store hands a connection to another thread."""
    from pathlib import Path

    for path in (Path(__file__).parents[2] / "requests_app" / "store").glob("*.py"):
        assert not any(word in path.read_text() for word in ("ThreadPool", "gather(", "Thread(")), path


def test_the_congestion_fee_of_the_last_five_minutes(log: Connection) -> None:
    payer = scene.account(log)
    busy = Prices(base=10, congestion_target=100, congestion_fee=3)
    put(log, item(1))
    now = minute(log)
    log.execute("DELETE FROM originator_congestion")
    log.execute(
        "INSERT INTO originator_congestion (source_id, minute, messages) VALUES (%s, %s, 90), (%s, %s, 35), (%s, %s, 999), (%s, %s, 999)",
        (CHAIN, now - 1, CHAIN, now - 3, CHAIN, now - 6, OTHER, now - 1),
    )
    assert put(log, item(2, payer), price=busy).spend == 10 + 25 * 3  # 125 of 100: 25 per cent above
    log.execute("UPDATE originator_congestion SET messages = 1000000 WHERE source_id = %s", (CHAIN,))
    assert put(log, item(3, payer), price=busy).spend == 10 + 100 * 3  # never more than 100 units


def test_minutes_are_floors_of_the_database_clock(log: Connection) -> None:
    """R-24: int8, counted by one clock; no time of an event enters, so none can be out of range."""
    put(log, item(1, scene.account(log)))
    assert log.execute("SELECT minute FROM usage_unsettled").fetchone()[0] in (minute(log), minute(log, 1))
    types = log.execute(
        "SELECT DISTINCT data_type FROM information_schema.columns WHERE column_name = 'minute' AND table_schema = 'public'"
    ).fetchall()
    assert types == [("bigint",)]


@pytest.mark.parametrize("bad", [1.5, -1, True, 2**60])
def test_prices_are_whole_picodollars(bad: Any) -> None:
    with pytest.raises(ValueError, match="picodollars"):
        Prices(base=bad)


def test_prices_come_from_the_settings(settings: Any) -> None:
    settings.ENVELOPE_PRICES, settings.ENVELOPE_BASE_PICODOLLARS = {"2": 7}, 5
    assert (prices().by_kind, prices().base) == ({2: 7}, 5)


def test_the_range_of_a_chain_counts_its_requests_and_its_congestion(log: Connection) -> None:
    (ours,) = world.sent(log, Kind.PUBLIC_DECRYPT)
    client = log.execute("SELECT client_id FROM request_client").fetchone()[0]
    found = [world.requested(ours, (1, 0)), world.answered(ours, (2, 0))]
    for _ in range(2):
        record_range(log, CHAIN, 1, 2, found, FENCE, None, request_kinds=REQUEST_KINDS, price=PRICE)
    assert scene.usage(log) == [(client, CHAIN, 10, 1)]
    assert scene.congestion(log) == 2


def test_envelopes_below_the_seal_count_too(log: Connection) -> None:
    """What a node withheld is stored later by another statement: it has its payer and counts the same, once."""
    (ours,) = world.sent(log, Kind.PUBLIC_DECRYPT)
    record_range(log, CHAIN, 1, 5, [], FENCE, None)
    late = [world.requested(ours, (3, 0))]
    assert envelopes.insert_below_seal(log, CHAIN, late, request_kinds=REQUEST_KINDS) == 1
    assert envelopes.insert_below_seal(log, CHAIN, late, request_kinds=REQUEST_KINDS) == 0
    assert [row[1:2] + row[3:] for row in scene.usage(log)] == [(CHAIN, 1)]
    assert scene.misses(log) == {CHAIN: 1}


def test_racing_listeners_count_exactly(log: Connection) -> None:
    """L-3, S-3: three writers, two originators, overlapping ranges over 12 bands: rows = distinct, counters = rows."""
    scene.chain(log, OTHER)
    payer = scene.account(log)
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            with connect("worker") as conn:
                for band in range(12):
                    for source in (CHAIN, OTHER)[:: (-1) ** seed]:
                        at = band * scene.WIDTH
                        put(conn, *(item(at + n, payer) for n in range(seed * 5, seed * 5 + 20)), source=source)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    for source in (CHAIN, OTHER):
        assert len(scene.stored(log, source)) == scene.congestion(log, source) == 12 * 30
    assert scene.usage(log) == [(payer, CHAIN, 3600, 360), (payer, OTHER, 3600, 360)]
