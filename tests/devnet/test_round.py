"""Every form of request goes through the real contracts and comes back with answers that check."""

from __future__ import annotations

from typing import Any

import pytest

from tests.devnet.conftest import Devnet, request_id
from tests.waiting import wait_until
from workers.devnet import plan
from workers.devnet.ciphertext import fhe_types
from workers.devnet.contracts import contract
from workers.devnet.traffic import FORMS, Submission
from workers.devnet.verify import Mismatch, Verifier, requests_for

DECRYPTION = contract("Decryption")
SHARE = DECRYPTION.event("UserDecryptionResponse")
REACHED = DECRYPTION.event("UserDecryptionResponseThresholdReached")
PUBLIC = DECRYPTION.event("PublicDecryptionResponse")
VERIFIED = contract("InputVerification").event("VerifyProofResponse")


def shares(devnet: Devnet, opened: str) -> list[dict[str, str]]:
    """All 13 shares as the API shows them."""
    found = [SHARE.decode(log) for log in devnet.wait_logs(SHARE, opened, 13)]
    assert [index for index, *_ in found] == list(range(13))
    return [{"payload": p.hex(), "signature": s.hex(), "extraData": "0x" + e.hex()} for _, p, s, e in found]


def result(devnet: Devnet, submission: Submission, opened: str) -> dict[str, Any]:
    """The result of the API's GET, made from the chain's events."""
    if submission.form == "input_proof":
        handles, signatures = VERIFIED.decode(devnet.wait_logs(VERIFIED, opened, 1, "input_verification")[0])
        return {
            "accepted": True,
            "handles": ["0x" + one.hex() for one in handles],
            "signatures": ["0x" + one.hex() for one in signatures],
        }
    if submission.form == "public_decrypt":
        value, signatures, extra = PUBLIC.decode(devnet.wait_logs(PUBLIC, opened)[0])
        signed = [one.hex() for one in signatures]
        return {"decryptedValue": value.hex(), "signatures": signed, "extraData": "0x" + extra.hex()}
    return {"result": shares(devnet, opened)}


def test_every_form_is_answered_and_checks(devnet: Devnet) -> None:
    first = devnet.rpc.head()
    submissions = devnet.traffic.build(FORMS)
    receipts = devnet.request(*submissions)
    ids = [request_id(receipt) for receipt in receipts]
    assert [opened[:4] for opened in ids] == ["0x00", "0x01", "0x02", "0x02", "0x02"]
    verifier = Verifier(devnet.deployment)
    counts = [verifier.check(one, result(devnet, one, opened)) for one, opened in zip(submissions, ids, strict=True)]
    assert counts == [3, 9, 13, 13, 13]
    on_chain = [verifier.chain_answer(devnet.rpc, one, opened) for one, opened in zip(submissions, ids, strict=True)]
    assert on_chain == counts
    with pytest.raises(Mismatch):
        verifier.chain_answer(devnet.rpc, submissions[2], ids[3])
    opened = requests_for(devnet.deployment, devnet.rpc, submissions, first, devnet.rpc.head())
    expected = [[(one, receipt["transactionHash"])] for one, receipt in zip(ids, receipts, strict=True)]
    assert [[(event.reference_id, event.tx_hash) for event in events] for events in opened] == expected


def test_a_request_sent_twice_is_seen_as_two(devnet: Devnet) -> None:
    first = devnet.rpc.head()
    (submission,) = devnet.traffic.build(["public_decrypt"])
    devnet.request(submission, submission)
    (opened,) = requests_for(devnet.deployment, devnet.rpc, [submission], first, devnet.rpc.head())
    assert len(opened) == 2


