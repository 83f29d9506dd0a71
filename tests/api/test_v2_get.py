"""GET on /v2 and /v3: fhevm_http 10, result shapes of 6, failure labels by typed columns, ids of 1, keyurl of 14."""

from __future__ import annotations

import os
from typing import Any
from uuid import UUID

import psycopg
import pytest

from requests_app.api import complaints
from requests_app.api.failures import BY_SELECTOR
from requests_app.states import REQUEST_KINDS, Kind, Status
from tests.api.conftest import Api
from tests.api.rows import insert_job, insert_shares
from workers.chain import reverts

PATH = {
    Kind.INPUT_PROOF: "/v2/input-proof/",
    Kind.PUBLIC_DECRYPT: "/v2/public-decrypt/",
    Kind.USER_DECRYPT: "/v2/user-decrypt/",
}
DECRYPTS = [Kind.USER_DECRYPT, Kind.PUBLIC_DECRYPT]
SIGNATURE_ERROR = {
    "label": "validation_failed",
    "message": "Validation failed for 1 field(s)",
    "details": [{"field": "signature", "issue": "Signature is invalid"}],
}


def error(response: Any, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.content
    body = response.json()
    assert set(body) == {"status", "requestId", "error"}
    assert body["status"] == "failed"
    assert "Retry-After" not in response.headers
    return dict(body["error"])


def result(response: Any) -> dict[str, Any]:
    assert response.status_code == 200, response.content
    body = response.json()
    assert set(body) == {"status", "requestId", "result"}
    assert body["status"] == "succeeded"
    UUID(body["requestId"])
    return dict(body["result"])


@pytest.mark.parametrize(
    ("kind", "status", "seconds"),
    [
        (Kind.USER_DECRYPT, Status.QUEUED, "8"),
        (Kind.PUBLIC_DECRYPT, Status.PROCESSING, "8"),
        (Kind.INPUT_PROOF, Status.PROCESSING, "3"),
        (Kind.INPUT_PROOF, Status.TX_IN_FLIGHT, "3"),
        (Kind.USER_DECRYPT, Status.TX_IN_FLIGHT, "8"),
        (Kind.PUBLIC_DECRYPT, Status.RECEIPT_RECEIVED, "4"),
        (Kind.USER_DECRYPT, Status.NEEDS_REVIEW, "300"),
    ],
)
def test_pending(api: Api, alice: int, conn: psycopg.Connection[Any], kind: Kind, status: Status, seconds: str) -> None:
    job = insert_job(conn, alice, kind, status)
    response = api.get(f"{PATH[kind]}{job}")
    assert response.status_code == 202
    assert response.headers["Retry-After"] == seconds
    assert response.json()["status"] == "queued"
    assert set(response.json()) == {"status", "requestId"}


def test_pending_backs_off_by_the_time_spent_waiting(api: Api, alice: int, conn: psycopg.Connection[Any]) -> None:
    job = insert_job(conn, alice, Kind.USER_DECRYPT, Status.RECEIPT_RECEIVED)
    conn.execute("UPDATE user_decrypt_req SET state_entered_at = clock_timestamp() - interval '130 seconds'")
    assert api.get(f"/v2/user-decrypt/{job}").headers["Retry-After"] == "30"


def test_public_result(api: Api, alice: int, conn: psycopg.Connection[Any]) -> None:
    stored = {"decrypted_value": "0x" + "00" * 31 + "2a", "signatures": ["0x" + "ab" * 65], "extra_data": "0x00"}
    job = insert_job(conn, alice, Kind.PUBLIC_DECRYPT, Status.COMPLETED, res=stored)
    first = api.get(f"/v2/public-decrypt/{job}")
    assert result(first) == {"decryptedValue": "00" * 31 + "2a", "signatures": ["ab" * 65], "extraData": "0x00"}
    again = api.get(f"/v2/public-decrypt/{job}")
    assert result(again) == result(first)
    assert again.json()["requestId"] != first.json()["requestId"]


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        (None, "Internal error: completed request missing response data"),
        ({"signatures": []}, "Failed to deserialize response data"),
    ],
)
def test_public_result_that_cannot_be_read(
    api: Api, alice: int, conn: psycopg.Connection[Any], stored: Any, message: str
) -> None:
    job = insert_job(conn, alice, Kind.PUBLIC_DECRYPT, Status.COMPLETED, res=stored)
    assert error(api.get(f"/v2/public-decrypt/{job}"), 500) == {"label": "internal_server_error", "message": message}


