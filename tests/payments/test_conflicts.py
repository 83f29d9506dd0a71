"""Payments that a contradiction of the log names: only a person may say what became of the money."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from requests_app.states import IntentState
from requests_app.store.conflicts import Conflict
from requests_app.store.signing import Fence
from requests_app.transitions import conflicts
from tests.payments import shown
from tests.payments.shown import AMOUNT, case, record, show, stands, used, way

S = IntentState
DUTY = Fence("singleton:duty", "test", 7)
Connection = psycopg.Connection[Any]


def contradict(conn: Connection, lo: int, hi: int, *found: Any) -> None:
    with pytest.raises(Conflict):
        record(conn, lo, hi, list(found))


@pytest.mark.parametrize("state", [S.SETTLING, S.CONFIRMING])
def test_it_goes_to_a_person_and_its_money_stays_held(log: Connection, state: IntentState) -> None:
    make = shown.settling if state is S.SETTLING else shown.confirming
    ((one, tx_hash),) = make(log)
    log.execute("INSERT INTO queue_job (queue, job_key, kind, subject_id, tenant_id) VALUES ('settle', %s, 4, %s, 1)",
                (f"{one.public_id}/settle", one.id))  # fmt: skip
    contradict(log, 1, 2, *used(one, (2, 0), tx_hash), *used(one, (2, 0), tx_hash, amount=AMOUNT - 1))
    done = conflicts.review(log, DUTY, 100)
    assert [found.id for found in done.parked] == [one.id]
    assert stands(log, one)[0] is S.NEEDS_REVIEW
    assert way(log, one)[-1] == ("needs_review", "relayer" if state is S.SETTLING else "listener")
    assert case(log, one)[0] == "envelope_conflict"
    assert shown.entries(log, one) == ["hold"]
    assert log.execute("SELECT count(*) FROM queue_job").fetchone() == (0,)


def test_the_log_does_not_take_it_up_again_by_itself(log: Connection) -> None:
    """For requests the true event is enough; where money moved a person has said so (observing.UNPROVEN)."""
    ((one, tx_hash),) = shown.confirming(log)
    pair = used(one, (2, 0), tx_hash)
    contradict(log, 1, 2, *pair, *used(one, (2, 0), tx_hash, amount=AMOUNT - 1))
    conflicts.review(log, DUTY, 100)
    log.execute("UPDATE envelope_source SET halted = NULL")
    show(log, 1, 2, pair)
    assert stands(log, one)[0] is S.NEEDS_REVIEW


def test_one_that_was_never_signed_or_has_ended_keeps_its_state(log: Connection) -> None:
    (authorized,) = shown.authorized(log)
    (ended,) = shown.authorized(log)
    log.execute("UPDATE payment_intent SET state = 'canceled' WHERE id = %s", (ended.id,))
    contradict(log, 1, 2, *used(authorized, (2, 0), b"\x01" * 32), *used(ended, (2, 0), b"\x02" * 32))
    done = conflicts.review(log, DUTY, 100)
    assert (done.parked, done.noted) == ([], 1)
    rows = log.execute("SELECT subject_id, reason_code FROM review_case WHERE kind = 4").fetchall()
    assert rows == [(ended.id, "envelope_conflict")]
