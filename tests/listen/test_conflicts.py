"""What a contradiction of the log names: to a person, once, and taken up again by the true event after the halt."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

import psycopg
import pytest

from requests_app.errors import StaleEpoch
from requests_app.states import Kind
from requests_app.store import envelopes
from requests_app.store.conflicts import Conflict
from requests_app.store.queue import Subject
from requests_app.store.session import transaction
from requests_app.store.signing import Fence
from requests_app.transitions import conflicts, reorgs
from tests.listen import world
from tests.listen.world import SOURCE, Ours, answered, applier, record, requested, sent, share, status
from workers.chain.events import REQUEST_KINDS, Envelope

DUTY = Fence("singleton:conflicts", "test", 1)
Connection = psycopg.Connection[Any]


@pytest.fixture
def duty(log: Connection) -> Connection:
    log.execute(
        "INSERT INTO exec_lease (resource, instance, epoch, lease_until) VALUES ('singleton:conflicts', 'test', 1, 'infinity')"
    )
    return log


def contradict(conn: Connection, lo: int, hi: int, *found: Any) -> None:
    """A node that answers two events at one position."""
    with pytest.raises(Conflict):
        record(conn, lo, hi, list(found))


def review(conn: Connection) -> conflicts.Reviewed:
    return conflicts.review(conn, DUTY, 100)


def cases(conn: Connection) -> list[tuple[Any, ...]]:
    """Those of requests and payments."""
    return conn.execute(
        "SELECT kind, subject_id, reason_code, status FROM review_case WHERE kind < 100 ORDER BY kind, subject_id"
    ).fetchall()


def source_cases(conn: Connection) -> list[tuple[Any, ...]]:
    return conn.execute(
        "SELECT subject_id, reason_code, status, outcome, evidence FROM review_case WHERE kind = 101 ORDER BY id"
    ).fetchall()


def ordered(conn: Connection, block: int) -> reorgs.Undone:
    """The chain's version from `block` on is taken."""
    with transaction(conn):
        return reorgs.adopt(conn, SOURCE, block, DUTY, request_kinds=REQUEST_KINDS)


def open_case(one: Ours) -> tuple[Any, ...]:
    return (one.kind.value, one.id, "envelope_conflict", "open")


def test_whose_transaction_either_event_names_waits_for_a_person(duty: Connection) -> None:
    first, second, other = sent(duty, Kind.INPUT_PROOF, 3)
    contradict(duty, 1, 5, requested(first, (3, 0)), requested(second, (3, 0)))
    assert [status(duty, one) for one in (first, second)] == ["tx_in_flight"] * 2
    done = review(duty)
    assert (done.conflicts, done.noted) == (1, 0)
    assert done.parked == [Subject(Kind.INPUT_PROOF, first.id), Subject(Kind.INPUT_PROOF, second.id)]
    assert [status(duty, one) for one in (first, second, other)] == ["needs_review", "needs_review", "tx_in_flight"]
    assert cases(duty) == [open_case(first), open_case(second)]
    (evidence,) = duty.execute("SELECT evidence FROM review_case WHERE subject_id = %s", (first.id,)).fetchone()
    assert (evidence["source"], evidence["block"], evidence["log_index"], evidence["conflicts"]) == (1, 3, 0, 1)
    assert (evidence["stored_tx_hash"], evidence["got_tx_hash"]) == (
        f"0x{first.tx_hash.hex()}",
        f"0x{second.tx_hash.hex()}",
    )
    assert review(duty) == (0, [], 0)


def test_everything_that_one_answer_contradicts_is_recorded(duty: Connection) -> None:
    ours = sent(duty, Kind.INPUT_PROOF, 3)
    pairs = [
        pair for place, one in enumerate(ours) for pair in (requested(one, (2, place)), share(one.ref, 0, (2, place)))
    ]
    contradict(duty, 1, 2, *pairs)
    done = review(duty)
    assert (done.conflicts, len(done.parked)) == (3, 3)


def test_whose_reference_the_stored_event_has_waits_too(duty: Connection) -> None:
    """The answer that is stored is contradicted by another reading of the same block; the transaction is a node's, not ours."""
    (one,) = sent(duty, Kind.USER_DECRYPT)
    record(duty, 1, 2, [requested(one, (2, 0))])
    applier().catch_up(duty)
    assert status(duty, one) == "receipt_received"
    record(duty, 3, 3, [share(one.ref, 1, (3, 0))])
    contradict(duty, 3, 4, share(one.ref, 2, (3, 0)))
    assert review(duty).parked == [Subject(Kind.USER_DECRYPT, one.id)]
    assert (status(duty, one), cases(duty)) == ("needs_review", [open_case(one)])


