"""POST in one statement: one row a content, one job, one view a client, whatever races."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID, uuid4

import pytest

from requests_app.identity import content_hash
from requests_app.selectors import find_job, find_statuses, timeline
from requests_app.services import CancelOutcome, Submission, SubmitOutcome, cancel, submit
from requests_app.states import REQUEST_KINDS, Kind, ReqType, Status
from requests_app.store.session import connect
from tests.core.rows import insert_account, insert_request, read_request

pytestmark = pytest.mark.django_db(transaction=True)


def public(handle: bytes | None = None) -> Submission:
    body = {"handles": ["0x" + (handle or os.urandom(32)).hex()], "extra_data": "0x00"}
    return Submission(Kind.PUBLIC_DECRYPT, None, content_hash(Kind.PUBLIC_DECRYPT, None, body), body)


def counts(conn, *tables):
    return [conn.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables]


WRITTEN = ("public_decrypt_req", "request_payload", "queue_job", "req_transition", "request_client")


def test_a_new_request_is_row_payload_transition_job_and_view(conn):
    account = insert_account(conn)
    result = submit(conn, public(), client_id=account)
    assert (result.outcome, result.status) == (SubmitOutcome.INSERTED, Status.QUEUED)
    assert counts(conn, *WRITTEN) == [1, 1, 1, 1, 1]
    job = find_job(conn, client_id=account, ext_job_id=result.ext_job_id, kind=Kind.PUBLIC_DECRYPT, placed=True)
    assert (job.status, job.queue_position, job.readiness_queue_size) == (Status.QUEUED, 1, 1)
    assert [entry.verb for entry in timeline(conn, Kind.PUBLIC_DECRYPT, result.request_id)] == ["submit"]


def test_an_input_proof_starts_in_processing_with_its_own_request_id(conn):
    body = {
        "contract_chain_id": "8009",
        "contract": "0x" + "11" * 20,
        "user": "0x" + "22" * 20,
        "ciphertext": "0x01",
        "extra_data": "0x00",
    }
    submission = Submission(Kind.INPUT_PROOF, None, content_hash(Kind.INPUT_PROOF, None, body), body)
    result = submit(conn, submission, client_id=insert_account(conn))
    row = read_request(conn, Kind.INPUT_PROOF, result.request_id)
    assert (row.status, row.int_request_id.version) == ("processing", 7)
    assert conn.execute("SELECT queue FROM queue_job").fetchone() == ("send",)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (Status.QUEUED, SubmitOutcome.DUPLICATE_PROCESSING),
        (Status.PROCESSING, SubmitOutcome.DUPLICATE_PROCESSING),
        (Status.TX_IN_FLIGHT, SubmitOutcome.DUPLICATE_PROCESSING),
        (Status.RECEIPT_RECEIVED, SubmitOutcome.DUPLICATE_PROCESSING),
        (Status.NEEDS_REVIEW, SubmitOutcome.DUPLICATE_PROCESSING),
        (Status.COMPLETED, SubmitOutcome.DUPLICATE_COMPLETED),
        (Status.FAILURE, SubmitOutcome.INSERTED),
        (Status.TIMED_OUT, SubmitOutcome.INSERTED),
    ],
)
def test_the_dedup_table_in_every_state(conn, status, outcome):
    submission = public()
    existing = insert_request(conn, Kind.PUBLIC_DECRYPT, status, int_job_id=submission.int_job_id)
    before = read_request(conn, Kind.PUBLIC_DECRYPT, existing)
    result = submit(conn, submission, client_id=insert_account(conn))
    assert result.outcome is outcome
    assert (result.request_id == existing) == (outcome is not SubmitOutcome.INSERTED)
    assert read_request(conn, Kind.PUBLIC_DECRYPT, existing) == before


def test_racing_identical_posts_make_one_row_and_one_view_a_client(conn):
    """16 connections release 25 bodies together for 4 clients: one row, job, payload and transition a body."""
    accounts = [insert_account(conn) for _ in range(4)]
    bodies = [public() for _ in range(25)]
    barrier = threading.Barrier(16)

    def post_all(number: int) -> list[tuple[bool, UUID]]:
        with connect() as own:
            answers = []
            for body in bodies:
                barrier.wait(timeout=120)
                result = submit(own, body, client_id=accounts[number % 4])
                answers.append((result.outcome is SubmitOutcome.INSERTED, result.ext_job_id))
            return answers

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(post_all, range(16)))
    assert counts(conn, *WRITTEN) == [25, 25, 25, 25, 100]
    for number in range(25):
        assert sum(answer[number][0] for answer in answers) == 1
        assert len({answer[number][1] for answer in answers}) == 4


def test_a_full_queue_bounces_new_content_and_still_answers_its_twin(conn, settings):
    account, known = insert_account(conn), public()
    first = submit(conn, known, client_id=account)
    settings.QUEUE_CAPACITY, settings.QUEUE_SAFETY_MARGIN = 2, 1
    refused = submit(conn, public(), client_id=account)
    assert (refused.outcome, refused.ext_job_id) == (SubmitOutcome.QUEUE_FULL, None)
    assert submit(conn, known, client_id=account).ext_job_id == first.ext_job_id
    assert counts(conn, *WRITTEN) == [1, 1, 1, 1, 1]


def test_i11_a_disabled_account_writes_nothing_even_on_a_known_body(conn):
    account, body = insert_account(conn), public()
    first = submit(conn, body, client_id=account)
    conn.execute("UPDATE client_account SET status = 'disabled'")
    assert submit(conn, body, client_id=account).outcome is SubmitOutcome.ACCOUNT_DISABLED
    assert submit(conn, public(), client_id=account).outcome is SubmitOutcome.ACCOUNT_DISABLED
    assert cancel(conn, client_id=account, ext_job_id=first.ext_job_id) is CancelOutcome.ACCOUNT_DISABLED
    assert counts(conn, *WRITTEN) == [1, 1, 1, 1, 1]


def test_a_strangers_job_is_not_found(conn):
    owner, stranger = insert_account(conn), insert_account(conn)
    job = submit(conn, public(), client_id=owner).ext_job_id
    assert find_job(conn, client_id=stranger, ext_job_id=job) is None
    assert cancel(conn, client_id=stranger, ext_job_id=job) is CancelOutcome.NOT_FOUND
    assert find_job(conn, client_id=owner, ext_job_id=uuid4()) is None


def test_cancel_ends_the_row_only_when_nobody_shares_it(conn):
    first, second, body = insert_account(conn), insert_account(conn), public()
    mine, other = (submit(conn, body, client_id=account) for account in (first, second))
    assert cancel(conn, client_id=first, ext_job_id=mine.ext_job_id) is CancelOutcome.VIEW_ENDED
    assert read_request(conn, Kind.PUBLIC_DECRYPT, mine.request_id).status == "queued"
    assert cancel(conn, client_id=second, ext_job_id=other.ext_job_id) is CancelOutcome.CANCELED
    row = read_request(conn, Kind.PUBLIC_DECRYPT, mine.request_id)
    assert (row.status, row.fail_detail) == ("failure", "canceled by client")
    assert counts(conn, "queue_job") == [0]


def test_cancel_comes_too_late_once_bytes_are_signed(conn):
    account = insert_account(conn)
    job = submit(conn, public(), client_id=account)
    conn.execute("UPDATE public_decrypt_req SET status = 'tx_in_flight'")
    assert cancel(conn, client_id=account, ext_job_id=job.ext_job_id) is CancelOutcome.TOO_LATE
    assert find_job(conn, client_id=account, ext_job_id=job.ext_job_id).canceled_at is None


def test_statuses_of_many_kinds_come_by_one_statement(conn):
    rows = [(kind, insert_request(conn, kind, Status.PROCESSING)) for kind in REQUEST_KINDS]
    assert find_statuses(conn, [*rows, (Kind.USER_DECRYPT, 999_999)]) == {
        **dict.fromkeys(rows, Status.PROCESSING),
        (Kind.USER_DECRYPT, 999_999): None,
    }


def test_a_unified_user_decrypt_keeps_its_form(conn):
    body = {
        "type": "unified",
        "handles": [{"handle": "0x" + "01" * 32, "contract": "0x" + "11" * 20, "owner": "0x" + "22" * 20}],
        "allowed_contracts": [],
        "public_key": "0xabcd",
        "user": "0x" + "22" * 20,
        "extra_data": "0x00",
    }
    submission = Submission(Kind.USER_DECRYPT, ReqType.UNIFIED, os.urandom(32), body)
    result = submit(conn, submission, client_id=insert_account(conn))
    assert read_request(conn, Kind.USER_DECRYPT, result.request_id).req_type == "unified"
