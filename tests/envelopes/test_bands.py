"""Bands: made once, whoever asks; missing ones are met, made, counted; names and numbers stay inside their types."""

from __future__ import annotations

import logging
import os
import threading
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from requests_app.errors import RelayerError
from requests_app.store import bands, envelopes, retirement
from requests_app.store.appending import append
from requests_app.store.bands import BandMissing, OutOfRange
from requests_app.store.session import connect
from tests.envelopes import scene
from tests.envelopes.scene import CHAIN, PRICE, WIDTH, Connection, item


def put(conn: Connection, *positions: int, source: int = CHAIN) -> Any:
    with conn.transaction():
        return append(conn, source, [item(at) for at in positions], price=PRICE)


def test_a_missing_band_is_made_counted_and_logged_once(log: Connection, caplog: pytest.LogCaptureFixture) -> None:
    """S-10, D5: one ensure a distinct band of the batch, not one an envelope."""
    made: list[int] = []
    with pytest.MonkeyPatch.context() as patch, caplog.at_level(logging.WARNING, "relayer.envelopes"):
        real = envelopes.ensure_band
        patch.setattr(envelopes, "ensure_band", lambda c, s, p: (made.append(p), real(c, s, p)))
        put(log, *range(1, 60), *range(WIDTH, WIDTH + 40), 5 * WIDTH)
    assert [at // WIDTH for at in made] == [0, 1, 5]
    assert scene.misses(log) == {CHAIN: 1}
    assert [record.action for record in caplog.records] == ["band_missing"]  # type: ignore[attr-defined]


def test_whoever_met_a_missing_band_has_every_session_told_again(log: Connection) -> None:
    """Whether it made the band or found it made meanwhile: its own session may have kept the list without it."""
    query = (
        "SELECT array_agg(a.xmin::text ORDER BY a.attrelid) FROM pg_attribute a WHERE a.attname = 'position' AND a.attrelid IN"
        " ('envelope_meta'::regclass, 'envelope_blob'::regclass, 'envelope_meta_s11'::regclass, 'envelope_blob_s11'::regclass)"
    )
    put(log, 1)
    (before,) = log.execute(query).fetchone() or ([],)
    put(log, 2)
    assert log.execute(query).fetchone() == (before,)
    put(log, WIDTH)
    (after,) = log.execute(query).fetchone() or ([],)
    assert len(before) == len(after) == 4
    assert not set(before) & set(after)


def test_sessions_that_read_the_bands_while_one_is_made(log: Connection) -> None:
    """A session that reads hundreds of bands while another one is attached may keep the list without it: it is told again."""
    there, tries, sessions = 250, 12, 8
    for band in range(there):
        envelopes.ensure_band(log, CHAIN, band * WIDTH)
    failures: list[BaseException] = []

    def write(conn: Connection, at: int) -> None:
        try:
            put(conn, at)
        except BaseException as error:
            failures.append(error)

    for band in range(there, there + tries):
        with ExitStack() as stack:
            fresh = [stack.enter_context(connect("worker")) for _ in range(sessions)]
            writers = [
                threading.Thread(target=write, args=(conn, band * WIDTH + number)) for number, conn in enumerate(fresh)
            ]
            for writer in writers:
                writer.start()
            envelopes.ensure_band(log, CHAIN, band * WIDTH)
            for writer in writers:
                writer.join(60)
    assert failures == []
    assert len(scene.stored(log)) == tries * sessions


def test_young_bands(log: Connection) -> None:
    """Of these the sweep has every session told once more; a band that is old was told of."""
    assert bands.young(log, 120) == []
    put(log, 1, WIDTH)
    assert bands.young(log, 120) == [CHAIN]
    log.execute("UPDATE envelope_band SET at = at - interval '3 minutes'")
    assert bands.young(log, 120) == []


def test_no_lock_above_row_exclusive_while_recording(log: Connection, twin: Connection) -> None:
    """S-1: no DDL in the transaction that inserts, not even when a band is missing."""
    with log.transaction():
        append(log, CHAIN, [item(1)], price=PRICE)
        modes = twin.execute(
            "SELECT DISTINCT mode FROM pg_locks WHERE pid = %s AND relation::regclass::text LIKE 'envelope_%%'",
            (log.info.backend_pid,),
        ).fetchall()
    assert {mode for (mode,) in modes} <= {"AccessShareLock", "RowShareLock", "RowExclusiveLock"}
    assert ("RowExclusiveLock",) in modes


def test_a_band_is_made_beside_open_readers_and_writers(log: Connection, twin: Connection) -> None:
    """S-1: ATTACH waits for nobody who reads or writes another band of the originator, and an empty table needs no scan."""
    scene.put(log, scene.item(1))
    with twin.transaction():
        twin.execute("SELECT count(*) FROM envelope_meta WHERE source_id = %s", (CHAIN,))
        append(twin, CHAIN, [scene.item(2)], price=PRICE)
        log.execute("SET lock_timeout = '1s'")
        assert envelopes.ensure_band(log, CHAIN, 3 * WIDTH)
    assert scene.stored(log) == [1, 2]


def test_the_connection_for_bands_is_kept_while_it_lives(log: Connection) -> None:
    """A second band costs no new session; one that the server ended, or a parent made, is not used again."""
    with bands.own_connection() as first:
        pid = first.info.backend_pid
    with bands.own_connection() as again:
        assert again.info.backend_pid == pid
        with bands.own_connection() as other:
            assert other.info.backend_pid != pid
    log.execute("SELECT pg_terminate_backend(%s, 5000), pg_terminate_backend(%s, 5000)", (pid, other.info.backend_pid))
    with bands.own_connection() as fresh:
        assert fresh.info.backend_pid not in (pid, other.info.backend_pid)
        assert fresh.execute("SHOW idle_session_timeout").fetchone() == ("5min",)
    with pytest.raises(psycopg.errors.DivisionByZero), bands.own_connection() as failed, failed.transaction():
        failed.execute("SELECT 1/0")
    parents = [conn for _, conn in bands._idle]
    bands._idle[:] = [(os.getpid() + 1, conn) for conn in parents]
    with bands.own_connection() as last:
        assert last.info.backend_pid not in {conn.info.backend_pid for conn in parents}
    for conn in parents:
        conn.close()


def test_a_missing_band_is_told_by_source_function(log: Connection) -> None:
    """S-2: by SQLSTATE and source function, never by text; an ordinary CHECK violation is raised once, without an ensure."""
    with pytest.raises(psycopg.errors.CheckViolation) as missing:
        log.execute("INSERT INTO envelope_blob (source_id, position, payload) VALUES (%s, 1, '')", (CHAIN,))
    assert bands.is_missing(missing.value)
    assert missing.value.diag.source_function == "ExecFindPartition"
    put(log, 1)
    with pytest.raises(psycopg.errors.CheckViolation) as ordinary:
        log.execute("UPDATE envelope_meta SET expires_at = 'epoch'")
    assert not bands.is_missing(ordinary.value)
    called: list[int] = []
    with pytest.raises(psycopg.errors.CheckViolation):
        bands.retry_once(lambda: (_ for _ in ()).throw(ordinary.value), lambda: called.append(1), CHAIN, [1])
    assert called == []


def test_eight_racing_makers(log: Connection) -> None:
    """S-3, T11: 8 threads x 50 bands x 3 times: no error, each band once, attached, no dead-lock."""
    failures: list[BaseException] = []

    def work() -> None:
        try:
            with connect("worker") as conn:
                for _ in range(3):
                    for band in range(50):
                        envelopes.ensure_band(conn, CHAIN, band * WIDTH)
        except BaseException as error:
            failures.append(error)

    before = log.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").fetchone()
    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert log.execute("SELECT count(*), count(DISTINCT band_no) FROM envelope_band").fetchone() == (50, 50)
    attached = "SELECT count(*) FROM pg_inherits WHERE inhparent = %s::regclass"
    for base in ("envelope_meta", "envelope_blob"):
        assert log.execute(attached, (f"{base}_s{CHAIN}",)).fetchone() == (50,)
    assert log.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").fetchone() == before


def test_a_second_miss_is_an_error_with_the_key(log: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-4: one retry, no loop."""
    calls: list[int] = []
    monkeypatch.setattr(envelopes, "ensure_band", lambda c, s, p: calls.append(p))
    with log.transaction(), pytest.raises(BandMissing, match=f"originator {CHAIN} for 7..7"):
        append(log, CHAIN, [item(7)], price=PRICE)
    assert calls == [7]
    assert scene.stored(log) == []


@pytest.mark.parametrize(
    ("source", "position", "error"),
    [
        (CHAIN, -1, psycopg.errors.NumericValueOutOfRange),
        (CHAIN, 2**63 - 1, psycopg.errors.NumericValueOutOfRange),
        (999, 1, psycopg.errors.ForeignKeyViolation),
    ],
)
def test_ensure_refuses(log: Connection, source: int, position: int, error: type[Exception]) -> None:
    """S-5: positions outside the range, unknown originators."""
    with pytest.raises(error):
        envelopes.ensure_band(log, source, position)


def test_ensure_never_resurrects_a_retired_band(log: Connection) -> None:
    """S-5: neither by the catalogue's state, nor by adopting a detached table of the same name."""
    put(log, 1, 2)
    for base in ("meta", "blob"):
        log.execute(f"ALTER TABLE envelope_{base}_s{CHAIN} DETACH PARTITION envelope_{base}_s{CHAIN}_b0")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="exists but is not a partition"):
        envelopes.ensure_band(log, CHAIN, 1)
    log.execute("UPDATE envelope_band SET state = 'dropped'")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="is dropped"):
        put(log, 3)
    assert scene.stored(log) == []


