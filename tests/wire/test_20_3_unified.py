"""fhevm_http 20.3: the unified user decryption of v3, and its wallet cases of 20.5, against the running stack."""

from __future__ import annotations

import copy
import time
from typing import Any

import pytest

from tests.wire.aimed import Aim, reverted
from tests.wire.bodies import UNIFIED, unified_signature, unified_signed
from tests.wire.campaign import Phase, scenario
from tests.wire.client import Response
from tests.wire.test_20_1_faults import SIGNATURE_ERROR
from tests.wire.world import World
from workers.devnet.traffic import Form, Submission
from workers.devnet.verify import Verifier

V3: tuple[Form, ...] = ("unified",)
PATH = "/v3/user-decrypt"
POLL_ROUTES = ("/v3/user-decrypt", "/v2/user-decrypt", "/v2/delegated-user-decrypt")


def signed(world: World, **changes: Any) -> dict[str, Any]:
    return unified_signed(world.draft("unified"), world.stack.deployment.users, world.domain, **changes)


def changed(world: World, **members: Any) -> dict[str, Any]:
    """A signed body with other payload members, the signature as it was."""
    body = copy.deepcopy(world.draft("unified").body)
    body[UNIFIED].update(members)
    return dict(body)


def wrong_signature(response: Response) -> None:
    assert response.status == 400
    assert response.error == SIGNATURE_ERROR


def test_20_3_01_one_direct_handle(world: World) -> None:
    draft = world.draft("unified", chains=[8009])
    assert world.client.post(PATH, draft.body).job_id


def test_20_3_02_mixed_handles_and_changed_after_signing(world: World) -> None:
    body = world.draft("unified", chains=[8009, 8009]).body
    body[UNIFIED]["handles"][1]["ownerAddress"] = "0x" + "33" * 20
    assert world.client.post(PATH, body).job_id


def test_20_3_03_empty_allowed_contracts(world: World) -> None:
    assert world.client.post(PATH, signed(world, allowedContracts=[])).job_id


def test_20_3_04_several_allowed_contracts(world: World) -> None:
    several = ["0x" + digit * 40 for digit in "123"]
    assert world.client.post(PATH, signed(world, allowedContracts=several)).job_id


@pytest.mark.parametrize("signature", ["0x" + "77" * 100, "0x" + "00" * 65])
def test_20_3_05_junk_signature_of_a_plain_account(world: World, signature: str) -> None:
    wrong_signature(world.client.post(PATH, {**world.draft("unified").body, "signature": signature}))


@pytest.mark.parametrize("signature", ["0x", ""])
def test_20_3_06_empty_signature_of_a_plain_account(world: World, signature: str) -> None:
    wrong_signature(world.client.post(PATH, {**world.draft("unified").body, "signature": signature}))


def refused(response: Response, field: str, issue: str) -> None:
    assert response.failure == (400, "validation_failed")
    assert response.details() == {(field, issue)}


def test_20_3_07_unknown_attestation_type(world: World) -> None:
    body = {**world.draft("unified").body, "attestationType": "other"}
    issue = "Unsupported attestationType; expected one of: [eip712-unified-user-decrypt-v1]"
    refused(world.client.post(PATH, body), "attestationType", issue)


def missing(response: Response, field: str) -> None:
    assert response.failure == (400, "missing_fields")
    assert response.details() == {(field, "Required but missing")}


def test_20_3_08_no_attestation_type(world: World) -> None:
    body = dict(world.draft("unified").body)
    del body["attestationType"]
    missing(world.client.post(PATH, body), "attestationType")


def test_20_3_09_other_version(world: World) -> None:
    response = world.client.post(PATH, changed(world, version="2.1"))
    refused(response, "attestedPayload.version", 'Unsupported version; expected "2.0"')


def test_20_3_10_other_payload_type(world: World) -> None:
    response = world.client.post(PATH, changed(world, type="public_decryption"))
    refused(response, "attestedPayload.type", 'Unsupported payload type; expected "user_decryption"')


def test_20_3_11_no_handles(world: World) -> None:
    refused(world.client.post(PATH, changed(world, handles=[])), "attestedPayload.handles", "Must not be empty")


def test_20_3_12_handle_without_owner(world: World) -> None:
    body = world.draft("unified").body
    del body[UNIFIED]["handles"][0]["ownerAddress"]
    missing(world.client.post(PATH, body), "ownerAddress")


def test_20_3_13_window_over(world: World) -> None:
    over = {"startTimestamp": str(int(time.time()) - 100), "durationSeconds": "99"}
    response = world.client.post(PATH, changed(world, requestValidity=over))
    refused(response, "attestedPayload.requestValidity", "requestValidity window has already expired")


