"""The queue: what lease, ack, nack, extend and move do, and what a stale receipt cannot do."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from requests_app.states import Kind, Status
from requests_app.store.queue import (
    READY,
    SEND,
    Receipt,
    Subject,
    Verdict,
    ack_jobs,
    enqueue_jobs,
    extend_jobs,
    lease_jobs,
    lease_requests,
    move_jobs,
    nack_jobs,
)
from requests_app.store.session import connect
from tests.core.rows import insert_account
from tests.send.scenes import add_request, change, expire_leases, fail, leased, receipts

pytestmark = pytest.mark.django_db(transaction=True)
OK, STALE, NOT_FOUND = Verdict.OK, Verdict.STALE, Verdict.NOT_FOUND


def fill(conn, count, queue=SEND, first=1):
    subjects = [Subject(Kind.PUBLIC_DECRYPT, row_id) for row_id in range(first, first + count)]
    return enqueue_jobs(conn, queue, [(subject, 1) for subject in subjects])


def visible_in(conn, job_id):
    row = conn.execute(
        "SELECT extract(epoch FROM visible_at - clock_timestamp())::float8, leased_by, attempt FROM queue_job WHERE id=%s",
        (job_id,),
    )
    return row.fetchone()


def test_enqueue_is_a_no_op_while_the_job_is_waiting_or_leased(conn):
    assert fill(conn, 2) == 2
    assert fill(conn, 3) == 1
    lease_jobs(conn, SEND, 3, "w", 30)
    assert fill(conn, 3) == 0
    ack_jobs(conn, receipts(leased_again := lease_after_expiry(conn)))
    assert len(leased_again) == 3
    assert fill(conn, 3) == 3


def lease_after_expiry(conn, queue=SEND, limit=100):
    expire_leases(conn)
    return lease_jobs(conn, queue, limit, "again", 30)


def test_lease_order_is_priority_then_age_and_attempts_count_at_lease(conn):
    fill(conn, 3)
    enqueue_jobs(conn, SEND, [(Subject(Kind.INPUT_PROOF, 9), 1)], priority=0)
    first = lease_jobs(conn, SEND, 2, "w", 30)
    assert [(d.subject, d.receipt.attempt) for d in first] == [
        ((Kind.INPUT_PROOF, 9), 1),
        ((Kind.PUBLIC_DECRYPT, 1), 1),
    ]
    assert [d.subject.id for d in lease_jobs(conn, SEND, 10, "w", 30)] == [2, 3]
    assert lease_jobs(conn, SEND, 10, "w", 30) == []
    assert {d.receipt.attempt for d in lease_after_expiry(conn)} == {2}


def test_other_queues_are_not_touched(conn):
    fill(conn, 2, READY)
    assert lease_jobs(conn, SEND, 10, "w", 30) == []
    assert len(lease_jobs(conn, READY, 10, "w", 30)) == 2


def test_ack_nack_and_extend_tell_ok_stale_and_gone_apart(conn):
    fill(conn, 3)
    old = lease_jobs(conn, SEND, 3, "w", 30)
    expire_leases(conn)
    # Nobody has taken the jobs: the receipts are still good after the lease time.
    assert extend_jobs(conn, receipts(old[:1]), 30) == [OK]
    newer = lease_jobs(conn, SEND, 10, "x", 30)
    assert [d.subject.id for d in newer] == [2, 3]
    for verb in (
        lambda r: ack_jobs(conn, r),
        lambda r: nack_jobs(conn, r, [1.0] * len(r)),
        lambda r: extend_jobs(conn, r, 99),
        lambda r: move_jobs(conn, r, READY),
    ):
        assert verb([old[1].receipt, Receipt(10**9, 1)]) == [STALE, NOT_FOUND]
    assert conn.execute("SELECT count(*) FROM queue_job WHERE queue = %s", (SEND,)).fetchone() == (3,)
    assert ack_jobs(conn, [newer[0].receipt, old[2].receipt, newer[1].receipt]) == [OK, STALE, OK]
    assert ack_jobs(conn, [newer[0].receipt]) == [NOT_FOUND]


def test_nack_takes_a_delay_a_job_and_keeps_the_attempts(conn):
    fill(conn, 2)
    first, second = lease_jobs(conn, SEND, 2, "w", 30)
    assert nack_jobs(conn, receipts([first, second]), [0, 60]) == [OK, OK]
    seconds, owner, attempt = visible_in(conn, second.receipt.job_id)
    assert 55 < seconds <= 60
    assert (owner, attempt) == (None, 1)
    (again,) = lease_jobs(conn, SEND, 2, "w", 30)
    assert again.receipt == Receipt(first.receipt.job_id, 2)


def test_extend_counts_from_now_and_keeps_the_holder(conn):
    fill(conn, 1)
    (job,) = lease_jobs(conn, SEND, 1, "w", 5)
    assert extend_jobs(conn, [job.receipt], 100) == [OK]
    seconds, owner, _ = visible_in(conn, job.receipt.job_id)
    assert 95 < seconds <= 100
    assert owner == "w"


def test_a_moved_job_cannot_be_hit_by_a_receipt_of_its_former_queue(conn):
    fill(conn, 1, READY)
    (old,) = lease_jobs(conn, READY, 1, "stopped", 30)
    (new,) = lease_after_expiry(conn, READY)
    assert move_jobs(conn, [new.receipt], SEND) == [OK]
    (sending,) = lease_jobs(conn, SEND, 1, "w", 30)
    assert sending.receipt.attempt == old.receipt.attempt == 1
    # The worker that was stopped in the old queue comes back with the receipt (id, 1).
    assert ack_jobs(conn, [old.receipt]) == [NOT_FOUND]
    assert ack_jobs(conn, [sending.receipt]) == [OK]


@pytest.mark.parametrize("name", ["lease_jobs", "lease_requests"])
def test_never_more_than_the_limit_whatever_the_plan(conn, name):
    """B17: an inlined claim is run once per outer row in a nested loop and takes everything."""
    fill(conn, 300)
    for switch in ("enable_hashjoin", "enable_mergejoin", "enable_hashagg", "enable_sort", "enable_material"):
        conn.execute(f"SET {switch} = off")
    lease = {"lease_jobs": lease_jobs, "lease_requests": lease_requests}[name]
    assert len(lease(conn, SEND, 1, "w", 30)) == 1
    assert len(lease(conn, SEND, 7, "w", 30)) == 7
    assert conn.execute("SELECT count(*) FROM queue_job WHERE attempt > 0").fetchone() == (8,)


def test_concurrent_leases_share_the_jobs_without_overlap(conn):
    fill(conn, 400)

    def take(name):
        taken = []
        with connect("worker") as own:
            while batch := lease_jobs(own, SEND, 17, name, 30):
                taken += [delivery.subject.id for delivery in batch]
        return taken

    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(take, "abcd"))
    everything = [row_id for part in parts for row_id in part]
    assert sorted(everything) == list(range(1, 401))


def test_a_lease_shows_the_row_as_it_is_now(conn):
    queued = add_request(conn, Kind.USER_DECRYPT, Status.QUEUED)
    canceled = add_request(conn, Kind.PUBLIC_DECRYPT, Status.QUEUED)
    proof = add_request(conn, Kind.INPUT_PROOF, Status.PROCESSING, queue=READY)
    enqueue_jobs(conn, READY, [(Subject(Kind.PUBLIC_DECRYPT, 10**6), 1)])
    fail(conn, canceled)
    change(conn, queued, "deadline_at = clock_timestamp() - interval '1 second'")
    found = {d.subject: d for d in leased(conn, READY)}
    assert [found[s].status for s in (queued, canceled, proof)] == ["queued", "failure", "processing"]
    assert found[queued].req_type == "user_decrypt"
    assert found[queued].body["type"] == "user_decrypt"
    assert [found[s].overdue for s in (queued, canceled, proof)] == [True, False, False]
    missing = found[Subject(Kind.PUBLIC_DECRYPT, 10**6)]
    assert (missing.status, missing.body, missing.has_slot) == (None, None, False)


def test_a_request_is_effective_while_one_of_its_clients_is(conn):
    good, bad = insert_account(conn), insert_account(conn, status="disabled")
    subject = add_request(conn, Kind.PUBLIC_DECRYPT, Status.QUEUED, account=bad)
    assert [d.effective for d in leased(conn, READY)] == [False]
    view = "INSERT INTO request_client (client_id, kind, request_id, ext_job_id) VALUES (%s, %s, %s, gen_random_uuid())"
    conn.execute(view, (good, subject.kind.value, subject.id))
    expire_leases(conn)
    assert [d.effective for d in leased(conn, READY)] == [True]
    conn.execute("UPDATE request_client SET canceled_at = now() WHERE client_id = %s", (good,))
    expire_leases(conn)
    assert [d.effective for d in leased(conn, READY)] == [False]
