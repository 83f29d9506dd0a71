"""The native face: status mapping of design 3.4, problems, timeline, cancel, long-poll."""

from __future__ import annotations

import os
import threading
import time
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from requests_app.states import Kind, Status
from tests.api import bodies
from tests.api.conftest import KEY, OTHER_KEY, Api, issue_key
from tests.api.rows import counts, fill_queue, insert_job, insert_shares, insert_view, set_status
from tests.core.rows import insert_account, insert_request

KINDS = {
    Kind.INPUT_PROOF: ("/v1/input-proof", bodies.input_proof),
    Kind.PUBLIC_DECRYPT: ("/v1/public-decrypt", bodies.public_decrypt),
    Kind.USER_DECRYPT: ("/v1/user-decrypt", bodies.direct),
}
PUBLIC_RESULT = {"decrypted_value": "0x2a", "signatures": ["0x" + "ab" * 65], "extra_data": "0x00"}


def problem(response: Any, status: int, label: str) -> dict[str, Any]:
    assert response.status_code == status, response.content
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert body["status"] == status
    assert body["label"] == label
    assert body["type"] == f"urn:gateway-relayer:problem:{label}"
    assert body["request_id"] == response.headers["x-request-id"]
    return dict(body)


@pytest.mark.parametrize("kind", list(KINDS))
def test_post_then_get(api: Api, kind: Kind) -> None:
    path, body = KINDS[kind]
    response = api.post(path, body())
    assert response.status_code == 202
    job = response.json()
    status = "processing" if kind is Kind.INPUT_PROOF else "queued"
    assert job == {
        "ext_job_id": job["ext_job_id"],
        "status": status,
        "readiness_queue_size": 0,
        "tx_queue_size": 0,
        "accepted": None,
        "result": None,
    }
    assert response.headers["Location"] == f"{path}/{job['ext_job_id']}"
    assert int(response.headers["Retry-After"]) >= 1
    row = api.get(response.headers["Location"])
    assert row.status_code == 202
    assert (row.json()["status"], row.json()["kind"], row.json()["queue_position"]) == (status, kind.slug, 1)
    assert row.json()["created_at"].endswith("Z")
    assert "Retry-After" in row.headers


@pytest.mark.parametrize(
    "body", [bodies.direct(), bodies.delegated(), bodies.unified()], ids=["direct", "delegated", "v3"]
)
def test_user_decrypt_takes_all_three_forms(api: Api, body: dict[str, Any], settings: Any) -> None:
    settings.V3_SIGNATURE_CHECK = False
    assert api.post("/v1/user-decrypt", body).status_code == 202


def test_queue_sizes_and_position(api: Api, conn: psycopg.Connection[Any]) -> None:
    fill_queue(conn, "ready", Kind.PUBLIC_DECRYPT, 7)
    fill_queue(conn, "send", Kind.PUBLIC_DECRYPT, 5)
    job = api.post("/v1/public-decrypt", bodies.public_decrypt()).json()
    assert (job["readiness_queue_size"], job["tx_queue_size"]) == (7, 5)
    row = api.get(f"/v1/public-decrypt/{job['ext_job_id']}").json()
    assert (row["queue_position"], row["readiness_queue_size"], row["tx_queue_size"]) == (8, 8, 5)


@pytest.mark.parametrize(
    ("status", "http"),
    [
        (Status.QUEUED, 202),
        (Status.PROCESSING, 202),
        (Status.TX_IN_FLIGHT, 202),
        (Status.RECEIPT_RECEIVED, 202),
        (Status.NEEDS_REVIEW, 202),
        (Status.COMPLETED, 200),
        (Status.TIMED_OUT, 504),
        (Status.FAILURE, 400),
    ],
)
def test_status_mapping(api: Api, alice: int, conn: psycopg.Connection[Any], status: Status, http: int) -> None:
    columns: dict[str, Any] = {"res": PUBLIC_RESULT} if status is Status.COMPLETED else {}
    if status in (Status.FAILURE, Status.TIMED_OUT):
        columns = {"fail_label": "response_timed_out", "fail_detail": "no answer"}
    if status is Status.FAILURE:
        columns = {"fail_label": "protocol_paused", "fail_detail": "paused", "gw_req_tx_hash": b"\x01" * 32}
    job = insert_job(conn, alice, Kind.PUBLIC_DECRYPT, status, **columns)
    response = api.get(f"/v1/public-decrypt/{job}")
    assert response.status_code == http
    assert response.headers["content-type"] == "application/json"
    row = response.json()
    assert (row["ext_job_id"], row["status"]) == (str(job), status.value)
    assert ("Retry-After" in response.headers) is (http == 202)
    assert row["result"] == (PUBLIC_RESULT if http == 200 else None)
    expected = {504: ("response_timed_out", "no answer"), 400: ("protocol_paused", "paused")}
    assert (row["err_label"], row["err_reason"]) == expected.get(http, (None, None))
    assert row["gw_req_tx_hash"] == ("0x" + "01" * 32 if status is Status.FAILURE else None)