def test_what_has_ended_stays_and_is_taken_note_of(duty: Connection) -> None:
    (one,) = sent(duty, Kind.PUBLIC_DECRYPT)
    answer = answered(one, (2, 1))
    record(duty, 1, 2, [requested(one, (2, 0)), answer])
    applier().catch_up(duty)
    before = world.row(duty, one)
    assert before.status == "completed"
    contradict(duty, 2, 3, requested(one, (2, 0)), answered(one, (2, 1)))
    assert review(duty) == (1, [], 1)
    assert (world.row(duty, one), cases(duty)) == (before, [open_case(one)])


def test_who_waits_for_a_person_already_keeps_the_first_reason(duty: Connection) -> None:
    (one,) = sent(duty, Kind.INPUT_PROOF, status="needs_review")
    duty.execute(
        "INSERT INTO review_case (kind, subject_id, reason_code, evidence) VALUES (3, %s, 'outcome_unknown', '{}')",
        (one.id,),
    )
    contradict(duty, 1, 1, requested(one, (1, 0)), share(one.ref, 0, (1, 0)))
    assert review(duty) == (1, [], 0)
    assert cases(duty) == [(3, one.id, "outcome_unknown", "open")]


def test_the_true_event_takes_it_up_again_once_the_halt_is_lifted(duty: Connection) -> None:
    (one,) = sent(duty, Kind.INPUT_PROOF)
    true = requested(one, (2, 0))
    contradict(duty, 1, 3, true, share(one.ref, 0, (2, 0)))
    review(duty)
    assert status(duty, one) == "needs_review"
    duty.execute("UPDATE envelope_source SET halted = NULL")
    record(duty, 1, 3, [true, answered(one, (3, 0))])
    applier().catch_up(duty)
    assert status(duty, one) == "completed"
    assert cases(duty) == [(3, one.id, "envelope_conflict", "closed")]


def test_a_stale_duty_reviews_nothing(duty: Connection) -> None:
    (one,) = sent(duty, Kind.INPUT_PROOF)
    contradict(duty, 1, 1, requested(one, (1, 0)), share(one.ref, 0, (1, 0)))
    with pytest.raises(StaleEpoch):
        conflicts.review(duty, Fence(DUTY.resource, DUTY.instance, 0), 100)
    assert (status(duty, one), cases(duty)) == ("tx_in_flight", [])


def test_what_clients_publish_names_nobody(duty: Connection) -> None:
    """Topics are the clients' choice: one that equals a reference must not stop somebody's request."""
    (one,) = sent(duty, Kind.USER_DECRYPT)
    record(duty, 1, 1, [requested(one, (1, 0))])
    applier().catch_up(duty)
    duty.execute("UPDATE envelope_source SET chain_id = 0")
    with contextlib.suppress(Conflict):
        record(duty, 2, 2, [share(one.ref, 0, (2, 0)), share(one.ref, 1, (2, 0))])
    assert review(duty) == (1, [], 0)
    assert (status(duty, one), cases(duty)) == ("receipt_received", [])


def test_a_halted_source_has_a_case_also_when_nobody_is_named(duty: Connection) -> None:
    ref = world.new_ref(Kind.USER_DECRYPT)
    contradict(duty, 1, 5, share(ref, 0, (3, 2)), share(ref, 1, (3, 2)), share(ref, 0, (4, 0)), share(ref, 1, (4, 0)))
    ((subject, reason, standing, _, evidence),) = source_cases(duty)
    assert (subject, reason, standing) == (SOURCE, "envelope_conflict", "open")
    assert (evidence["block"], evidence["log_index"], evidence["conflicts"]) == (3, 2, 2)
    assert evidence["stored_digest"] != evidence["got_digest"]
    assert review(duty) == (2, [], 0)


def false_answer(conn: Connection) -> tuple[Ours, Envelope, Envelope]:
    """A row that waits for its answer; the log holds a share that the chain does not show, found when it was read again."""
    (one,) = sent(conn, Kind.USER_DECRYPT)
    false, true = share(one.ref, 1, (3, 0)), share(one.ref, 2, (3, 0))
    record(conn, 1, 5, [requested(one, (2, 0)), false])
    applier().catch_up(conn)
    with pytest.raises(Conflict):
        envelopes.insert_below_seal(conn, SOURCE, [true])
    return one, false, true


def test_what_is_read_again_and_differs_is_a_conflict(duty: Connection) -> None:
    one, false, true = false_answer(duty)
    assert duty.execute("SELECT digest FROM envelope_meta WHERE position = %s", (false.position,)).fetchone() == (
        false.digest,
    )
    assert duty.execute("SELECT have, got FROM envelope_conflict").fetchall() == [(false.digest, true.digest)]
    with pytest.raises(Conflict):
        envelopes.insert_below_seal(duty, SOURCE, [true])  # the duty that asks comes again
    assert duty.execute("SELECT count(*) FROM envelope_conflict").fetchone() == (1,)
    assert review(duty).parked == [Subject(Kind.USER_DECRYPT, one.id)]


