"""fhevm_http 20.1 without faults: complete runs, duplicates, and bodies that are refused at once."""

from __future__ import annotations

import copy
import json
from typing import Any
from uuid import uuid4

import pytest

from tests.wire.aimed import reverted
from tests.wire.campaign import ALL, DECRYPTS, IDS, Phase, scenario
from tests.wire.client import Response
from tests.wire.world import UNKNOWN_CHAIN, World
from workers.devnet.traffic import Form, Submission
from workers.devnet.verify import Verifier

MIXED: tuple[Form, ...] = ("public_decrypt", "user_decrypt")
FORMS = pytest.mark.parametrize("form", ALL, ids=[IDS[form] for form in ALL])


def checked(world: World, submission: Submission, response: Response) -> int:
    """The result has its shape, and the registered keys have signed it."""
    assert response.status == 200, response.raw
    assert set(response.body) == {"status", "requestId", "result"}
    assert response.body["status"] == "succeeded"
    return Verifier(world.stack.deployment).check(submission, response.body["result"])


@scenario(Phase.OPEN, ALL)
def test_20_1_01_valid_single_request(world: World, form: Form) -> None:
    submission = world.submission(form)
    job = world.post(submission)
    first = world.result_of(submission, job)
    assert checked(world, submission, first) >= 2
    again = world.client.get(f"{submission.path}/{job}")
    assert again.body["result"] == first.body["result"]
    assert again.body["requestId"] != first.body["requestId"]


@scenario(Phase.OPEN, ALL)
def test_20_1_11_same_body_twice(world: World, form: Form) -> None:
    submission = world.submission(form)
    job = world.post(submission)
    assert world.post(submission) == job
    response = world.result_of(submission, job)
    assert response.status == 200
    assert world.post(submission) == job
    assert world.client.get(f"{submission.path}/{job}").body["result"] == response.body["result"]


@scenario(Phase.OPEN, ("input_proof",))
def test_20_1_12_different_bodies(world: World, form: Form) -> None:
    assert world.post(world.submission(form)) != world.post(world.submission(form))


@scenario(Phase.OPEN, ALL)
def test_20_1_13_first_attempt_fails_same_body_again(world: World, form: Form) -> None:
    submission = world.submission(form)
    with world.gateway_error("eth_estimateGas", submission, reverted("0xdeadbeef")):
        first = world.post(submission)
        failed = world.result_of(submission, first)
    assert failed.failure == (500, "internal_server_error")
    second = world.post(submission)
    assert second != first
    assert world.result_of(submission, second).status == 200
    assert world.client.get(f"{submission.path}/{first}").error == failed.error


@scenario(Phase.OPEN, MIXED)
def test_20_1_22_several_all_allowed(world: World, form: Form) -> None:
    submission = world.allow(world.draft(form, chains=[8009, 8009, 8009]))
    assert checked(world, submission, world.result_of(submission)) >= 9


@scenario(Phase.OPEN, ("public_decrypt",))
def test_20_1_26_two_host_chains_all_allowed(world: World, form: Form) -> None:
    submission = world.allow(world.draft(form, chains=[8009, 9001]))
    assert checked(world, submission, world.result_of(submission)) >= 9


@scenario(Phase.OPEN, ("user_decrypt",))
def test_20_1_26_two_host_chains_meet_the_contracts_rule(world: World, form: Form) -> None:
    """Deviation: upstream's mock gateway takes it; the contract wants all handles on the chain that was signed for."""
    response = world.result_of(world.allow(world.draft(form, chains=[8009, 9001])))
    assert response.status == 400
    assert response.details() == {("contractsChainId", "Differs from the host chain of a handle")}


@scenario(Phase.REJECTING, ("input_proof",))
def test_20_1_rejected_by_the_coprocessors(world: World, form: Form) -> None:
    submission = world.submission(form)
    job = world.post(submission)
    response = world.result_of(submission, job)
    assert response.status == 200
    assert response.body["result"] == {"accepted": False, "extraData": "0x00"}
    assert world.post(submission) == job


@scenario(Phase.OPEN, ("user_decrypt",))
def test_20_1_shares_read_as_the_kms_library_expects(world: World, form: Form) -> None:
    response = world.result_of(world.submission(form))
    assert len(response.body["result"]["result"]) == 9
    for share in response.body["result"]["result"]:
        assert set(share) == {"payload", "signature", "extraData"}
        assert all(isinstance(value, str) for value in share.values())
        assert len(bytes.fromhex(share["signature"])) == 65
        assert share["extraData"] == "0x00"


@FORMS
def test_20_1_14_not_json(world: World, form: Form) -> None:
    response = world.client.post(world.draft(form).path, b"this is not JSON")
    assert response.status == 400
    assert response.error == {"label": "malformed_json", "message": "Invalid JSON format"}


@FORMS
def test_20_1_15_one_invalid_field(world: World, form: Form) -> None:
    draft = world.draft(form)
    response = world.client.post(draft.path, {**draft.body, "extraData": "invalid"})
    assert response.failure == (400, "validation_failed")
    ((field, issue),) = response.details()
    assert field == "extraData"
    assert issue.startswith("Must be 0x00, or a versioned format")
    assert response.error["message"] == "Validation failed for 1 field in the request: extraData"


@FORMS
@pytest.mark.parametrize("damage", ["brace", "comma"])
def test_20_1_16_structurally_broken(world: World, form: Form, damage: str) -> None:
    draft = world.draft(form)
    text = json.dumps(draft.body)
    broken = text[:-1] if damage == "brace" else text.replace(', "', ' "', 1)
    assert world.client.post(draft.path, broken.encode()).failure == (400, "malformed_json")


@FORMS
def test_20_1_17_each_required_key_removed_in_turn(world: World, form: Form) -> None:
    draft = world.draft(form)
    for place, key in places(draft.body):
        body = copy.deepcopy(draft.body)
        holder = body
        for step in place:
            holder = holder[step]
        del holder[key]
        response = world.client.post(draft.path, body)
        assert response.status == 400
        assert response.error == {
            "label": "missing_fields",
            "message": f"Missing 1 required field in the request: {key}",
            "details": [{"field": key, "issue": "Required but missing"}],
        }


def places(body: Any, place: tuple[Any, ...] = ()) -> list[tuple[tuple[Any, ...], str]]:
    """Every key of a body, with the way to the object that holds it."""
    found: list[tuple[tuple[Any, ...], str]] = []
    for key, value in body.items():
        found.append((place, key))
        if isinstance(value, dict):
            found += places(value, (*place, key))
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            found += places(value[0], (*place, key, 0))
    return found


@pytest.mark.parametrize("form", DECRYPTS, ids=[IDS[form] for form in DECRYPTS])
def test_20_1_25_handle_of_an_unknown_chain(world: World, form: Form) -> None:
    draft = world.draft(form, chains=[8009, UNKNOWN_CHAIN])
    response = world.client.post(draft.path, draft.body)
    assert response.status == 400
    assert response.error == {
        "label": "host_chain_id_not_supported",
        "message": "Host chain ID 99999 is not supported by this relayer",
    }


def test_unknown_jobs_and_bad_ids(world: World) -> None:
    for form in ALL:
        path = world.draft(form).path
        assert world.client.get(f"{path}/{uuid4()}").failure == (404, "not_found")
        bad = world.client.get(f"{path}/not-a-uuid")
        assert (bad.status, bad.headers["content-type"].split(";")[0]) == (400, "text/plain")
