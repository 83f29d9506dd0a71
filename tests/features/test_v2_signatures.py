"""v2 signatures are judged before anything is queued: a bad copy of somebody's request never stands in its way (issue 3)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from django.db import connections
from eth_account import Account
from pytest_django import Settings

from requests_app.api.auth import forget_keys
from requests_app.states import Kind, Status
from tests.api import bodies
from tests.api.conftest import KEY, OTHER_KEY, Api, issue_key
from tests.api.rows import counts, fill_queue, set_status
from tests.core.rows import insert_account

# fhevm_http 19.2, from ethers: what the key 0x11… signs for one day from 1700000000, publicKey 0xabcd.
DIGESTS = {
    "user-decrypt": "cee963a4eadb5f4ada8f91c2dce9f97c4df79f74a6993fe011fd4377e5b95f2f",
    "delegated-user-decrypt": "d40751605687a1b122f474fac9391f7aa02b99683906a7560690ce0ecec51544",
}
FORMS = pytest.mark.parametrize("form", list(DIGESTS))
BAD = "ab" * 65


def honest(form: str, **changes: Any) -> dict[str, Any]:
    signature = bytes(
        Account.from_key(bodies.SIGNER_KEY).unsafe_sign_hash(bytes.fromhex(DIGESTS[form])).signature
    ).hex()
    if form == "user-decrypt":
        validity = {"startTimestamp": "1700000000", "durationDays": "1"}
        return bodies.direct(
            **{"requestValidity": validity, "userAddress": bodies.SIGNER, "signature": signature, **changes}
        )
    return bodies.delegated(
        **{"durationDays": "1", "delegateAddress": bodies.SIGNER, "signature": signature, **changes}
    )


def poisoned(form: str) -> dict[str, Any]:
    return honest(form, signature=BAD)


@pytest.fixture(autouse=True)
def _on(_chains: None, settings: Settings) -> None:
    settings.V2_SIGNATURE_CHECK = True


def job_of(response: Any) -> str:
    assert response.status_code == 202, response.content
    return str(response.json()["result"]["jobId"])


def states(conn: psycopg.Connection[Any]) -> list[str]:
    return [row[0] for row in conn.execute("SELECT status FROM user_decrypt_req ORDER BY id").fetchall()]


@FORMS
def test_a_good_signature_is_queued(api: Api, conn: psycopg.Connection[Any], form: str) -> None:
    job_of(api.post(f"/v2/{form}", honest(form)))
    assert states(conn) == ["queued"]
    assert counts(conn)["queue_job"] == 1


@FORMS
def test_a_bad_signature_is_accepted_and_shows_on_get(api: Api, conn: psycopg.Connection[Any], form: str) -> None:
    job = job_of(api.post(f"/v2/{form}", poisoned(form)))
    answer = api.get(f"/v2/{form}/{job}")
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["label"], error["message"]) == ("validation_failed", "Validation failed for 1 field(s)")
    assert error["details"] == [{"field": "signature", "issue": "Signature is invalid"}]
    assert counts(conn)["queue_job"] == 0
    log = conn.execute("SELECT verb, from_status, to_status, actor FROM req_transition ORDER BY id").fetchall()
    assert log == [("submit", None, "queued", "api"), ("deny", "queued", "failure", "api")]
    assert conn.execute("SELECT completed_at IS NOT NULL, deadline_at FROM user_decrypt_req").fetchone() == (True, None)


@FORMS
@pytest.mark.parametrize("poisoner", [KEY, OTHER_KEY], ids=["same client", "another client"])
def test_a_poisoned_copy_posted_first_does_not_block_the_honest_one(
    api: Api,
    bob: int,
    conn: psycopg.Connection[Any],
    form: str,
    poisoner: str,
) -> None:
    bad = job_of(Api(poisoner).post(f"/v2/{form}", poisoned(form)))
    good = job_of(api.post(f"/v2/{form}", honest(form)))
    assert good != bad
    assert states(conn) == ["failure", "queued"]
    assert api.get(f"/v2/{form}/{good}").status_code == 202
    # Nor does one that comes later: it joins the honest row, as the contract of dedup wants.
    later = job_of(Api(poisoner).post(f"/v2/{form}", poisoned(form)))
    assert states(conn) == ["failure", "queued"]
    assert Api(poisoner).get(f"/v2/{form}/{later}").status_code == 202
    assert Api(poisoner).get(f"/v2/{form}/{bad}").status_code == 400


def test_the_user_s_own_signature_for_another_form_is_bad(api: Api, conn: psycopg.Connection[Any]) -> None:
    """The delegator of a delegated request must not sign it, nor may the days be changed after signing."""
    swapped = honest("delegated-user-decrypt", delegatorAddress=bodies.SIGNER, delegateAddress=bodies.DELEGATOR)
    job_of(api.post("/v2/delegated-user-decrypt", swapped))
    longer = honest("user-decrypt", requestValidity={"startTimestamp": "1700000000", "durationDays": "2"})
    job_of(api.post("/v2/user-decrypt", longer))
    assert states(conn) == ["failure", "failure"]


def test_the_content_of_a_finished_request_takes_a_bad_copy_in(api: Api, conn: psycopg.Connection[Any]) -> None:
    job = job_of(api.post("/v2/user-decrypt", honest("user-decrypt")))
    set_status(conn, Kind.USER_DECRYPT, job, Status.COMPLETED)
    assert job_of(api.post("/v2/user-decrypt", poisoned("user-decrypt"))) == job
    assert states(conn) == ["completed"]


def test_bad_copies_meet_the_full_queue_too(api: Api, conn: psycopg.Connection[Any], settings: Settings) -> None:
    settings.QUEUE_CAPACITY, settings.QUEUE_SAFETY_MARGIN = 6, 1
    fill_queue(conn, "ready", Kind.USER_DECRYPT, 5)
    assert api.post("/v2/user-decrypt", poisoned("user-decrypt")).status_code == 429
    assert states(conn) == []


def test_the_native_face_says_the_same(api: Api, conn: psycopg.Connection[Any]) -> None:
    answer = api.post("/v1/user-decrypt", poisoned("user-decrypt"))
    assert (answer.status_code, answer.json()["status"]) == (202, "failure")
    row = api.get(f"/v1/user-decrypt/{answer.json()['ext_job_id']}").json()
    assert (row["status"], row["err_label"]) == ("failure", "validation_failed")


def test_off_by_setting_leaves_it_to_the_contract(api: Api, conn: psycopg.Connection[Any], settings: Settings) -> None:
    settings.V2_SIGNATURE_CHECK = False
    job_of(api.post("/v2/user-decrypt", poisoned("user-decrypt")))
    assert states(conn) == ["queued"]


def test_a_disabled_account_stores_nothing(api: Api, conn: psycopg.Connection[Any], alice: int) -> None:
    api.post("/v2/user-decrypt", honest("user-decrypt"))
    conn.execute("UPDATE client_account SET status = 'disabled'")
    assert api.post("/v2/user-decrypt", {**poisoned("user-decrypt"), "publicKey": "abce"}).status_code == 401
    assert states(conn) == ["queued"]


def test_honest_and_poisoned_at_the_same_moment(committed: psycopg.Connection[Any]) -> None:
    """Whatever the order, the honest request is never a failure."""
    issue_key(committed, insert_account(committed, "alice"), KEY)
    forget_keys()

    def send(body: dict[str, Any]) -> str:
        try:
            return job_of(Api().post("/v2/user-decrypt", body))
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        for _ in range(8):
            jobs = list(pool.map(send, [poisoned("user-decrypt")] * 3 + [honest("user-decrypt")]))
            assert Api().get(f"/v2/user-decrypt/{jobs[3]}").status_code == 202
            committed.execute(
                "UPDATE user_decrypt_req SET status = 'timed_out', completed_at = clock_timestamp() WHERE status = 'queued'"
            )
