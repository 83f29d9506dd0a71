"""fhevm_http 20.1, where something is in the way: silent gateways, failing nodes, refusing contracts."""

from __future__ import annotations

from typing import Any

from tests.wire.aimed import internal, reverted
from tests.wire.campaign import ALL, DECRYPTS, Phase, scenario
from tests.wire.client import Response
from tests.wire.world import World
from workers.devnet.contracts import contract
from workers.devnet.traffic import Form

LARGEST_RETRY_AFTER = "300"
INVALID_USER_SIGNATURE = "0x2a873d27" + f"{32:064x}" + f"{0:064x}"
READY = {"public_decrypt": "4014c4cd", "user_decrypt": "e22d1b26", "delegated": "e22d1b26"}
SIGNATURE_ERROR = {
    "label": "validation_failed",
    "message": "Validation failed for 1 field(s)",
    "details": [{"field": "signature", "issue": "Signature is invalid"}],
}


def pending(world: World, path: str, job_id: str) -> Response:
    """The 202 of a job that is under way."""
    response = world.client.get(f"{path}/{job_id}")
    assert response.status == 202, response.raw
    return response


@scenario(Phase.SILENT, ALL, sends=True)
def test_20_1_02_gateway_never_responds(world: World, form: Form) -> None:
    submission = world.submission(form)
    try:
        job = world.post(submission)
        world.wait_status(job, "receipt_received")
    finally:
        world.sent.reached()
    assert pending(world, submission.path, job).headers["retry-after"] == "4"
    response = world.result_of(submission, job)
    assert response.failure == (503, "response_timed_out")
    assert "did not respond within the expected timeframe" in response.error["message"]
    assert world.row(job).status == "timed_out"
    assert "retry-after" not in response.headers


@scenario(Phase.OPEN, ALL)
def test_20_1_03_first_send_nonce_too_low(world: World, form: Form) -> None:
    submission = world.submission(form)
    error = {"code": -32000, "message": "nonce too low"}
    with world.gateway_error("eth_sendRawTransaction", submission, error, times=1) as aim:
        assert world.result_of(submission).status == 200
    assert aim.hits == 1


@scenario(Phase.OPEN, ALL)
def test_20_1_04_first_send_nonce_too_high(world: World, form: Form) -> None:
    submission = world.submission(form)
    error = {"code": -32000, "message": "nonce too high"}
    with world.gateway_error("eth_sendRawTransaction", submission, error, times=1) as aim:
        assert world.result_of(submission).status == 200
    assert aim.hits == 1


@scenario(Phase.SILENT, ALL)
def test_20_1_05_sending_always_fails(world: World, form: Form) -> None:
    """No signed bytes exist, so the end is a failure (design 5.2.3)."""
    submission = world.submission(form)
    with world.gateway_error("eth_estimateGas", submission, internal()) as aim:
        job = world.post(submission)
        response = world.result_of(submission, job)
    assert aim.hits > 1
    assert response.failure == (500, "internal_server_error")
    assert world.row(job).status == "failure"


@scenario(Phase.STUCK, ALL)
def test_20_1_05_sending_signed_bytes_always_fails(world: World, form: Form) -> None:
    """Deviation of design 5.2.3: signed bytes may still be mined, so a person decides; when they are mined the row goes on."""
    submission = world.submission(form)
    with world.gateway_error("eth_sendRawTransaction", submission, internal()) as aim:
        try:
            job = world.post(submission)
            world.wait_status(job, "tx_in_flight")
        finally:
            world.stuck.reached()
        world.wait_status(job, "needs_review")
        assert pending(world, submission.path, job).headers["retry-after"] == LARGEST_RETRY_AFTER
        assert world.post(submission) == job
    assert aim.hits >= 1
    assert world.wait_status(job, "receipt_received", "timed_out", "completed")
    assert world.row(job).gw_req_tx_hash is not None


@scenario(Phase.PAUSED, ALL)
def test_20_1_06_revert_enforced_pause(world: World, form: Form) -> None:
    response = world.result_of(world.submission(form))
    assert response.failure == (503, "protocol_paused")
    assert "0xd93c0665" in response.error["message"]


@scenario(Phase.SILENT, ALL)
def test_20_1_07_revert_invalid_user_signature(world: World, form: Form) -> None:
    """User decrypts: the contract itself refuses a foreign signature. The others cannot meet it but in a faulty node."""
    submission = world.submission(form)
    if form in ("user_decrypt", "delegated"):
        other = world.draft(form)
        submission.body["signature"] = other.body["signature"]
        response = world.result_of(submission)
    else:
        with world.gateway_error("eth_estimateGas", submission, reverted(INVALID_USER_SIGNATURE)):
            response = world.result_of(submission)
    assert response.status == 400
    assert response.error == SIGNATURE_ERROR


