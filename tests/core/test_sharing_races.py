"""Many clients at one row: who joins, leaves or posts at the same moment gets an answer, and nobody ends another one's request."""

from __future__ import annotations

import threading

import pytest

from requests_app import services
from requests_app.services import CancelOutcome, Denial, Submission, SubmitOutcome, cancel, submit
from requests_app.states import Kind, ReqType, Status
from requests_app.store.session import connect
from tests.core.rows import insert_account, insert_request, read_request
from tests.core.test_submit import public
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def between(monkeypatch):
    """Something that happens after a cancel has ended its own view and before it decides about the row."""

    def install(event):
        real = services.store.withdraw_view

        def withdraw_then(*args):
            monkeypatch.undo()
            ended = real(*args)
            event()
            return ended

        monkeypatch.setattr(services.store, "withdraw_view", withdraw_then)

    return install


def test_a_client_that_joins_during_a_cancel_keeps_its_request(conn, between):
    """The row used to fail under it, as "canceled by client", with a 202 in its hands."""
    leaver, joiner, body = insert_account(conn), insert_account(conn), public()
    mine = submit(conn, body, client_id=leaver)
    with connect("worker") as other:
        between(lambda: submit(other, body, client_id=joiner))
        assert cancel(conn, client_id=leaver, ext_job_id=mine.ext_job_id) is CancelOutcome.VIEW_ENDED
    assert read_request(conn, Kind.PUBLIC_DECRYPT, mine.request_id).status == "queued"


def test_two_clients_that_leave_at_once_end_the_row(conn, between):
    """Each used to see the other still there: the row went on for nobody until its deadline."""
    first, second, body = insert_account(conn), insert_account(conn), public()
    jobs = [submit(conn, body, client_id=account) for account in (first, second)]
    outcomes = []
    with connect("worker") as other:
        between(lambda: outcomes.append(cancel(other, client_id=second, ext_job_id=jobs[1].ext_job_id)))
        outcomes.append(cancel(conn, client_id=first, ext_job_id=jobs[0].ext_job_id))
    assert sorted(outcomes) == [CancelOutcome.CANCELED, CancelOutcome.VIEW_ENDED]
    assert read_request(conn, Kind.PUBLIC_DECRYPT, jobs[0].request_id).status == "failure"


def test_a_post_during_a_cancel_waits_for_its_end_and_begins_anew(conn, monkeypatch):
    leaver, joiner, body = insert_account(conn), insert_account(conn), public()
    mine = submit(conn, body, client_id=leaver)
    results = []
    real = services.store.drop_job

    def while_the_row_is_locked(*args):
        thread.start()
        with connect("worker") as observer:
            wait_until(lambda: _waits_for_a_lock(observer), 60, "the POST waits for the cancel")
        return real(*args)

    def join():
        with connect("worker", name="joiner") as other:
            results.append(submit(other, body, client_id=joiner))

    thread = threading.Thread(target=join)
    monkeypatch.setattr(services.store, "drop_job", while_the_row_is_locked)
    assert cancel(conn, client_id=leaver, ext_job_id=mine.ext_job_id) is CancelOutcome.CANCELED
    thread.join(60)
    assert results[0].outcome is SubmitOutcome.INSERTED
    assert results[0].request_id != mine.request_id
    assert read_request(conn, Kind.PUBLIC_DECRYPT, results[0].request_id).status == "queued"


def _waits_for_a_lock(observer):
    found = observer.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'relayer-joiner' AND wait_event_type = 'Lock'"
    ).fetchone()
    return found[0] == 1


def test_two_equal_posts_with_a_bad_signature_beside_a_live_twin_are_both_answered(conn):
    """The second one used to be a 500: the view of its own client, committed meanwhile, was not in its snapshot."""
    account = insert_account(conn)
    insert_request(conn, Kind.USER_DECRYPT, Status.QUEUED, int_job_id=b"\7" * 32)
    denied = Submission(Kind.USER_DECRYPT, ReqType.DIRECT, b"\7" * 32, {}, Denial("validation_failed", "bad"))
    results = []

    def post():
        with connect("worker", name="joiner") as other:
            results.append(submit(other, denied, client_id=account))

    thread = threading.Thread(target=post)
    with connect("worker") as observer, conn.transaction():
        first = submit(conn, denied, client_id=account)
        thread.start()
        wait_until(lambda: _waits_for_a_lock(observer), 60, "the second POST meets the first one's view")
    thread.join(60)
    assert [result.ext_job_id for result in results] == [first.ext_job_id]
