"""How deep the queues are is counted once in a moment, and anew where it decides something."""

from __future__ import annotations

from uuid import uuid4

import pytest

from requests_app import depths
from requests_app.selectors import find_job
from requests_app.services import Submission, SubmitOutcome, submit
from requests_app.states import Kind
from tests.core.rows import insert_account

pytestmark = pytest.mark.django_db(transaction=True)


def proof() -> Submission:
    return Submission(Kind.INPUT_PROOF, None, uuid4().bytes + uuid4().bytes, {"contract_chain_id": "1"})


@pytest.fixture
def slow_clock(monkeypatch):
    """What is remembered holds for the whole test."""
    monkeypatch.setattr(depths, "FRESH_SECONDS", 600.0)


def fill(conn, jobs: int) -> None:
    conn.execute(
        "INSERT INTO queue_job (queue, job_key, kind, subject_id, tenant_id) SELECT 'send', 'x/' || g, 3, g, 1 FROM generate_series(1, %s) g",
        [jobs],
    )


def test_a_deep_queue_is_counted_once_a_moment(conn, slow_clock):
    account = insert_account(conn)
    fill(conn, depths.FEW)
    first = submit(conn, proof(), client_id=account)
    conn.execute("UPDATE queue_job SET queue = 'ready'")  # behind its back
    second = submit(conn, proof(), client_id=account)
    assert (second.readiness_queue_size, second.tx_queue_size) == (first.readiness_queue_size, first.tx_queue_size)
    job = find_job(conn, client_id=account, ext_job_id=second.ext_job_id, kind=Kind.INPUT_PROOF, placed=True)
    assert job is not None
    assert (job.tx_queue_size, job.queue_position) == (1, 1)  # for one job both are counted
    depths.forget()
    assert submit(conn, proof(), client_id=account).readiness_queue_size == depths.FEW + 1


def test_few_jobs_are_counted_every_time(conn, slow_clock):
    account = insert_account(conn)
    assert [submit(conn, proof(), client_id=account).tx_queue_size for _ in range(3)] == [0, 1, 2]


def test_near_the_door_every_request_counts(conn, slow_clock, settings):
    """With a memory that never ends: still not one more than fits."""
    settings.QUEUE_CAPACITY, settings.QUEUE_SAFETY_MARGIN = depths.FEW + 60, 30
    account = insert_account(conn)
    fill(conn, depths.FEW - 1)
    outcomes = [submit(conn, proof(), client_id=account).outcome for _ in range(40)]
    assert outcomes == [SubmitOutcome.INSERTED] * 31 + [SubmitOutcome.QUEUE_FULL] * 9


def test_a_door_beyond_what_a_get_counts_still_closes(conn, settings, monkeypatch):
    """The capacity may be larger than the number at which a GET stops counting."""
    monkeypatch.setattr("requests_app.store.requests.DEPTH_CAP", 10)
    settings.QUEUE_CAPACITY, settings.QUEUE_SAFETY_MARGIN = 21, 1
    account = insert_account(conn)
    fill(conn, 19)
    assert submit(conn, proof(), client_id=account).outcome is SubmitOutcome.INSERTED
    assert submit(conn, proof(), client_id=account).outcome is SubmitOutcome.QUEUE_FULL