def test_the_stored_reason_is_shown_as_it_is(api: Api, alice: int, conn: psycopg.Connection[Any]) -> None:
    columns = {
        "fail_label": "validation_failed",
        "fail_detail": "reverted: it expired",
        "fail_selector": b"\x30\x34\x80\x40",
    }
    job = insert_job(conn, alice, Kind.USER_DECRYPT, Status.FAILURE, **columns)
    row = api.get(f"/v1/user-decrypt/{job}").json()
    assert (row["err_label"], row["err_reason"]) == ("validation_failed", "reverted: it expired")


def test_shares_have_prefixes(api: Api, alice: int, conn: psycopg.Connection[Any]) -> None:
    reference = os.urandom(32)
    job = insert_job(conn, alice, Kind.USER_DECRYPT, Status.COMPLETED, gw_reference_id=reference, resolved_threshold=2)
    insert_shares(conn, reference, [1, 0, 2])
    row = api.get(f"/v1/user-decrypt/{job}").json()
    assert row["result"] == {
        "shares": [
            {"payload": f"0xaa0{index}", "signature": "0x" + f"0{index}" * 65, "extra_data": "0x00"} for index in (0, 1)
        ]
    }
    assert row["gw_reference_id"] == "0x" + reference.hex()


def test_a_completed_duplicate_answers_its_result(api: Api, conn: psycopg.Connection[Any]) -> None:
    first = api.post("/v1/public-decrypt", bodies.public_decrypt()).json()["ext_job_id"]
    set_status(conn, Kind.PUBLIC_DECRYPT, first, Status.COMPLETED, res=PUBLIC_RESULT)
    again = api.post("/v1/public-decrypt", bodies.public_decrypt())
    assert again.status_code == 202
    assert again.json() == {
        "ext_job_id": first,
        "status": "completed",
        "readiness_queue_size": 1,
        "tx_queue_size": 0,
        "accepted": None,
        "result": PUBLIC_RESULT,
    }
    rejected = api.post("/v1/input-proof", bodies.input_proof()).json()["ext_job_id"]
    set_status(conn, Kind.INPUT_PROOF, rejected, Status.COMPLETED, accepted=False)
    assert api.post("/v1/input-proof", bodies.input_proof()).json()["accepted"] is False


def test_problems_of_a_post(api: Api, conn: psycopg.Connection[Any]) -> None:
    assert "errors" not in problem(api.post("/v1/input-proof", b"{"), 400, "malformed_json")
    missing = problem(api.post("/v1/input-proof", {}), 400, "missing_fields")
    assert missing["errors"] == [{"field": "contractChainId", "issue": "Required but missing"}]
    invalid = problem(
        api.post("/v1/public-decrypt", bodies.public_decrypt(ciphertextHandles=[])), 400, "validation_failed"
    )
    assert invalid["errors"] == [{"field": "ciphertextHandles", "issue": "Must not be empty"}]
    problem(
        api.post("/v1/public-decrypt", bodies.public_decrypt(ciphertextHandles=[bodies.FOREIGN])),
        400,
        "host_chain_id_not_supported",
    )
    problem(api.post("/v1/public-decrypt", b" " * (2 * 1024 * 1024 + 1)), 400, "request_error")
    assert set(counts(conn).values()) == {0}


def test_full_queue(api: Api, conn: psycopg.Connection[Any], settings: Any) -> None:
    settings.QUEUE_CAPACITY, settings.QUEUE_SAFETY_MARGIN = 3, 1
    fill_queue(conn, "send", Kind.INPUT_PROOF, 2)
    response = api.post("/v1/input-proof", bodies.input_proof())
    problem(response, 429, "rate_limited")
    assert response.headers["Retry-After"] == "4"


def test_unknown_things(api: Api, bob: int, conn: psycopg.Connection[Any]) -> None:
    his = insert_job(conn, bob, Kind.PUBLIC_DECRYPT, Status.QUEUED)
    for job in (his, uuid4()):
        problem(api.get(f"/v1/public-decrypt/{job}"), 404, "not_found")
        problem(api.get(f"/v1/requests/{job}/timeline"), 404, "not_found")
        problem(api.post(f"/v1/requests/{job}/cancel"), 404, "not_found")
    problem(api.get("/v1/public-decrypt/nonsense"), 400, "validation_failed")
    for path in ("/v1", "/v1/", "/v1/nothing", "/v1/public-decrypt/"):
        problem(api.get(path), 404, "not_found")
        problem(api.post(path, {}), 404, "not_found")


def test_wrong_methods(api: Api) -> None:
    response = api.get("/v1/public-decrypt")
    problem(response, 405, "method_not_allowed")
    assert response.headers["Allow"] == "POST"


