"""Waiting for shares beyond the threshold, by runtime settings (fhevm_internals 8.5)."""

from __future__ import annotations

import os
from typing import Any
from uuid import UUID

import psycopg
import pytest

from requests_app import runtime
from requests_app.states import Kind, Status
from tests.api.conftest import Api
from tests.api.rows import insert_job, insert_shares

PATH = "/v2/user-decrypt/"
ORDER = [3, 1, 7, 2, 5]


class Scene:
    """A user decrypt that completed with a threshold of 3, and 5 stored shares."""

    def __init__(self, conn: psycopg.Connection[Any], owner: int) -> None:
        self.conn, self.reference = conn, os.urandom(32)
        self.job: UUID = insert_job(
            conn,
            owner,
            Kind.USER_DECRYPT,
            Status.RECEIPT_RECEIVED,
            gw_reference_id=self.reference,
        )
        insert_shares(conn, self.reference, ORDER)
        self.complete(0)

    def complete(self, seconds_ago: float) -> None:
        """Complete the row as if it had happened a while ago. The trigger would refuse a second time."""
        self.conn.execute("ALTER TABLE user_decrypt_req DISABLE TRIGGER user_decrypt_req_final")
        self.conn.execute(
            "UPDATE user_decrypt_req SET status = 'completed', resolved_threshold = 3, completed_at = clock_timestamp(), "
            "state_entered_at = clock_timestamp() - make_interval(secs => %s)",
            (seconds_ago,),
        )
        self.conn.execute("ALTER TABLE user_decrypt_req ENABLE TRIGGER user_decrypt_req_final")


@pytest.fixture
def scene(conn: psycopg.Connection[Any], alice: int) -> Scene:
    return Scene(conn, alice)


def wait_for(conn: psycopg.Connection[Any], shares: int, seconds: int) -> None:
    for name, value in (("", shares), ("_timeout_secs", seconds)):
        runtime.change(conn, f"user_decrypt_additional_shares{name}", value, by="shell:test", reason="test")


def indexes(answer: Any) -> list[int]:
    assert answer.status_code == 200, answer.content
    return [int(share["payload"][2:], 16) for share in answer.json()["result"]["result"]]


def test_off_serves_exactly_the_threshold(api: Api, scene: Scene) -> None:
    assert indexes(api.get(f"{PATH}{scene.job}")) == [1, 3, 7]


@pytest.mark.parametrize(("shares", "seconds"), [(0, 30), (4, 0)])
def test_either_zero_is_off(api: Api, scene: Scene, shares: int, seconds: int) -> None:
    wait_for(scene.conn, shares, seconds)
    assert indexes(api.get(f"{PATH}{scene.job}")) == [1, 3, 7]


def test_enough_spare_shares_end_the_wait_and_all_are_served(api: Api, scene: Scene) -> None:
    wait_for(scene.conn, 2, 3600)
    assert indexes(api.get(f"{PATH}{scene.job}")) == [1, 2, 3, 5, 7]


def test_it_waits_until_the_window_ends(api: Api, scene: Scene) -> None:
    wait_for(scene.conn, 3, 30)
    answer = api.get(f"{PATH}{scene.job}")
    assert (answer.status_code, set(answer.json())) == (202, {"status", "requestId"})
    assert 28 <= int(answer.headers["Retry-After"]) <= 30
    scene.complete(29.5)
    assert api.get(f"{PATH}{scene.job}").headers["Retry-After"] == "1"
    scene.complete(30.0)
    assert indexes(api.get(f"{PATH}{scene.job}")) == [1, 2, 3, 5, 7]


def test_a_further_share_ends_it_early(api: Api, scene: Scene) -> None:
    wait_for(scene.conn, 3, 3600)
    assert api.get(f"{PATH}{scene.job}").status_code == 202
    scene.conn.execute(
        "INSERT INTO user_decrypt_share (gw_reference_id, share_index, share, kms_signature, extra_data, tx_hash, position) "
        "SELECT gw_reference_id, 9, '\\xaa09', kms_signature, extra_data, tx_hash, position + (99 << 20) FROM user_decrypt_share LIMIT 1"
    )
    assert indexes(api.get(f"{PATH}{scene.job}")) == [1, 2, 3, 5, 7, 9]


def test_the_consensus_hash_does_not_extend_the_window(api: Api, scene: Scene) -> None:
    wait_for(scene.conn, 3, 30)
    scene.complete(29.0)
    scene.conn.execute("UPDATE user_decrypt_req SET gw_consensus_tx_hash = %s", (os.urandom(32),))
    assert api.get(f"{PATH}{scene.job}").headers["Retry-After"] == "1"


def test_the_native_face_waits_too(api: Api, scene: Scene) -> None:
    wait_for(scene.conn, 3, 30)
    answer = api.get(f"/v1/user-decrypt/{scene.job}")
    assert (answer.status_code, answer.json()["status"], answer.json()["result"]) == (202, "completed", None)
    scene.complete(31.0)
    answer = api.get(f"/v1/user-decrypt/{scene.job}")
    assert (answer.status_code, len(answer.json()["result"]["shares"])) == (200, 5)


def test_other_kinds_and_failures_do_not_wait(api: Api, conn: psycopg.Connection[Any], alice: int) -> None:
    wait_for(conn, 3, 3600)
    failed = insert_job(conn, alice, Kind.USER_DECRYPT, Status.FAILURE, fail_label="internal_server_error")
    assert api.get(f"{PATH}{failed}").status_code == 500
    proof = insert_job(conn, alice, Kind.INPUT_PROOF, Status.COMPLETED, accepted=False)
    assert api.get(f"/v2/input-proof/{proof}").status_code == 200
