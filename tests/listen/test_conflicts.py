"""What a contradiction of the log names: to a person, once, and taken up again by the true event after the halt."""

from __future__ import annotations

import contextlib
from typing import Any

import psycopg
import pytest

from requests_app.errors import StaleEpoch
from requests_app.states import Kind
from requests_app.store.conflicts import Conflict
from requests_app.store.envelopes import Fence
from requests_app.store.queue import Subject
from requests_app.transitions import conflicts
from tests.listen import world
from tests.listen.world import Ours, answered, applier, record, requested, sent, share, status

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
    return conn.execute(
        "SELECT kind, subject_id, reason_code, status FROM review_case ORDER BY kind, subject_id"
    ).fetchall()


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