def test_timeline(api: Api, conn: psycopg.Connection[Any]) -> None:
    job = api.post("/v1/public-decrypt", bodies.public_decrypt()).json()["ext_job_id"]
    assert api.post(f"/v1/requests/{job}/cancel").status_code == 200
    body = api.get(f"/v1/requests/{job}/timeline").json()
    assert (body["ext_job_id"], body["kind"], body["status"]) == (job, "public-decrypt", "failure")
    assert [(step["verb"], step["from_status"], step["to_status"], step["actor"]) for step in body["transitions"]] == [
        ("submit", None, "queued", "api"),
        ("cancel", "queued", "failure", "api"),
    ]


@pytest.mark.parametrize("kind", list(KINDS))
def test_cancel_before_any_attempt(api: Api, conn: psycopg.Connection[Any], kind: Kind) -> None:
    path, body = KINDS[kind]
    job = api.post(path, body()).json()["ext_job_id"]
    response = api.post(f"/v1/requests/{job}/cancel")
    assert response.status_code == 200
    assert (response.json()["status"], response.json()["err_reason"]) == ("failure", "canceled by client")
    assert counts(conn)["queue_job"] == 0
    assert api.get(f"{path}/{job}").status_code == 400
    assert api.post(f"/v1/requests/{job}/cancel").status_code == 200  # again: still withdrawn


@pytest.mark.parametrize(
    "status", [Status.TX_IN_FLIGHT, Status.RECEIPT_RECEIVED, Status.NEEDS_REVIEW, Status.COMPLETED, Status.TIMED_OUT]
)
def test_cancel_too_late(api: Api, alice: int, conn: psycopg.Connection[Any], status: Status) -> None:
    job = insert_job(conn, alice, Kind.USER_DECRYPT, status)
    problem(api.post(f"/v1/requests/{job}/cancel"), 409, "not_cancelable")
    assert api.get(f"/v1/user-decrypt/{job}").json()["status"] == status.value


def test_cancel_of_a_shared_row_ends_one_view(api: Api, alice: int, bob: int, conn: psycopg.Connection[Any]) -> None:
    row = insert_request(conn, Kind.PUBLIC_DECRYPT, Status.QUEUED)
    hers, his = (insert_view(conn, account, Kind.PUBLIC_DECRYPT, row) for account in (alice, bob))
    assert api.post(f"/v1/requests/{hers}/cancel").json()["status"] == "failure"
    assert api.get(f"/v1/public-decrypt/{hers}").status_code == 400
    assert Api(OTHER_KEY).get(f"/v1/public-decrypt/{his}").json()["status"] == "queued"


@pytest.mark.parametrize("wait", ["-1", "soon", "", "nan", "1e3", "inf", "99999"])
def test_wait_must_be_seconds(api: Api, alice: int, conn: psycopg.Connection[Any], wait: str) -> None:
    job = insert_job(conn, alice, Kind.PUBLIC_DECRYPT, Status.QUEUED)
    found = problem(api.get(f"/v1/public-decrypt/{job}?wait={wait}"), 400, "validation_failed")
    assert found["errors"] == [{"field": "wait", "issue": "Must be a number of seconds"}]


def test_wait_of_a_final_row_is_no_wait(api: Api, alice: int, conn: psycopg.Connection[Any]) -> None:
    job = insert_job(conn, alice, Kind.PUBLIC_DECRYPT, Status.COMPLETED, res=PUBLIC_RESULT)
    started = time.monotonic()
    assert api.get(f"/v1/public-decrypt/{job}?wait=25").status_code == 200
    assert time.monotonic() - started < 20


def test_long_poll_answers_when_the_row_is_final(committed: psycopg.Connection[Any]) -> None:
    account = insert_account(committed, "alice")
    issue_key(committed, account, KEY)
    job = insert_job(committed, account, Kind.PUBLIC_DECRYPT, Status.RECEIPT_RECEIVED)
    finish = (committed, Kind.PUBLIC_DECRYPT, job, Status.COMPLETED)
    done = threading.Timer(0.3, set_status, finish, {"res": PUBLIC_RESULT})
    started = time.monotonic()
    done.start()
    response = Api().get(f"/v1/public-decrypt/{job}?wait=20")
    elapsed = time.monotonic() - started
    done.join()
    assert response.status_code == 200
    assert response.json()["result"] == PUBLIC_RESULT
    assert 0.3 <= elapsed < 19


def test_long_poll_that_runs_out_answers_the_state(committed: psycopg.Connection[Any]) -> None:
    account = insert_account(committed, "alice")
    issue_key(committed, account, KEY)
    job = insert_job(committed, account, Kind.PUBLIC_DECRYPT, Status.RECEIPT_RECEIVED)
    response = Api().get(f"/v1/public-decrypt/{job}?wait=0.3")
    assert (response.status_code, response.json()["status"]) == (202, "receipt_received")
