"""The native face against the running stack: status mapping, long-poll, duplicates, timeline, cancel, queue sizes."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest

from requests_app.states import Kind
from tests.wire.aimed import internal, reverted
from tests.wire.campaign import ALL, DECRYPTS, IDS, Phase, scenario
from tests.wire.client import Client, Response
from tests.wire.world import World
from workers.devnet.traffic import FORMS, PATHS, Form, Submission

FIELDS = {
    "ext_job_id", "kind", "status", "created_at", "updated_at", "err_label", "err_reason", "gw_reference_id", "gw_req_tx_hash",
    "gw_response_tx_hash", "queue_position", "readiness_queue_size", "tx_queue_size", "accepted", "result",
}  # fmt: skip


def submit(world: World, submission: Submission) -> dict[str, Any]:
    """The 202 of a POST."""
    response = world.client.post(f"/v1/{submission.kind}", submission.body)
    assert response.status == 202, response.raw
    assert set(response.body) == {
        "ext_job_id", "status", "readiness_queue_size", "tx_queue_size", "accepted", "result",
    }  # fmt: skip
    assert response.headers["location"] == f"/v1/{submission.kind}/{response.body['ext_job_id']}"
    assert int(response.headers["retry-after"]) >= 1
    return dict(response.body)


def row(response: Response, status: int) -> dict[str, Any]:
    assert response.status == status, response.raw
    assert set(response.body) == FIELDS
    return dict(response.body)


def problem(response: Response, status: int, label: str) -> dict[str, Any]:
    assert (response.status, response.headers["content-type"]) == (status, "application/problem+json")
    body = response.body
    assert (body["status"], body["label"], body["type"]) == (status, label, f"urn:gateway-relayer:problem:{label}")
    return dict(body)


@scenario(Phase.OPEN, FORMS)
def test_v1_200_completed_with_long_poll_and_duplicate(world: World, form: Form) -> None:
    """202 while waiting, 200 with the result, the same result in the POST of a duplicate."""
    submission = world.submission(form)
    job = submit(world, submission)["ext_job_id"]
    path = f"/v1/{submission.kind}/{job}"
    response = world.client.get(f"{path}?wait=25")
    if response.status == 202:  # a loaded machine may need longer
        response = world.client.follow(f"/v1/{submission.kind}", job)
    done = row(response, 200)
    assert (done["status"], done["err_label"], done["accepted"]) == (
        "completed",
        None,
        True if form == "input_proof" else None,
    )
    assert done["result"]
    assert all(done[name].startswith("0x") for name in ("gw_reference_id", "gw_req_tx_hash"))
    again = submit(world, submission)
    assert (again["ext_job_id"], again["status"], again["result"]) == (job, "completed", done["result"])
    v2 = world.client.get(f"{PATHS[form][0]}/{job}")
    assert v2.status == 200


@scenario(Phase.SILENT, ALL, sends=True)
def test_v1_202_and_504_timed_out(world: World, form: Form) -> None:
    submission = world.submission(form)
    try:
        job = submit(world, submission)["ext_job_id"]
        waiting = row(world.client.get(f"/v1/{submission.kind}/{job}"), 202)
        world.wait_status(job, "receipt_received")
    finally:
        world.sent.reached()
    assert waiting["status"] in ("queued", "processing", "tx_in_flight", "receipt_received")
    late = row(world.client.follow(f"/v1/{submission.kind}", job), 504)
    assert (late["status"], late["err_label"], late["result"]) == ("timed_out", "response_timed_out", None)
    assert "did not respond" in late["err_reason"]


@scenario(Phase.SILENT, DECRYPTS)
def test_v1_400_failed(world: World, form: Form) -> None:
    submission = world.allow(world.draft(form), handles=[])
    job = submit(world, submission)["ext_job_id"]
    failed = row(world.client.follow(f"/v1/{submission.kind}", job), 400)
    assert (failed["status"], failed["err_label"]) == ("failure", "not_allowed_on_host_acl")
    assert failed["err_reason"].startswith("Not allowed on host ACL: ")


@scenario(Phase.SILENT, ("input_proof",))
def test_v1_400_failed_by_the_contract(world: World, form: Form) -> None:
    submission = world.submission(form)
    with world.gateway_error("eth_estimateGas", submission, reverted("0xdeadbeef")):
        job = submit(world, submission)["ext_job_id"]
        failed = row(world.client.follow(f"/v1/{submission.kind}", job), 400)
    assert (failed["status"], failed["err_label"]) == ("failure", "internal_server_error")


@scenario(Phase.OPEN, ("public_decrypt",))
def test_v1_wait_ends_with_the_state_or_the_time(world: World, form: Form) -> None:
    submission = world.allow(world.draft(form), commit=False)
    job = submit(world, submission)["ext_job_id"]
    started = time.monotonic()
    assert row(world.client.get(f"/v1/{submission.kind}/{job}?wait=1"), 202)["status"] == "queued"
    assert 0.9 <= time.monotonic() - started < 15
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(world.client.get, f"/v1/{submission.kind}/{job}?wait=25")
        world.allow(submission)
        assert held.result(90).status in (200, 202)
    assert world.client.follow(f"/v1/{submission.kind}", job).status == 200


def test_v1_timeline(world: World) -> None:
    submission = world.submission("user_decrypt")
    job = submit(world, submission)["ext_job_id"]
    world.client.follow(f"/v1/{submission.kind}", job)
    response = world.client.get(f"/v1/requests/{job}/timeline")
    assert response.status == 200
    steps = response.body["transitions"]
    assert [step["to_status"] for step in steps] == [
        "queued",
        "processing",
        "tx_in_flight",
        "receipt_received",
        "completed",
    ]
    assert steps[0]["from_status"] is None
    assert [step["at"] for step in steps] == sorted(step["at"] for step in steps)
    assert any(step["tx_hash"] for step in steps)


def test_v1_cancel_while_nothing_was_sent(world: World) -> None:
    submission = world.allow(world.draft("public_decrypt"), commit=False)
    job = submit(world, submission)["ext_job_id"]
    canceled = row(world.client.post(f"/v1/requests/{job}/cancel"), 200)
    assert (canceled["status"], canceled["err_reason"]) == ("failure", "canceled by client")
    assert world.client.post(f"/v1/requests/{job}/cancel").status == 200
    assert world.client.get(f"{submission.path}/{job}").status == 500
    assert submit(world, submission)["ext_job_id"] != job


def test_v1_cancel_too_late(world: World) -> None:
    submission = world.submission("input_proof")
    with world.gateway_error("eth_sendRawTransaction", submission, internal()):
        job = submit(world, submission)["ext_job_id"]
        world.wait_status(job, "tx_in_flight")
        problem(world.client.post(f"/v1/requests/{job}/cancel"), 409, "not_cancelable")
    assert world.client.follow(f"/v1/{submission.kind}", job).status == 200
    problem(world.client.post(f"/v1/requests/{job}/cancel"), 409, "not_cancelable")


def test_v1_queue_sizes_in_the_answer_of_a_post(world: World) -> None:
    submission = world.draft("public_decrypt")
    with world.filled("ready", Kind.PUBLIC_DECRYPT.value, 40), world.filled("send", Kind.PUBLIC_DECRYPT.value, 70):
        answer = submit(world, submission)
        queued = row(world.client.get(f"/v1/{submission.kind}/{answer['ext_job_id']}"), 202)
    assert 40 <= answer["readiness_queue_size"] <= 60
    assert 70 <= answer["tx_queue_size"] <= 90
    assert queued["readiness_queue_size"] >= 40 or queued["status"] != "queued"


@pytest.mark.parametrize("form", FORMS, ids=[IDS[form] for form in FORMS])
def test_v1_404_and_400(world: World, form: Form) -> None:
    kind = PATHS[form][1]
    problem(world.client.get(f"/v1/{kind}/{uuid4()}"), 404, "not_found")
    bad = problem(world.client.get(f"/v1/{kind}/123"), 400, "validation_failed")
    assert bad["errors"] == [{"field": "job_id", "issue": "Must be a UUID"}]
    wait = problem(world.client.get(f"/v1/{kind}/{uuid4()}?wait=soon"), 400, "validation_failed")
    assert wait["errors"] == [{"field": "wait", "issue": "Must be a number of seconds"}]
    broken = problem(world.client.post(f"/v1/{kind}", b"{"), 400, "malformed_json")
    assert "errors" not in broken


def test_v1_401(world: World) -> None:
    for key in (None, "wrong"):
        stranger = Client(world.stack.url, key)
        for response in (
            stranger.post("/v1/input-proof", {}),
            stranger.get(f"/v1/input-proof/{uuid4()}"),
            stranger.get(f"/v1/requests/{uuid4()}/timeline"),
            stranger.post(f"/v1/requests/{uuid4()}/cancel"),
        ):
            problem(response, 401, "unauthorized")
            assert response.headers["www-authenticate"].startswith("Bearer")
