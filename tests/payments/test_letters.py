"""Dead letters: parked by receipt, moved once, by a person."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from requests_app.states import Kind
from requests_app.store import letters, queue
from requests_app.store.letters import GivenUp
from requests_app.store.queue import SEND, Receipt, Subject, Verdict
from requests_app.store.session import connect

pytestmark = pytest.mark.django_db(transaction=True)
PAYMENT = Subject(Kind.PAYMENT, 7)


def leased(conn: psycopg.Connection[Any]) -> Receipt:
    queue.enqueue_jobs(conn, SEND, [(PAYMENT, 1)])
    ((receipt, _, _),) = queue.lease_jobs(conn, SEND, 1, "w", 30)
    return receipt


def parked(conn: psycopg.Connection[Any]) -> int:
    letters.park_jobs(conn, [GivenUp(leased(conn), "cannot be encoded", "authorized")])
    return int(conn.execute("SELECT max(id) FROM dead_letter").fetchone()[0])


@pytest.fixture
def conn(transactional_db: None) -> Any:
    with connect("worker") as own:
        yield own


def test_a_parked_job_has_left_its_queue_with_what_is_known_of_it(conn: psycopg.Connection[Any]) -> None:
    receipt = leased(conn)
    assert letters.park_jobs(conn, [GivenUp(receipt, "used up", "settling")]) == [receipt.job_id]
    row = conn.execute(
        "SELECT queue, kind, subject_id, tenant_id, attempts, reason, subject_state, cycles, status FROM dead_letter"
    )
    assert row.fetchall() == [(SEND, 4, 7, 1, 1, "used up", "settling", 1, "parked")]
    assert queue.ack_jobs(conn, [receipt]) == [Verdict.NOT_FOUND]


def test_a_stale_receipt_parks_nothing(conn: psycopg.Connection[Any]) -> None:
    receipt = leased(conn)
    stale = Receipt(receipt.job_id, receipt.attempt - 1)
    assert letters.park_jobs(conn, [GivenUp(stale, "used up", None)]) == []
    assert conn.execute("SELECT count(*) FROM dead_letter").fetchone() == (0,)
    assert queue.ack_jobs(conn, [receipt]) == [Verdict.OK]


def test_a_reason_is_asked_for(conn: psycopg.Connection[Any]) -> None:
    receipt = leased(conn)
    with pytest.raises(ValueError, match="reason"):
        letters.park_jobs(conn, [GivenUp(receipt, " ", None)])
    assert queue.ack_jobs(conn, [receipt]) == [Verdict.OK]


def test_a_redriven_job_is_first_and_new(conn: psycopg.Connection[Any]) -> None:
    letter = parked(conn)
    queue.enqueue_jobs(conn, SEND, [(Subject(Kind.PAYMENT, 8), 1)])
    done = letters.redrive(conn, letter, "ann")
    assert done is not None
    assert done.queued
    first, second = queue.lease_jobs(conn, SEND, 2, "w", 30)
    assert (first.subject, first.receipt.attempt) == (PAYMENT, 1)
    assert second.subject.id == 8
    assert letters.redrive(conn, letter, "bob") is None
    assert not letters.drop(conn, letter, "bob")
    assert conn.execute("SELECT status, resolved_by FROM dead_letter").fetchone() == ("redriven", "ann")


def test_a_dropped_letter_leaves_no_job(conn: psycopg.Connection[Any]) -> None:
    letter = parked(conn)
    assert letters.drop(conn, letter, "ann")
    assert queue.lease_jobs(conn, SEND, 2, "w", 30) == []


def test_giving_up_again_counts_cycles(conn: psycopg.Connection[Any]) -> None:
    letters.redrive(conn, parked(conn), "ann")
    (job,) = queue.lease_jobs(conn, SEND, 1, "w", 30)
    letters.park_jobs(conn, [GivenUp(job.receipt, "again", "authorized")])
    assert conn.execute("SELECT cycles, status FROM dead_letter ORDER BY id").fetchall() == [
        (1, "redriven"),
        (2, "parked"),
    ]


def test_of_many_persons_one_moves_it(conn: psycopg.Connection[Any]) -> None:
    letter = parked(conn)

    def move(number: int) -> bool:
        with connect("worker") as own, own.transaction():
            return (
                letters.redrive(own, letter, str(number)) is not None if number % 2 else letters.drop(own, letter, "x")
            )

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(move, range(16))) == 1
