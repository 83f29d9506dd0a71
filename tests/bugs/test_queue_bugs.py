"""Public bug reports about queues and leases (queue_settle 5.1, 5.2): each test is named after the report it stands for."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from django.conf import settings

from requests_app import sql
from requests_app.states import Kind, Status
from requests_app.store import leases, queue
from requests_app.store.queue import READY, SEND, Subject, Verdict, enqueue_jobs
from requests_app.store.session import connect
from requests_app.transitions import sending
from tests.core.rows import insert_account, read_request
from tests.envelopes import scene
from tests.send.scenes import PRICE, add_request, add_signer, expire_leases, fake_sign, hold, leased, wanted
from workers.publisher import PublishTurn

pytestmark = pytest.mark.django_db(transaction=True)
RESOURCE = "signer:654321:0xaa"


def test_b1_a_lapsed_job_is_claimable_whatever_is_known_of_its_worker(conn):
    """procrastinate 1518: abandoned is decided by the job's own time, not by rows or names of workers."""
    add_request(conn, Kind.INPUT_PROOF, Status.PROCESSING)
    (first,) = leased(conn, SEND, owner="pod-0")
    conn.execute(
        "INSERT INTO worker_beat (resource, instance, at, turn_at, pid, host) VALUES ('w', 'pod-0', now(), now(), 1, 'h')"
    )
    assert leased(conn, SEND, owner="pod-1") == []
    expire_leases(conn)
    (second,) = leased(conn, SEND, owner="pod-0")  # a restarted pod with the same name is another holder
    assert second.receipt.attempt == first.receipt.attempt + 1
    assert queue.ack_jobs(conn, [first.receipt]) == [Verdict.STALE]


def test_b3_a_second_execution_loses_by_receipt_and_by_state(conn):
    """pgqueuer 430, 323: a job still running is picked again; the first one's writes change nothing, or the second's."""
    (subject,) = [add_request(conn, Kind.INPUT_PROOF, Status.PROCESSING)]
    fence = hold(conn, RESOURCE)
    signer = add_signer(conn, fence)
    slow = leased(conn, SEND)
    expire_leases(conn)
    quick = leased(conn, SEND, owner="two")
    assert len(sending.prepare_send(conn, fence, signer.id, wanted(quick), PRICE, fake_sign)) == 1
    assert sending.prepare_send(conn, fence, signer.id, wanted(slow), PRICE, fake_sign) == []
    assert conn.execute("SELECT count(*) FROM nonce_slot").fetchone() == (1,)
    assert read_request(conn, subject.kind, subject.id).status == "tx_in_flight"


def test_b5_a_job_is_written_by_id_and_attempt_never_by_id_alone(conn):
    """river 1302: a rescuer brought a finished job back because it updated by id."""
    add_request(conn, Kind.INPUT_PROOF, Status.PROCESSING)
    (old,) = leased(conn, SEND)
    expire_leases(conn)
    (new,) = leased(conn, SEND, owner="two")
    assert queue.nack_jobs(conn, [old.receipt], [0.0]) == [Verdict.STALE]
    assert queue.ack_jobs(conn, [new.receipt]) == [Verdict.OK]
    assert queue.nack_jobs(conn, [old.receipt], [0.0]) == [Verdict.NOT_FOUND]
    assert conn.execute("SELECT count(*) FROM queue_job").fetchone() == (0,)


def test_b7_a_holder_believed_dead_may_live_and_decides_nothing_more(conn):
    """solid_queue 589, 422: a live worker was pruned as dead and went on beside its successor."""
    add_request(conn, Kind.INPUT_PROOF, Status.PROCESSING)
    former = hold(conn, RESOURCE, "one", 1)
    signer = add_signer(conn, former)
    deliveries = leased(conn, SEND)
    hold(conn, RESOURCE, "two", 2)
    assert sending.prepare_send(conn, former, signer.id, wanted(deliveries), PRICE, fake_sign) == []
    assert conn.execute("SELECT count(*) FROM tx_attempt").fetchone() == (0,)


def test_b11_receipts_are_integers_that_never_repeat(conn):
    """django-q 234: two clusters took one task because equal timestamps were accepted."""
    add_request(conn, Kind.INPUT_PROOF, Status.PROCESSING)
    seen = set()
    for _ in range(3):
        (delivery,) = leased(conn, SEND)
        assert isinstance(delivery.receipt.attempt, int)
        seen.add(delivery.receipt)
        expire_leases(conn)
    (delivery,) = leased(conn, SEND)
    queue.move_jobs(conn, [delivery.receipt], READY)
    (moved,) = leased(conn, READY)
    assert len(seen | {delivery.receipt, moved.receipt}) == 5


