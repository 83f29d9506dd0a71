"""POST on /v2: the pipeline of fhevm_http 7, dedup of 8.2, 20.1 (#1, #11 to #17, #25) and 20.5, over the real database."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest
from pytest_django import Settings

from requests_app.states import Kind, Status
from tests.api import bodies
from tests.api.conftest import OTHER_KEY, Api
from tests.api.rows import counts, fill_queue, set_status

ROUTES = {
    "IP": ("/v2/input-proof", bodies.input_proof, Kind.INPUT_PROOF, "3"),
    "PD": ("/v2/public-decrypt", bodies.public_decrypt, Kind.PUBLIC_DECRYPT, "8"),
    "UD": ("/v2/user-decrypt", bodies.direct, Kind.USER_DECRYPT, "8"),
    "DD": ("/v2/delegated-user-decrypt", bodies.delegated, Kind.USER_DECRYPT, "8"),
}
ALL = pytest.mark.parametrize("route", list(ROUTES))
DECRYPTS = pytest.mark.parametrize("route", ["PD", "UD", "DD"])


def job_id(response: Any) -> str:
    assert response.status_code == 202, response.content
    body = response.json()
    assert set(body) == {"status", "requestId", "result"}
    assert body["status"] == "queued"
    assert UUID(body["requestId"]).version == 4
    assert set(body["result"]) == {"jobId"}
    return str(UUID(body["result"]["jobId"]))


def error(response: Any, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.content
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert body["status"] == "failed"
    UUID(body["requestId"])
    return dict(body["error"])


@ALL
def test_20_1_1_valid_single_request(api: Api, conn: psycopg.Connection[Any], route: str) -> None:
    path, body, kind, seconds = ROUTES[route]
    response = api.post(path, body())
    job = job_id(response)
    assert response.headers["Retry-After"] == seconds
    pending = api.get(f"{path}/{job}")
    assert pending.status_code == 202
    assert set(pending.json()) == {"status", "requestId"}
    assert pending.json()["status"] == "queued"
    assert pending.json()["requestId"] != response.json()["requestId"]
    found = counts(conn)
    assert found[kind.table] == found["request_payload"] == found["request_client"] == found["queue_job"] == 1


@ALL
@pytest.mark.parametrize(
    "status",
    [
        Status.QUEUED,
        Status.PROCESSING,
        Status.TX_IN_FLIGHT,
        Status.RECEIPT_RECEIVED,
        Status.NEEDS_REVIEW,
        Status.COMPLETED,
    ],
)
def test_20_1_11_same_body_twice(api: Api, conn: psycopg.Connection[Any], route: str, status: Status) -> None:
    path, body, kind, seconds = ROUTES[route]
    first = job_id(api.post(path, body()))
    set_status(conn, kind, first, status)
    again = api.post(path, body())
    assert job_id(again) == first
    assert int(again.headers["Retry-After"]) >= int(seconds)
    assert counts(conn)[kind.table] == 1


@ALL
def test_20_1_12_different_bodies(api: Api, route: str) -> None:
    path, body, _kind, _seconds = ROUTES[route]
    assert job_id(api.post(path, body())) != job_id(api.post(path, body(extraData="0x00", **_changed(route))))


def _changed(route: str) -> dict[str, Any]:
    if route == "IP":
        return {"ciphertextWithInputVerification": "beef"}
    return {"ciphertextHandles": [bodies.H2]} if route == "PD" else {"publicKey": "ef01"}


@ALL
@pytest.mark.parametrize("status", [Status.FAILURE, Status.TIMED_OUT])
def test_20_1_13_a_failed_request_starts_anew(
    api: Api, conn: psycopg.Connection[Any], route: str, status: Status
) -> None:
    path, body, kind, _seconds = ROUTES[route]
    first = job_id(api.post(path, body()))
    set_status(conn, kind, first, status, fail_label="internal_server_error", fail_detail="it broke")
    second = job_id(api.post(path, body()))
    assert second != first
    assert api.get(f"{path}/{second}").status_code == 202
    old = api.get(f"{path}/{first}")
    assert old.status_code == (500 if status is Status.FAILURE else 503)
    assert old.json()["error"]["message"] == "it broke"


@ALL
def test_20_1_14_15_16_17_bad_bodies_write_nothing(api: Api, conn: psycopg.Connection[Any], route: str) -> None:
    path, body, _kind, _seconds = ROUTES[route]
    assert error(api.post(path, b"not json"), 400) == {"label": "malformed_json", "message": "Invalid JSON format"}
    assert error(api.post(path, bodies.raw(body())[:-1]), 400)["label"] == "malformed_json"
    invalid = error(api.post(path, body(extraData="invalid")), 400)
    assert invalid["label"] == "validation_failed"
    assert [detail["field"] for detail in invalid["details"]] == ["extraData"]
    missing = body()
    del missing["extraData"]
    assert error(api.post(path, missing), 400) == {
        "label": "missing_fields",
        "message": "Missing 1 required field in the request: extraData",
        "details": [{"field": "extraData", "issue": "Required but missing"}],
    }
    assert set(counts(conn).values()) == {0}


@DECRYPTS
def test_20_1_25_handle_of_an_unknown_chain(api: Api, conn: psycopg.Connection[Any], route: str) -> None:
    path, body, _kind, _seconds = ROUTES[route]
    change: dict[str, Any] = (
        {"ciphertextHandles": [bodies.H1, bodies.FOREIGN]}
        if route == "PD"
        else {"handleContractPairs": [{"handle": bodies.FOREIGN, "contractAddress": bodies.CONTRACT}]}
    )
    assert error(api.post(path, body(**change)), 400) == {
        "label": "host_chain_id_not_supported",
        "message": "Host chain ID 99999 is not supported by this relayer",
    }
    assert set(counts(conn).values()) == {0}


def test_20_5_a_new_signature_of_the_same_content_joins(api: Api) -> None:
    first = job_id(api.post("/v2/user-decrypt", bodies.direct()))
    assert job_id(api.post("/v2/user-decrypt", bodies.direct(signature="cd" * 65))) == first


def test_20_5_duplicate_of_a_rejected_proof(api: Api, conn: psycopg.Connection[Any]) -> None:
    first = job_id(api.post("/v2/input-proof", bodies.input_proof()))
    set_status(conn, Kind.INPUT_PROOF, first, Status.COMPLETED, accepted=False)
    assert job_id(api.post("/v2/input-proof", bodies.input_proof())) == first


@pytest.mark.parametrize(
    ("path", "body", "kind", "queue"),
    [
        ("/v2/input-proof", bodies.input_proof(), Kind.INPUT_PROOF, "send"),
        ("/v2/public-decrypt", bodies.public_decrypt(), Kind.PUBLIC_DECRYPT, "ready"),
        ("/v2/public-decrypt", bodies.public_decrypt(), Kind.PUBLIC_DECRYPT, "send"),
    ],
)
def test_20_5_a_full_queue_bounces_only_new_content(
    api: Api, conn: psycopg.Connection[Any], settings: Settings, path: str, body: Any, kind: Kind, queue: str
) -> None:
    settings.QUEUE_CAPACITY, settings.QUEUE_SAFETY_MARGIN = 30, 10
    active = job_id(api.post(path, body))
    fill_queue(conn, queue, kind, 20)
    fresh = {**body, "ciphertextHandles": [bodies.H2], "ciphertextWithInputVerification": "00"}
    refused = api.post(path, fresh)
    assert error(refused, 429) == {
        "label": "rate_limited",
        "message": "Server is experiencing high processing load: relayer is currently processing too many requests",
    }
    assert refused.headers["Retry-After"] == "4"
    assert counts(conn)[kind.table] == 1
    assert job_id(api.post(path, body)) == active


def test_retry_after_follows_the_queue(api: Api, conn: psycopg.Connection[Any]) -> None:
    fill_queue(conn, "send", Kind.INPUT_PROOF, 100)
    assert api.post("/v2/input-proof", bodies.input_proof()).headers["Retry-After"] == "9"
    fill_queue(conn, "ready", Kind.PUBLIC_DECRYPT, 1000)
    fill_queue(conn, "send", Kind.PUBLIC_DECRYPT, 1000)
    assert api.post("/v2/public-decrypt", bodies.public_decrypt()).headers["Retry-After"] == "87"


def test_a_body_of_two_mebibytes_is_read_and_one_byte_more_is_not(api: Api, conn: psycopg.Connection[Any]) -> None:
    frame = len(bodies.raw(bodies.input_proof(ciphertextWithInputVerification="")))
    size = 2 * 1024 * 1024 - frame
    proof = bodies.raw(bodies.input_proof(ciphertextWithInputVerification="ab" * (size // 2)))
    padded = proof + b" " * (2 * 1024 * 1024 - len(proof))
    too_large = error(api.post("/v2/input-proof", padded + b" "), 400)
    assert too_large == {"label": "request_error", "message": "Failed to read request body"}
    assert counts(conn)["input_proof_req"] == 0
    job_id(api.post("/v2/input-proof", padded))


def test_two_clients_share_the_row_but_not_the_id(api: Api, bob: int, conn: psycopg.Connection[Any]) -> None:
    hers = job_id(api.post("/v2/public-decrypt", bodies.public_decrypt()))
    his = job_id(Api(OTHER_KEY).post("/v2/public-decrypt", bodies.public_decrypt()))
    assert hers != his
    assert counts(conn)["public_decrypt_req"] == 1
    assert api.get(f"/v2/public-decrypt/{hers}").status_code == 202
    assert Api(OTHER_KEY).get(f"/v2/public-decrypt/{his}").status_code == 202
    assert api.get(f"/v2/public-decrypt/{his}").status_code == 404
    assert Api(OTHER_KEY).get(f"/v2/public-decrypt/{hers}").status_code == 404