@pytest.mark.parametrize(
    "extra_data", ["0x01" + "06" + "00" * 31, "0x02" + "07" + "00" * 31 + "07" + "00" * 31], ids=["context", "epoch"]
)
def test_20_3_14_untagged_extra_data(world: World, extra_data: str) -> None:
    response = world.client.post(PATH, changed(world, extraData=extra_data))
    assert response.failure == (400, "validation_failed")
    assert [field for field, _ in response.details()] == ["attestedPayload.extraData"]


def test_20_3_15_unknown_envelope_key(world: World) -> None:
    body = {**world.draft("unified").body, "extraneousField": 1}
    refused(world.client.post(PATH, body), "extraneousField", "Unknown field")


def test_20_3_16_not_json(world: World) -> None:
    assert world.client.post(PATH, b"not JSON").error == {"label": "malformed_json", "message": "Invalid JSON format"}


@scenario(Phase.OPEN, V3)
def test_20_3_17_full_run(world: World, form: Form) -> None:
    """Nine shares; and 20.5: the job is found on every user-decrypt route."""
    submission = world.submission(form)
    job = world.post(submission)
    result = world.result_of(submission, job).body["result"]
    assert Verifier(world.stack.deployment).check(submission, result) == 9
    for route in POLL_ROUTES:
        assert world.client.get(f"{route}/{job}").body["result"] == result
    assert world.client.get(f"/v2/public-decrypt/{job}").failure == (404, "not_found")


@pytest.mark.parametrize("version", [1, 2])
def test_20_4_threshold_of_a_kms_context_and_extra_data_versions(world: World, version: int) -> None:
    """The threshold of the named context is read from the host chain; the extra data comes back in every share."""
    raw = world.stack.deployment.raw
    extra = f"0x0{version}" + raw["kms_context_id"][2:] + (raw["kms_epoch_id"][2:] if version == 2 else "")
    submission = world.submission("unified", extra)
    job = world.post(submission)
    shares = world.result_of(submission, job).body["result"]["result"]
    assert {share["extraData"] for share in shares} == {extra}
    with world.stack.database() as conn:
        row = conn.execute("SELECT resolved_threshold FROM user_decrypt_req WHERE ext_job_id = %s", (job,)).fetchone()
    assert row == (len(shares),) == (9,)


def wallet_body(world: World, key: bytes) -> dict[str, Any]:
    """A request of the contract wallet on the host chain, signed by `key`."""
    body = copy.deepcopy(world.draft("unified", chains=[8009]).body)
    wallet = world.stack.deployment.host["contract_wallet"]
    body[UNIFIED]["userAddress"] = body[UNIFIED]["handles"][0]["ownerAddress"] = wallet
    body["signature"] = unified_signature(body[UNIFIED], key, world.domain)
    return dict(body)


def test_20_5_wallet_accepts(world: World) -> None:
    owner = world.stack.deployment.users[0]
    assert world.client.post(PATH, wallet_body(world, owner.key)).job_id


def test_20_5_wallet_full_run(world: World) -> None:
    """The gateway is told that this user is a wallet; its signature is then the wallet's business all the way."""
    wallet = world.stack.deployment.host["contract_wallet"]
    world.as_owner("Decryption", "decryption", "setContractWallet", wallet, True)
    body = wallet_body(world, world.stack.deployment.users[0].key)
    handle = bytes.fromhex(body[UNIFIED]["handles"][0]["ctHandle"][2:])
    submission = Submission("unified", body, (handle,), bytes.fromhex(body[UNIFIED]["publicKey"][2:]))
    world.allow(submission)
    assert Verifier(world.stack.deployment).check(submission, world.result_of(submission).body["result"]) == 9


def test_20_5_wallet_says_another_value(world: World) -> None:
    stranger = world.stack.deployment.users[1]
    wrong_signature(world.client.post(PATH, wallet_body(world, stranger.key)))


def test_20_5_wallet_reverts(world: World) -> None:
    body = wallet_body(world, world.stack.deployment.users[0].key)
    with world.host_proxy.aimed(Aim("eth_call", (body["signature"][2:],), reverted("0x"))) as aim:
        wrong_signature(world.client.post(PATH, body))
    assert aim.hits == 1


def test_20_5_wallets_chain_does_not_answer(world: World) -> None:
    body = wallet_body(world, world.stack.deployment.users[0].key)
    with world.host_proxy.aimed(Aim("eth_call", (body["signature"][2:],), silence=True)) as aim:
        response = world.client.post(PATH, body)
    assert response.status == 500
    assert response.error == {"label": "internal_server_error", "message": "Internal server error"}
    assert aim.hits >= 3


def test_20_5_probe_of_the_new_sdk(world: World) -> None:
    missing(world.client.post(PATH, b"{}"), "attestationType")
    assert world.client.post("/v4/user-decrypt", b"{}").status == 404