def test_bands_above_2_to_31(log: Connection) -> None:
    """S-9, D4: bounds are int8 from end to end: made, listed, retired."""
    position = 2**50 + 5
    put(log, position)
    (band,) = retirement.live_bands(log)
    assert band.lo <= position < band.hi
    assert band.lo > 2**31
    assert retirement.band_sizes(log, CHAIN, 5)[0].meta_bytes > 0
    assert retirement.remove_partition(log, "envelope_meta", CHAIN, band.band_no) == 2
    assert scene.stored(log) == []


def test_the_edges_of_a_band(log: Connection) -> None:
    """L-6: first and last position of a band and of the band after it."""
    put(log, WIDTH - 1, WIDTH, 2 * WIDTH - 1, 2 * WIDTH)
    names = [row[0] for row in log.execute("SELECT tableoid::regclass::text FROM envelope_meta ORDER BY position")]
    assert [name.rpartition("_")[2] for name in names] == ["b0", "b1", "b1", "b2"]


@pytest.mark.parametrize("source", [0, -1, 2**31, 2**32 - 1, True, 1.0])
def test_originator_bounds(log: Connection, source: Any) -> None:
    """R-8, R-21: refused at the boundary, naming the value, before any table is touched."""
    with pytest.raises(OutOfRange, match=str(source)), log.transaction():
        append(log, source, [item(1, scene.account(log))], price=PRICE)
    assert (scene.stored(log), scene.usage(log), scene.misses(log)) == ([], [], {})