def test_accepted_proof(api: Api, alice: int, conn: psycopg.Connection[Any]) -> None:
    stored = {"handles": ["0x" + "01" * 32], "signatures": ["0x" + "ab" * 65]}
    job = insert_job(conn, alice, Kind.INPUT_PROOF, Status.COMPLETED, accepted=True, res=stored)
    assert result(api.get(f"/v2/input-proof/{job}")) == {"accepted": True, "extraData": "0x00", **stored}


@pytest.mark.parametrize(
    ("accepted", "stored"),
    [(False, None), (True, {"handles": [], "signatures": ["0xab"]}), (True, {"handles": ["0x01"]})],
)
def test_20_1_rejected_proof(
    api: Api, alice: int, conn: psycopg.Connection[Any], accepted: bool, stored: dict[str, Any] | None
) -> None:
    job = insert_job(conn, alice, Kind.INPUT_PROOF, Status.COMPLETED, accepted=accepted, res=stored)
    assert result(api.get(f"/v2/input-proof/{job}")) == {"accepted": False, "extraData": "0x00"}


def test_user_result_is_the_earliest_shares_in_order_of_index(
    api: Api, alice: int, conn: psycopg.Connection[Any]
) -> None:
    reference = os.urandom(32)
    job = insert_job(conn, alice, Kind.USER_DECRYPT, Status.COMPLETED, gw_reference_id=reference, resolved_threshold=3)
    insert_shares(conn, reference, [4, 0, 2, 1, 3])
    expected = [{"payload": f"aa0{index}", "signature": f"0{index}" * 65, "extraData": "0x00"} for index in (0, 2, 4)]
    for path in ("/v2/user-decrypt/", "/v2/delegated-user-decrypt/", "/v3/user-decrypt/"):
        assert result(api.get(f"{path}{job}")) == {"result": expected}


def test_user_result_without_shares(api: Api, alice: int, conn: psycopg.Connection[Any]) -> None:
    job = insert_job(conn, alice, Kind.USER_DECRYPT, Status.COMPLETED, resolved_threshold=9)
    assert error(api.get(f"/v2/user-decrypt/{job}"), 500) == {
        "label": "internal_server_error",
        "message": "Internal error: completed request has insufficient shares",
    }


TIMEOUTS = [
    ("response_timed_out", "Gateway chain did not respond within the expected timeframe"),
    ("readiness_check_timed_out", "Ciphertext not ready for decryption on the gateway chain"),
]


@pytest.mark.parametrize(("label", "text"), TIMEOUTS)
@pytest.mark.parametrize("stored", [True, False])
def test_20_1_2_and_19_timeouts(
    api: Api, alice: int, conn: psycopg.Connection[Any], label: str, text: str, stored: bool
) -> None:
    detail = text if stored else None
    job = insert_job(conn, alice, Kind.USER_DECRYPT, Status.TIMED_OUT, fail_label=label, fail_detail=detail)
    assert error(api.get(f"/v2/user-decrypt/{job}"), 503) == {"label": label, "message": text}


def test_timeout_without_any_reason(api: Api, alice: int, conn: psycopg.Connection[Any]) -> None:
    job = insert_job(conn, alice, Kind.INPUT_PROOF, Status.TIMED_OUT)
    assert error(api.get(f"/v2/input-proof/{job}"), 503) == {
        "label": "response_timed_out",
        "message": "Request timed out (reason not available)",
    }


