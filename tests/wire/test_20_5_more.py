"""fhevm_http 20.5: what the upstream tests leave out, against the running stack."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest

from requests_app.states import Kind
from tests.wire.aimed import internal
from tests.wire.campaign import Phase, scenario
from tests.wire.client import Client
from tests.wire.world import SOFT_LIMIT, World
from workers.devnet.traffic import Form, Submission

LIMIT = 2 * 1024 * 1024
KIND: dict[Form, Kind] = {
    "input_proof": Kind.INPUT_PROOF,
    "public_decrypt": Kind.PUBLIC_DECRYPT,
    "user_decrypt": Kind.USER_DECRYPT,
    "delegated": Kind.USER_DECRYPT,
    "unified": Kind.USER_DECRYPT,
}


@pytest.mark.parametrize("form", ["input_proof", "public_decrypt", "user_decrypt", "unified"])
def test_20_5_full_queue(world: World, form: Form) -> None:
    """New content is bounced, a duplicate of an active request is not; nothing of the bounced one is stored."""
    active, fresh = world.draft(form), world.draft(form)
    with world.gateway_error("eth_estimateGas", active, internal()):
        world.allow(active)
        job = world.post(active)
        with world.filled("send", KIND[form].value, SOFT_LIMIT):
            bounced = world.client.post(fresh.path, fresh.body)
            assert world.post(active) == job
        assert bounced.failure == (429, "rate_limited")
        assert bounced.headers["retry-after"] == "4"
        assert bounced.error["message"] == (
            "Server is experiencing high processing load: relayer is currently processing too many requests"
        )
    assert world.client.post(fresh.path, fresh.body).status == 202


def test_20_5_full_readiness_queue(world: World) -> None:
    draft = world.draft("public_decrypt")
    with world.filled("ready", Kind.PUBLIC_DECRYPT.value, SOFT_LIMIT):
        assert world.client.post(draft.path, draft.body).failure == (429, "rate_limited")


@pytest.mark.parametrize(
    ("form", "ready", "send", "seconds"),
    [
        ("input_proof", 0, 0, 3),
        ("input_proof", 0, 20, 4),
        ("input_proof", 0, 100, 9),
        ("input_proof", 0, 1000, 63),
        ("public_decrypt", 250, 0, 13),
        ("public_decrypt", 251, 0, 18),
        ("public_decrypt", 0, 20, 9),
        ("public_decrypt", 250, 100, 19),
        ("user_decrypt", 1000, 1000, 87),
        ("unified", 251, 0, 18),
    ],
)
def test_20_5_retry_after_under_load(world: World, form: Form, ready: int, send: int, seconds: int) -> None:
    draft = world.draft(form)
    kind = KIND[form].value
    with world.filled("ready", kind, ready), world.filled("send", kind, send):
        response = world.client.post(draft.path, draft.body)
    assert response.status == 202
    # Another test's request may still wait in the same queue; the formula's steps are wide, the rate is 20 a second.
    assert seconds <= int(response.headers["retry-after"]) <= seconds + 5


@scenario(Phase.SILENT, ("input_proof", "public_decrypt", "user_decrypt"), sends=True)
def test_20_5_retry_after_of_every_state(world: World, form: Form) -> None:
    """Input proofs 3, 3, 4; decrypts 8, 8, 4, and while queued 8 or more, by the length of the readiness queue."""
    try:
        waits = waits_by_state(world, world.draft(form))
    finally:
        world.sent.reached()
    assert waits["processing"] == waits["tx_in_flight"] == ({3} if form == "input_proof" else {8})
    assert waits["receipt_received"] == {4}
    assert all(8 <= seconds < 30 for seconds in waits.get("queued", ()))
    assert ("queued" in waits) == (form != "input_proof")


def waits_by_state(world: World, submission: Submission) -> dict[str, set[int]]:
    """Retry-After of GET while the request is held in each state in turn."""
    waits: dict[str, set[int]] = {}

    def note(job: str) -> None:
        before = str(world.row(job).status)
        seconds = int(world.client.get(f"{submission.path}/{job}").headers["retry-after"])
        if str(world.row(job).status) == before:
            waits.setdefault(before, set()).add(seconds)

    with world.gateway_error("eth_sendRawTransaction", submission, internal()):
        with world.gateway_error("eth_estimateGas", submission, internal()):
            job = world.post(submission)
            if submission.form != "input_proof":
                world.allow(submission, commit=False)
                note(job)
                world.allow(submission)
            world.wait_status(job, "processing")
            note(job)
        world.wait_status(job, "tx_in_flight")
        note(job)
    world.wait_status(job, "receipt_received")
    note(job)
    return waits


@pytest.mark.parametrize("form", ["user_decrypt", "delegated"])
def test_20_5_new_signature_of_the_same_content_joins(world: World, form: Form) -> None:
    submission = world.submission(form)
    job = world.post(submission)
    renewed = {**submission.body, "signature": "cd" * 65}
    assert world.client.post(submission.path, renewed).job_id == job
    assert world.result_of(submission, job).status == 200


def padded(body: dict[str, Any], size: int) -> bytes:
    raw = json.dumps(body).encode()
    return raw + b" " * (size - len(raw))


def test_20_5_body_of_two_mebibytes_and_one_more(world: World) -> None:
    draft = world.draft("public_decrypt")
    too_large = world.client.post(draft.path, padded(draft.body, LIMIT + 1))
    assert too_large.status == 400
    assert too_large.error == {"label": "request_error", "message": "Failed to read request body"}
    assert world.client.post(draft.path, padded(draft.body, LIMIT)).job_id


@pytest.mark.parametrize("size", [LIMIT, 4 * LIMIT])
def test_a_refusal_reaches_a_client_that_is_still_sending(world: World, size: int) -> None:
    """Found by the case above: answering and closing before the body was read broke the client's connection now and then."""
    draft = world.draft("public_decrypt")
    for _ in range(5):
        assert Client(world.stack.url, "wrong").post(draft.path, padded(draft.body, size)).failure == (
            401,
            "unauthorized",
        )
        large = world.client.post(draft.path, padded(draft.body, 2 * size))
        assert large.failure == (400, "request_error")


@pytest.mark.parametrize("path", ["input-proof", "public-decrypt", "user-decrypt", "delegated-user-decrypt"])
def test_20_5_bad_and_unknown_ids(world: World, path: str) -> None:
    bad = world.client.get(f"/v2/{path}/123")
    assert (bad.status, bad.headers["content-type"].split(";")[0]) == (400, "text/plain")
    known = str(uuid4())
    for spelling in (known, known.upper(), known.replace("-", ""), f"urn:uuid:{known}", f"%7B{known}%7D"):
        unknown = world.client.get(f"/v2/{path}/{spelling}")
        assert unknown.failure == (404, "not_found")
        assert unknown.error["message"] == "Request not found"


@pytest.mark.parametrize("path", ["/v2/nothing", "/v3/keyurl", "/v3/input-proof", "/v3/public-decrypt", "/v1"])
def test_20_5_paths_that_are_not_there(world: World, path: str) -> None:
    assert world.client.get(path).status == 404


def test_20_5_methods(world: World) -> None:
    wrong = world.client.exchange("PUT", "/v2/input-proof", b"{}")
    assert (wrong.status, wrong.raw, "allow" in wrong.headers) == (405, b"", True)
    assert world.client.exchange("HEAD", "/v2/keyurl").status == 200
