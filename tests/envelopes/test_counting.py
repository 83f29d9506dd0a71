"""Usage and congestion: once per envelope, in its transaction, at the price of the moment."""

from __future__ import annotations

import dataclasses
import os
import threading
from typing import Any

import psycopg
import pytest

from requests_app.prices import Prices, prices
from requests_app.states import Kind
from requests_app.store import envelopes
from requests_app.store.envelopes import record_range
from requests_app.store.session import connect
from requests_app.store.signing import Fence
from requests_app.transitions.reorgs import Fork, undo
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


@pytest.mark.parametrize("carrier", ["the same transaction", "another attempt", "another nonce"])
@pytest.mark.parametrize("way", ["record_range", "insert_below_seal"])
def test_a_reorganisation_charges_nobody_twice(log: Connection, way: str, carrier: str) -> None:
    """A request whose event comes back in another block, by whichever transaction and whichever way, is charged once; others are."""
    scene.chain(log, world.SOURCE)
    ours, other = world.sent(log, Kind.PUBLIC_DECRYPT, 2)
    world.record(log, 1, 5, [world.requested(ours, (3, 0))])
    before = scene.usage(log)
    assert [row[1:2] + row[3:] for row in before] == [(world.SOURCE, 1)]
    fork = Fork(3, world.block_hash(2), world.block_hash(5, 1))
    undo(log, world.SOURCE, fork, world.FENCE, sealed=5, request_kinds=REQUEST_KINDS)
    assert scene.stored(log, world.SOURCE) == []
    back = ours if carrier == "the same transaction" else carried_again(log, ours, new_nonce=carrier == "another nonce")

    def arrive(*found: world.Envelope, lo: int) -> None:
        if way == "record_range":
            world.record(log, lo, lo + 2, found)
        else:
            world.record(log, lo, lo + 2, [])
            assert envelopes.insert_below_seal(log, world.SOURCE, found, request_kinds=REQUEST_KINDS) == len(found)

    arrive(world.requested(back, (4, 0)), lo=3)
    assert scene.usage(log) == before
    arrive(world.requested(other, (7, 0)), lo=6)
    assert [row[1:2] + row[3:] for row in scene.usage(log)] == [(world.SOURCE, 2)]
    assert scene.congestion(log, world.SOURCE) == 2
    assert len(scene.stored(log, world.SOURCE)) == 2


def carried_again(conn: Connection, ours: world.Ours, *, new_nonce: bool) -> world.Ours:
    """The request with another attempt of its slot, or with a second slot (its first one dead)."""
    again = dataclasses.replace(ours, tx_hash=os.urandom(32))
    slot = "n.nonce"
    if new_nonce:
        slot = "n.nonce + 1000000"
        conn.execute(
            "UPDATE nonce_slot SET state = 'dead', closed_at = clock_timestamp() WHERE subject_id = %s", (ours.id,)
        )
        conn.execute(
            f"INSERT INTO nonce_slot (signer_id, nonce, kind, subject_id, state, opened_epoch) "
            f"SELECT n.signer_id, {slot}, n.kind, n.subject_id, 'live', 1 FROM nonce_slot n WHERE n.subject_id = %s AND n.kind = %s",
            (ours.id, ours.kind.value),
        )
    conn.execute(
        f"INSERT INTO tx_attempt (signer_id, nonce, seq, tx_hash, raw_tx, max_fee_per_gas, max_priority_fee, gas_limit, state, epoch) "
        f"SELECT t.signer_id, {slot}, t.seq + 1, %s, '\\x02', 2, 2, 21000, 'accepted', 1 FROM tx_attempt t "
        f"JOIN nonce_slot n ON n.signer_id = t.signer_id AND n.nonce = t.nonce WHERE t.tx_hash = %s",
        (again.tx_hash, ours.tx_hash),
    )
    return again


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