def test_what_is_read_again_in_another_block_is_not_a_conflict(duty: Connection) -> None:
    """A reorganisation that the listener has not seen yet."""
    (one,) = sent(duty, Kind.USER_DECRYPT)
    record(duty, 1, 5, [requested(one, (2, 0))])
    moved = dataclasses.replace(requested(one, (2, 0)), block_hash=world.block_hash(2, 1))
    moved = dataclasses.replace(moved, tx_hash=b"t" * 32, digest=b"d" * 32)
    assert envelopes.insert_below_seal(duty, SOURCE, [moved]) == 0
    assert source_cases(duty) == []


def test_lifting_the_halt_halts_again_and_the_chain_s_version_does_not(duty: Connection) -> None:
    one, false, true = false_answer(duty)
    duty.execute("UPDATE envelope_source SET halted = NULL")
    with pytest.raises(Conflict):
        envelopes.insert_below_seal(duty, SOURCE, [true])
    undone = ordered(duty, 3)
    assert (undone.envelopes, undone.withdrawn) == (1, 0)
    assert duty.execute("SELECT position, digest FROM envelope_orphan").fetchall() == [(false.position, false.digest)]
    assert duty.execute("SELECT block FROM chain_cursor").fetchone() == (2,)
    assert duty.execute("SELECT halted FROM envelope_source").fetchone() == (None,)
    assert duty.execute("SELECT n FROM gateway_ref").fetchone() == (0,)
    assert [case[1:4] for case in source_cases(duty)] == [("envelope_conflict", "closed", "take_chain")]
    assert status(duty, one) == "needs_review"  # nobody had been shown the conflict yet
    record(duty, 3, 6, [true, *(share(one.ref, place, (4, place)) for place in range(3, 11))])
    applier().catch_up(duty)
    assert status(duty, one) == "completed"
    assert cases(duty) == [(1, one.id, "envelope_conflict", "closed")]


def test_the_chain_s_version_withdraws_a_receipt(duty: Connection) -> None:
    (one,) = sent(duty, Kind.INPUT_PROOF)
    record(duty, 1, 5, [requested(one, (2, 0))])
    applier().catch_up(duty)
    duty.execute("UPDATE envelope_source SET halted = 'false'")
    assert ordered(duty, 2).withdrawn == 1
    assert status(duty, one) == "tx_in_flight"
    record(duty, 2, 6, [requested(one, (6, 0))])
    applier().catch_up(duty)
    assert (status(duty, one), world.row(duty, one).receipt_block) == ("receipt_received", 6)


def test_leftovers_above_the_seal_leave_with_the_chain_s_version(duty: Connection) -> None:
    """A refused batch left its other events above the seal; the seal is not raised, whatever block is named."""
    first, second = sent(duty, Kind.INPUT_PROOF, 2)
    record(duty, 1, 5, [])
    record(duty, 6, 7, [requested(first, (6, 0)), requested(second, (7, 0))])
    duty.execute("UPDATE chain_cursor SET block = 5, head_hash = %s", (world.block_hash(5),))
    true = dataclasses.replace(requested(second, (7, 0)), tx_hash=b"t" * 32, digest=b"d" * 32)
    contradict(duty, 6, 7, requested(first, (6, 0)), true)
    undone = ordered(duty, 7)
    assert (undone.envelopes, undone.withdrawn) == (2, 0)
    assert duty.execute("SELECT block, head_hash FROM chain_cursor").fetchone() == (5, world.block_hash(5))
    assert record(duty, 6, 7, [requested(first, (6, 0)), true]).inserted == 2


def test_the_chain_s_version_of_what_left_the_log_is_refused(duty: Connection) -> None:
    record(duty, 1, 2500, [])
    duty.execute(
        "INSERT INTO envelope_band (source_id, band_no, lo, hi, state) VALUES (1, 0, 0, 1000 << 20, 'retiring')"
    )
    with pytest.raises(reorgs.NotHalted):
        ordered(duty, 2000)
    duty.execute("UPDATE envelope_source SET halted = 'false'")
    with pytest.raises(reorgs.KeptNoLonger, match="below block 1000"):
        ordered(duty, 999)
    assert duty.execute("SELECT block FROM chain_cursor").fetchone() == (2500,)
    ordered(duty, 1000)
    assert duty.execute("SELECT block FROM chain_cursor").fetchone() == (999,)


def test_a_stale_holder_of_commands_takes_nothing(duty: Connection) -> None:
    record(duty, 1, 5, [])
    duty.execute("UPDATE envelope_source SET halted = 'false'")
    duty.execute("UPDATE exec_lease SET epoch = 2 WHERE resource = %s", (DUTY.resource,))
    with pytest.raises(StaleEpoch):
        ordered(duty, 3)
    assert duty.execute("SELECT block FROM chain_cursor").fetchone() == (5,)