def test_the_largest_originator_round_trips(log: Connection) -> None:
    """R-8: 2**31 - 1 is an originator, and its names fit."""
    scene.chain(log, 2**31 - 1)
    put(log, 3, source=2**31 - 1)
    assert scene.stored(log, 2**31 - 1) == [3]


def test_ids_have_checks(log: Connection) -> None:
    """R-8: the database refuses too."""
    with pytest.raises(psycopg.errors.CheckViolation):
        log.execute("UPDATE envelope_source SET source_id = 0")


@given(st.integers(-(2**65), 2**65))
def test_narrowing_is_exact_or_an_error(value: int) -> None:
    """R-10: no wrap, no clamp."""
    try:
        assert bands.checked_position(value) == value
        assert 0 <= value < 2**63
    except OutOfRange:
        assert not 0 <= value < 2**63


def test_a_position_beyond_its_type_leaves_nothing(log: Connection) -> None:
    """R-17: the one variable is checked before any of its uses: row key, counters, progress."""
    with pytest.raises(OutOfRange), log.transaction():
        append(log, CHAIN, [item(1, scene.account(log)), item(2**63)], price=PRICE)
    assert (scene.stored(log), scene.usage(log), scene.congestion(log)) == ([], [], 0)


@pytest.mark.parametrize("base", ['envelope_meta"; DROP TABLE x; --', "Envelope", "1x", "e" * 40])
def test_partition_name_injection(base: str) -> None:
    """R-25: hostile or overlong names are refused after composition."""
    with pytest.raises(ValueError, match="not the name"):
        retirement.leaf_name(base, 2**31 - 1, 2**43)


def test_name_length() -> None:
    """R-25: the longest legal name fits into 63 bytes."""
    assert len(retirement.leaf_name("envelope_meta", 2**31 - 1, 2**63 - 1)) <= 63


def test_ensure_runs_alone(log: Connection) -> None:
    with log.transaction(), pytest.raises(RelayerError, match="outside of transactions"):
        envelopes.ensure_band(log, CHAIN, 1)


def test_catalogue_rules(log: Connection) -> None:
    """L-10, S-8, D3: no foreign key from or to the log, no DEFAULT partition, no CASCADE in any statement or worker."""
    from pathlib import Path

    put(log, 1)
    foreign = "SELECT count(*) FROM pg_constraint WHERE contype = 'f' AND (conrelid::regclass::text ~ '^envelope_(meta|blob)' OR confrelid::regclass::text ~ '^envelope_(meta|blob)')"
    assert log.execute(foreign).fetchone() == (0,)
    assert log.execute("SELECT count(*) FROM pg_partitioned_table WHERE partdefid <> 0").fetchone() == (0,)
    root = Path(__file__).parents[2]
    for path in [
        *root.glob("requests_app/sql/*.sql"),
        *root.glob("workers/duties/*.py"),
        *root.glob("requests_app/store/*.py"),
    ]:
        assert "CASCADE" not in path.read_text(), path
