"""record_range: what it stores, what it refuses, and that nothing is ever passed over (I6)."""

from __future__ import annotations

import random

import psycopg
import pytest

from requests_app.errors import SourceHalted, StaleEpoch
from requests_app.states import Kind
from requests_app.store import consumers, envelopes
from requests_app.store.chain_identity import claim_identity
from requests_app.store.conflicts import Conflict
from requests_app.store.envelopes import Gap
from requests_app.store.signing import Fence
from tests.listen import world
from tests.listen.world import SOURCE, block_hash, record, share

REF = b"\x02" + b"\x07" * 31


def stored(conn: psycopg.Connection) -> list[int]:
    return [
        row[0]
        for row in conn.execute("SELECT position FROM gateway_envelope WHERE payload IS NOT NULL ORDER BY position")
    ]


def seal(conn: psycopg.Connection) -> tuple[int, bytes]:
    row = conn.execute("SELECT block, head_hash FROM chain_cursor WHERE source_id=1").fetchone()
    return row[0], row[1]


def test_range_is_stored_and_sealed_once(log: psycopg.Connection) -> None:
    found = [share(REF, n, (1 + n, n)) for n in range(5)]
    assert record(log, 1, 10, found) == (5, 10)
    assert stored(log) == [one.position for one in found]
    assert seal(log) == (10, block_hash(10))


def test_payload_comes_back_as_it_was(log: psycopg.Connection) -> None:
    one = share(REF, 3, (2, 1), body=b"x" * 5000)
    record(log, 1, 2, [one])
    (back,) = consumers.read_page(log, SOURCE, -1, 1 << 40, 10)
    assert (back.position, back.kind, back.ref, back.contract, back.block_hash, back.tx_hash, back.payload) == (
        one.position, one.kind, one.ref, one.contract, one.block_hash, one.tx_hash, one.payload,
    )  # fmt: skip


def test_replay_and_overlap_add_only_what_is_new(log: psycopg.Connection) -> None:
    found = [share(REF, n, (n + 1, 0)) for n in range(6)]
    record(log, 1, 3, found[:3])
    assert record(log, 1, 3, found[:3]) == (0, 3)
    assert record(log, 2, 6, found[1:]) == (3, 6)
    assert stored(log) == [one.position for one in found]


def test_replay_of_an_older_range_never_lowers_the_seal(log: psycopg.Connection) -> None:
    found = [share(REF, n, (n + 1, 0)) for n in range(6)]
    record(log, 1, 6, found)
    assert record(log, 1, 2, found[:2]) == (0, 6)
    assert seal(log) == (6, block_hash(6))


def test_twice_in_one_answer_collapses(log: psycopg.Connection) -> None:
    one = share(REF, 0, (1, 0))
    assert record(log, 1, 1, [one, one]) == (1, 1)


def test_gap_is_refused_and_names_the_seal(log: psycopg.Connection) -> None:
    """L-4: a range that does not join the seal stores nothing."""
    record(log, 1, 4, [])
    with pytest.raises(Gap) as caught:
        record(log, 6, 9, [share(REF, 0, (7, 0))])
    assert caught.value.sealed == 4
    assert stored(log) == []
    assert seal(log)[0] == 4


def test_event_outside_the_range_is_refused(log: psycopg.Connection) -> None:
    with pytest.raises(ValueError, match="outside"):
        record(log, 1, 4, [share(REF, 0, (5, 0))])


def test_another_content_at_a_position_halts_the_source(log: psycopg.Connection) -> None:
    first, other = share(REF, 0, (2, 0)), share(REF, 1, (2, 0))
    record(log, 1, 2, [first])
    with pytest.raises(Conflict):
        record(log, 2, 5, [other, share(REF, 2, (4, 0))])
    assert seal(log) == (2, block_hash(2))
    assert log.execute("SELECT position, have, got FROM envelope_conflict").fetchall() == [
        (first.position, first.digest, other.digest)
    ]
    with pytest.raises(SourceHalted):
        record(log, 3, 5, [])