@pytest.mark.parametrize("kind", list(REQUEST_KINDS))
@pytest.mark.parametrize("selector", list(BY_SELECTOR))
def test_20_1_6_to_9_revert_selectors(
    api: Api, alice: int, conn: psycopg.Connection[Any], kind: Kind, selector: bytes
) -> None:
    job = insert_job(conn, alice, kind, Status.FAILURE, fail_detail="reverted", fail_selector=selector)
    label = BY_SELECTOR[selector].value
    response = api.get(f"{PATH[kind]}{job}")
    blamed = complaints.BY_SELECTOR.get(selector)
    if blamed == complaints.SIGNATURE:
        assert error(response, 400) == SIGNATURE_ERROR
    elif blamed is not None:
        assert error(response, 400) == {
            "label": "validation_failed",
            "message": f"Validation failed for 1 field in the request: {blamed.field}",
            "details": [{"field": blamed.field, "issue": blamed.issue}],
        }
    else:
        assert error(response, 503) == {"label": label, "message": "reverted"}


@pytest.mark.parametrize(
    ("label", "status"),
    [
        ("not_allowed_on_host_acl", 400),
        ("host_acl_failed", 500),
        ("protocol_paused", 503),
        ("insufficient_balance", 503),
        ("insufficient_allowance", 503),
        ("internal_server_error", 500),
    ],
)
def test_20_1_20_and_21_stored_labels(
    api: Api, alice: int, conn: psycopg.Connection[Any], label: str, status: int
) -> None:
    job = insert_job(conn, alice, Kind.PUBLIC_DECRYPT, Status.FAILURE, fail_label=label, fail_detail="why")
    assert error(api.get(f"/v2/public-decrypt/{job}"), status) == {"label": label, "message": "why"}


def test_20_1_7_stored_signature_label(api: Api, alice: int, conn: psycopg.Connection[Any]) -> None:
    job = insert_job(conn, alice, Kind.USER_DECRYPT, Status.FAILURE, fail_label="validation_failed", fail_detail="x")
    assert error(api.get(f"/v2/user-decrypt/{job}"), 400) == SIGNATURE_ERROR


@pytest.mark.parametrize(
    "columns",
    [
        {"fail_selector": bytes.fromhex("deadbeef"), "fail_detail": "odd"},
        {"fail_label": "a_label_of_tomorrow", "fail_detail": "odd"},
        # the text of a paused gateway is not proof of one: only the typed columns count
        {"fail_detail": "odd", "fail_label": None},
    ],
)
def test_20_1_10_anything_else_is_a_500(
    api: Api, alice: int, conn: psycopg.Connection[Any], columns: dict[str, Any]
) -> None:
    job = insert_job(conn, alice, Kind.USER_DECRYPT, Status.FAILURE, **columns)
    assert error(api.get(f"/v2/user-decrypt/{job}"), 500) == {"label": "internal_server_error", "message": "odd"}


def test_both_tables_of_contract_errors_agree() -> None:
    blamed = {
        selector: (rule.field, rule.message) for selector, rule in reverts.BY_SELECTOR.items() if rule.field is not None
    }
    assert {key: (detail.field, detail.issue) for key, detail in complaints.BY_SELECTOR.items()} == blamed
    assert all(reverts.BY_SELECTOR[selector].label == label for selector, label in BY_SELECTOR.items())


def test_failure_without_reason(api: Api, alice: int, conn: psycopg.Connection[Any]) -> None:
    job = insert_job(conn, alice, Kind.USER_DECRYPT, Status.FAILURE)
    assert error(api.get(f"/v2/user-decrypt/{job}"), 500)["message"] == "Unknown error"


def test_reasons_are_not_parsed(api: Api, alice: int, conn: psycopg.Connection[Any]) -> None:
    text = "Not allowed on host ACL: 0xd93c0665"
    job = insert_job(conn, alice, Kind.USER_DECRYPT, Status.FAILURE, fail_detail=text)
    assert error(api.get(f"/v2/user-decrypt/{job}"), 500) == {"label": "internal_server_error", "message": text}


def test_canceled_view(api: Api, alice: int, conn: psycopg.Connection[Any]) -> None:
    job = insert_job(conn, alice, Kind.USER_DECRYPT, Status.QUEUED)
    conn.execute("UPDATE request_client SET canceled_at = clock_timestamp()")
    assert error(api.get(f"/v2/user-decrypt/{job}"), 500) == {
        "label": "internal_server_error",
        "message": "canceled by client",
    }