def test_consensus_shows_on_chain(devnet: Devnet) -> None:
    submissions = devnet.traffic.build(["public_decrypt", "unified", "input_proof"])
    ids = [request_id(receipt) for receipt in devnet.request(*submissions)]
    decryption = devnet.deployment.gateway["decryption"]
    devnet.wait_logs(PUBLIC, ids[0])
    assert len(devnet.wait_logs(REACHED, ids[1])) == 1
    for opened in ids[:2]:
        assert devnet.read("Decryption", decryption, "isDecryptionDone", int(opened, 16))
        senders = devnet.read("Decryption", decryption, "getDecryptionConsensusTxSenders", int(opened, 16))
        assert list(senders) == [node.sender.address for node in devnet.deployment.kms[:9]]
    devnet.wait_logs(VERIFIED, ids[2], 1, "input_verification")
    verification = devnet.deployment.gateway["input_verification"]
    assert devnet.read("InputVerification", verification, "isProofVerified", int(ids[2], 16))
    assert not devnet.read("InputVerification", verification, "isProofRejected", int(ids[2], 16))


def test_versioned_extra_data_is_answered_as_it_is(devnet: Devnet) -> None:
    context = "0x01" + devnet.deployment.raw["kms_context_id"][2:]
    public, direct = devnet.traffic.build(["public_decrypt", "user_decrypt"], extra_data=context)
    ids = [request_id(receipt) for receipt in devnet.request(public, direct)]
    found = result(devnet, public, ids[0])
    assert found["extraData"] == context
    verifier = Verifier(devnet.deployment)
    verifier.check(public, found)
    verifier.check(direct, result(devnet, direct, ids[1]))


def test_each_request_costs_its_fee(devnet: Devnet) -> None:
    gateway = devnet.deployment.gateway
    before = devnet.read("ZamaToken", gateway["fee_token"], "balanceOf", devnet.relayer.address)
    devnet.request(*devnet.traffic.build(["input_proof", "public_decrypt", "delegated"]))
    after = devnet.read("ZamaToken", gateway["fee_token"], "balanceOf", devnet.relayer.address)
    assert before - after == plan.INPUT_PRICE + 2 * plan.DECRYPTION_PRICE


def test_proven_handles_can_be_decrypted(devnet: Devnet) -> None:
    (submission,) = devnet.traffic.build(["input_proof"])
    opened = request_id(devnet.request(submission)[0])
    handles, _ = VERIFIED.decode(devnet.wait_logs(VERIFIED, opened, 1, "input_verification")[0])
    types = fhe_types(bytes.fromhex(submission.body["ciphertextWithInputVerification"]))
    assert [handle[30] for handle in handles] == types == [0, 4]
    decryption = devnet.deployment.gateway["decryption"]
    wait_until(
        lambda: devnet.read("Decryption", decryption, "isPublicDecryptionReady", list(handles), b"\x00"),
        10,
        "the commit of the proven ciphertexts",
    )


@pytest.mark.parametrize("spoil", ["payload", "signature", "repeat", "few"])
def test_the_verifier_refuses_wrong_shares(devnet: Devnet, spoil: str) -> None:
    (submission,) = devnet.traffic.build(["user_decrypt"])
    found = shares(devnet, request_id(devnet.request(submission)[0]))
    verifier = Verifier(devnet.deployment)
    assert verifier.user_decrypt(submission, found) == 13
    if spoil == "payload":
        found[4]["payload"] = found[5]["payload"]
    elif spoil == "signature":
        found[4]["signature"] = "00" * 65
    elif spoil == "repeat":
        found[4] = found[5]
    else:
        found = found[:8]
    with pytest.raises(Mismatch):
        verifier.user_decrypt(submission, found)


def test_the_verifier_refuses_wrong_results(devnet: Devnet) -> None:
    (submission,) = devnet.traffic.build(["public_decrypt"])
    found = result(devnet, submission, request_id(devnet.request(submission)[0]))
    verifier = Verifier(devnet.deployment)
    assert verifier.check(submission, found) == 9
    for wrong in (
        {"decryptedValue": "00" * 64},
        {"extraData": "0x00"},
        {"signatures": found["signatures"][:8]},
        {"signatures": [*found["signatures"][:8], found["signatures"][0]]},
    ):
        with pytest.raises(Mismatch):
            verifier.check(submission, {**found, **wrong})