def test_b14_however_many_enqueue_there_is_one_job(conn):
    """django-q 231: schedules fired twice with several clusters."""
    account = insert_account(conn)
    job = [(Subject(Kind.INPUT_PROOF, 1), account)]

    def enqueue(_: int) -> int:
        with connect("worker") as own:
            return enqueue_jobs(own, SEND, job)

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(enqueue, range(16))) == 1
    assert conn.execute("SELECT count(*) FROM queue_job").fetchone() == (1,)


def test_b17_never_more_than_asked_for_under_the_worst_plan(conn):
    """queue_classic 320: LIMIT 1 with SKIP LOCKED in an inlined sub-query claimed a thousand."""
    account = insert_account(conn)
    enqueue_jobs(conn, SEND, [(Subject(Kind.INPUT_PROOF, n), account) for n in range(1, 1001)])
    for name in ("enable_hashjoin", "enable_mergejoin", "enable_hashagg", "enable_sort"):
        conn.execute(f"SET {name} = off")
    assert len(queue.lease_jobs(conn, SEND, 1, "one", 30)) == 1
    assert len(queue.lease_requests(conn, SEND, 1, "one", 30)) == 1
    assert conn.execute("SELECT count(*) FROM queue_job WHERE leased_by IS NOT NULL").fetchone() == (2,)


def test_b19_no_write_notifies(conn):
    """substrate 920: a NOTIFY in each write transaction takes one lock for the whole server."""
    written = "".join(path.read_text() for path in sql._FOLDER.rglob("*.sql"))
    assert not re.search(r"\bNOTIFY\b|pg_notify", re.sub(r"--.*", "", written), re.IGNORECASE)
    triggers = conn.execute(
        "SELECT count(*) FROM pg_proc WHERE prosrc ~* 'pg_notify|\\mnotify\\M' AND pronamespace = 'public'::regnamespace"
    )
    assert triggers.fetchone() == (0,)


def test_b24_a_client_whose_clock_runs_an_hour_ahead_takes_no_live_lease(conn, monkeypatch):
    """MailFathom 1989, mlflow 25199: a lease was stamped and judged with the process clock."""
    import time

    add_request(conn, Kind.INPUT_PROOF, Status.PROCESSING)
    leases.open_lease(conn, RESOURCE)
    assert leases.claim_lease(conn, RESOURCE, "one", 0, 30, gone=False, how="free") == 1
    assert len(leased(conn, SEND)) == 1
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 3600)
    with connect("worker") as ahead:
        ahead.execute("SET TimeZone = 'Asia/Kathmandu'")
        assert leases.claim_lease(ahead, RESOURCE, "two", 1, 30, gone=False, how="expired") is None
        assert leased(ahead, SEND, owner="two") == []


def test_b25_what_commits_late_is_not_skipped_by_the_queue(two_conns):
    """kamu 1398, eventuous 222: "id > last seen" over a sequence skips what commits late."""
    slow, quick = two_conns
    account = insert_account(quick)
    turns = queue.Turns(SEND)
    with slow.transaction():
        enqueue_jobs(slow, SEND, [(Subject(Kind.INPUT_PROOF, 1), account)])  # the lower id, not yet committed
        enqueue_jobs(quick, SEND, [(Subject(Kind.INPUT_PROOF, 2), account)])
        seen = queue.lease_jobs(quick, SEND, 10, "one", 30, turns=turns)
        assert [job.subject.id for job in seen] == [2]
        assert queue.lease_jobs(quick, SEND, 10, "one", 30, turns=turns) == []
    (late,) = queue.lease_jobs(quick, SEND, 10, "one", 30, turns=turns)
    assert late.subject.id == 1
    assert late.receipt.job_id < seen[0].receipt.job_id


def test_b25_what_commits_late_is_not_skipped_by_readers_of_the_log(two_conns):
    """The same for staged envelopes: their place in the log is given under a lock, in the order in which they are seen."""
    slow, quick = two_conns
    payer = insert_account(quick)
    quick.execute("DELETE FROM staged_envelope")
    turn = PublishTurn(scene.PUBLISHER, batch=10)
    process = SimpleNamespace(conn=quick, stopping=lambda: False)
    with slow.transaction():
        early = scene.stage(slow, payer, b"early")
        later = scene.stage(quick, payer, b"later")
        assert early < later
        assert turn.run(process) == 1
        (seen,) = scene.stored(quick, scene.PUBLISHER)
    assert turn.run(process) == 1
    assert [one for one in scene.stored(quick, scene.PUBLISHER) if one > seen] == [seen + 1]
    assert quick.execute(
        "SELECT payload FROM envelope_blob WHERE source_id = %s ORDER BY position", (scene.PUBLISHER,)
    ).fetchall() == [(b"later",), (b"early",)]


def test_lease_renewal_is_a_third_of_the_lease():
    """B3, B9: an extension interval above lease/3 makes healthy holders look stale."""
    assert settings.JOB_LEASE_SECONDS >= 3 * settings.RPC_TIMEOUT_SECONDS / 3
    assert settings.LEASE_SECONDS >= 3