def test_two_contents_in_one_answer_halt_the_source(log: psycopg.Connection) -> None:
    with pytest.raises(Conflict):
        record(log, 1, 2, [share(REF, 0, (2, 0)), share(REF, 1, (2, 0))])
    assert seal(log)[0] == 0


def test_stale_epoch_writes_nothing(log: psycopg.Connection) -> None:
    stale = Fence("listener:1", "test", 0)
    with pytest.raises(StaleEpoch):
        envelopes.record_range(log, SOURCE, 1, 2, [share(REF, 0, (1, 0))], stale, None)
    assert stored(log) == []
    assert seal(log)[0] == 0


def test_empty_range_moves_the_seal(log: psycopg.Connection) -> None:
    assert record(log, 1, 100, []) == (0, 100)


def test_missing_bands_are_made_once_and_ranges_may_span_many(log: psycopg.Connection) -> None:
    world.clean_bands(log)
    found = [share(REF, n, (n * 700 + 1, n)) for n in range(6)]
    assert record(log, 1, 5000, found) == (6, 5000)
    bands = [row[0] for row in log.execute("SELECT band_no FROM envelope_band ORDER BY 1")]
    assert bands == sorted({one.position // (1000 << 20) for one in found})


def test_first_and_last_position_of_a_band(log: psycopg.Connection) -> None:
    edge = [share(REF, 0, (999, (1 << 20) - 1)), share(REF, 1, (1000, 0))]
    assert record(log, 1, 1000, edge).inserted == 2
    tables = {row[0] for row in log.execute("SELECT tableoid::regclass::text FROM envelope_meta")}
    assert len(tables) == 2


def test_retired_band_is_never_written_again(log: psycopg.Connection) -> None:
    world.clean_bands(log)
    log.execute("INSERT INTO envelope_band (source_id,band_no,lo,hi,state) VALUES (1,0,0,%s,'dropped')", (1000 << 20,))
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
        record(log, 1, 2, [share(REF, 0, (1, 0))])
    assert seal(log)[0] == 0


def test_bands_are_not_made_inside_a_transaction(log: psycopg.Connection) -> None:
    with log.transaction(), pytest.raises(Exception, match="outside of transactions"):
        envelopes.ensure_band(log, SOURCE, 1)


def test_request_events_name_their_payer(log: psycopg.Connection) -> None:
    (ours,) = world.sent(log, Kind.PUBLIC_DECRYPT)
    record(log, 1, 2, [world.requested(ours, (1, 0)), world.answered(ours, (2, 0))])
    payers = log.execute("SELECT payer FROM envelope_meta ORDER BY position").fetchall()
    client = log.execute("SELECT id FROM client_account").fetchone()
    assert payers == [client, (None,)]


def test_another_genesis_is_refused(log: psycopg.Connection) -> None:
    from requests_app.errors import ForeignChain

    claim_identity(log, 77, b"\x01" * 32)
    claim_identity(log, 77, b"\x01" * 32)
    with pytest.raises(ForeignChain, match="reset database and chain together"):
        claim_identity(log, 77, b"\x02" * 32)


@pytest.mark.parametrize("seed", range(5))
def test_random_ranges_leave_no_hole(log: psycopg.Connection, seed: int) -> None:
    """I6: whatever ranges are asked for, every event at or below the seal is stored, and the seal never falls."""
    dice = random.Random(seed)
    chain = {block: [share(REF, block, (block, n)) for n in range(dice.randrange(3))] for block in range(1, 120)}
    before = 0
    while before < 119:
        lo = dice.randrange(max(1, before - 10), before + 4)
        hi = min(119, lo + dice.randrange(12))
        if hi < lo:
            continue
        found = [one for block in range(lo, hi + 1) for one in chain.get(block, [])]
        dice.shuffle(found)
        if lo > before + 1:
            with pytest.raises(Gap):
                record(log, lo, hi, found)
        else:
            record(log, lo, hi, found)
        sealed = seal(log)[0]
        assert sealed >= before
        assert stored(log) == sorted(one.position for block in range(1, sealed + 1) for one in chain[block])
        before = sealed