@scenario(Phase.EXPENSIVE, ALL)
def test_20_1_08_revert_insufficient_balance(world: World, form: Form) -> None:
    response = world.result_of(world.submission(form))
    assert response.failure == (503, "insufficient_balance")


@scenario(Phase.UNAPPROVED, ALL)
def test_20_1_09_revert_insufficient_allowance(world: World, form: Form) -> None:
    response = world.result_of(world.submission(form))
    assert response.failure == (503, "insufficient_allowance")


@scenario(Phase.SILENT, ALL)
def test_20_1_10_revert_with_an_unknown_selector(world: World, form: Form) -> None:
    """The reviewer finds selector and data; the client learns only that it failed."""
    submission = world.submission(form)
    with world.gateway_error("eth_estimateGas", submission, reverted("0xdeadbeef" + "00" * 31 + "2a")):
        job = world.post(submission)
        response = world.result_of(submission, job)
    assert response.failure == (500, "internal_server_error")
    assert "0xdeadbeef" in world.row(job).fail_detail


@scenario(Phase.SILENT, DECRYPTS)
def test_20_1_18_readiness_call_errors_until_attempts_end(world: World, form: Form) -> None:
    submission = world.submission(form)
    with world.gateway_error("eth_call", submission, internal(), selector=READY[form]) as aim:
        response = world.result_of(submission)
    assert aim.hits > 1
    assert response.failure == (500, "internal_server_error")
    assert response.error["message"].startswith("Processing Failed: Contract call failed: ")


@scenario(Phase.SILENT, DECRYPTS)
def test_20_1_19_readiness_stays_false(world: World, form: Form) -> None:
    submission = world.allow(world.draft(form), commit=False)
    response = world.result_of(submission)
    assert response.status == 503
    assert response.error == {
        "label": "readiness_check_timed_out",
        "message": "Ciphertext not ready for decryption on the gateway chain",
    }


@scenario(Phase.SILENT, DECRYPTS)
def test_20_1_20_acl_denies_the_single_handle(world: World, form: Form) -> None:
    submission = world.allow(world.draft(form, chains=[8009]), handles=[])
    expect_denied(world.result_of(submission), 1, form)


@scenario(Phase.SILENT, DECRYPTS)
def test_20_1_21_acl_rpc_errors(world: World, form: Form) -> None:
    submission = world.submission(form)
    with world.host_error(submission, internal()) as aim:
        response = world.result_of(submission)
    assert 3 <= aim.hits <= 6  # three tries; the two shifts count apart
    assert response.failure == (500, "host_acl_failed")
    assert response.error["message"].startswith("Host ACL check failed: Host chain 8009 call failed: ")


@scenario(Phase.SILENT, DECRYPTS)
def test_20_1_23_several_some_denied(world: World, form: Form) -> None:
    draft = world.draft(form, chains=[8009, 8009, 8009])
    world.allow(draft, handles=draft.handles[:2])
    response = world.result_of(draft)
    expect_denied(response, 1, form)
    assert draft.handles[2].hex() in response.error["message"]
    assert draft.handles[0].hex() not in response.error["message"]


@scenario(Phase.SILENT, DECRYPTS)
def test_20_1_24_several_all_denied(world: World, form: Form) -> None:
    submission = world.allow(world.draft(form, chains=[8009, 8009]), handles=[])
    expect_denied(world.result_of(submission), 2, form)


@scenario(Phase.SILENT, DECRYPTS)
def test_20_1_27_two_host_chains_all_denied(world: World, form: Form) -> None:
    submission = world.allow(world.draft(form, chains=[8009, 9001]), handles=[])
    expect_denied(world.result_of(submission), 2, form)


@scenario(Phase.SILENT, DECRYPTS)
def test_20_1_27_two_host_chains_one_denied(world: World, form: Form) -> None:
    draft = world.draft(form, chains=[8009, 9001])
    world.allow(draft, handles=draft.handles[:1])
    expect_denied(world.result_of(draft), 1, form)


def expect_denied(response: Response, handles: int, form: Form) -> None:
    """The denial names every negative check; a direct user decryption has two a handle, for the user and the contract."""
    assert response.failure == (400, "not_allowed_on_host_acl")
    message: Any = response.error["message"]
    assert message.startswith(f"Not allowed on host ACL: ACL check failed for {handles} handle(s): handle=0x")
    assert message.count("check=") == handles * (2 if form == "user_decrypt" else 1)


def test_the_selectors_are_those_of_the_contracts() -> None:
    abi = contract("Decryption")
    assert abi.call("isPublicDecryptionReady", [], b"").hex().startswith(READY["public_decrypt"])
    pairs = "isUserDecryptionReady((bytes32,address)[],bytes)"
    assert abi.call(pairs, [], b"").hex().startswith(READY["user_decrypt"])
