"""The answer functions that real nodes call one by one: thresholds, order of arrival, repeats, and what comes after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.devnet.conftest import Devnet, request_id
from tests.devnet.test_rules import refusal
from workers.devnet import eip712
from workers.devnet.ciphertext import fhe_types
from workers.devnet.contracts import contract
from workers.devnet.control import Behaviour
from workers.devnet.coprocessor_bots import Proof, proof_digest
from workers.devnet.deployment import Node
from workers.devnet.handles import clear_values, derive
from workers.devnet.kms_bots import Request, share_digest, share_payload
from workers.devnet.sending import Call, Sender
from workers.devnet.traffic import Form, Submission
from workers.devnet.verify import Verifier

DECRYPTION, VERIFICATION = contract("Decryption"), contract("InputVerification")
SHARE = DECRYPTION.event("UserDecryptionResponse")
REACHED = DECRYPTION.event("UserDecryptionResponseThresholdReached")
PUBLIC = DECRYPTION.event("PublicDecryptionResponse")
VERIFIED = VERIFICATION.event("VerifyProofResponse")
REJECTED = VERIFICATION.event("RejectProofResponse")


@pytest.fixture(autouse=True)
def silent_bots(behave: Callable[..., None]) -> None:
    """The bots stay away from these requests."""
    away = Behaviour(withhold_nodes=tuple(range(1, 14)))
    behave(user=away, public=away, input=away)


def opened(devnet: Devnet, form: Form) -> tuple[Submission, str]:
    (submission,) = devnet.traffic.build([form])
    return submission, request_id(devnet.request(submission)[0])


def send(devnet: Devnet, node: Node, call: Call) -> None:
    Sender(devnet.rpc, node.sender, devnet.deployment.gateway["chain_id"]).run([call])


def domain(devnet: Devnet, name: str, key: str) -> bytes:
    gateway = devnet.deployment.gateway
    return eip712.domain(name, gateway["chain_id"], gateway[key])


def share(devnet: Devnet, submission: Submission, request: str, number: int) -> Call:
    asked = Request(submission.handles, submission.public_key, submission.extra_data)
    payload = share_payload(number, asked)
    message = share_digest(domain(devnet, "Decryption", "decryption"), asked, payload)
    signature = eip712.sign(devnet.deployment.kms[number - 1].signer.key, message)
    data = DECRYPTION.call("userDecryptionResponse", int(request, 16), payload, signature, submission.extra_data)
    return Call(devnet.deployment.gateway["decryption"], data)


def value(devnet: Devnet, submission: Submission, request: str, number: int, result: bytes) -> Call:
    members: tuple[Any, ...] = (list(submission.handles), result, b"")
    message = eip712.digest(domain(devnet, "Decryption", "decryption"), eip712.PUBLIC, *members)
    signature = eip712.sign(devnet.deployment.kms[number - 1].signer.key, message)
    data = DECRYPTION.call("publicDecryptionResponse", int(request, 16), result, signature, b"")
    return Call(devnet.deployment.gateway["decryption"], data)


def test_shares_count_in_order_of_arrival(devnet: Devnet) -> None:
    submission, request = opened(devnet, "user_decrypt")
    kms = devnet.deployment.kms
    order = [13, 2, 7, 1, 3, 4, 5, 6]
    for number in order:
        send(devnet, kms[number - 1], share(devnet, submission, request, number))
    assert devnet.decryption_logs(REACHED, request) == []
    assert refusal(devnet, share(devnet, submission, request, 2), kms[1].sender.address) == "KmsNodeAlreadySigned"
    wrong_sender = refusal(devnet, share(devnet, submission, request, 8), kms[8].sender.address)
    assert wrong_sender == "KmsSignerDoesNotMatchTxSender"
    for number in (8, 9):
        send(devnet, kms[number - 1], share(devnet, submission, request, number))
    logs = devnet.decryption_logs(SHARE, request)
    assert [SHARE.decode(log)[0] for log in logs] == list(range(10))
    # The ninth reaches the threshold; the tenth is heard all the same.
    (reached,) = devnet.decryption_logs(REACHED, request)
    assert reached["blockNumber"] == logs[8]["blockNumber"]
    assert Verifier(devnet.deployment).chain_answer(devnet.rpc, submission, request) == 10


def test_a_share_of_a_stranger_is_refused(devnet: Devnet) -> None:
    submission, request = opened(devnet, "unified")
    other, _ = opened(devnet, "unified")
    call = share(devnet, other, request, 1)
    assert refusal(devnet, call, devnet.deployment.kms[0].sender.address) == "NotKmsSigner"
    send(devnet, devnet.deployment.kms[0], share(devnet, submission, request, 1))


def test_public_results_need_nine_that_agree(devnet: Devnet) -> None:
    submission, request = opened(devnet, "public_decrypt")
    kms, right = devnet.deployment.kms, clear_values(submission.handles)
    send(devnet, kms[0], value(devnet, submission, request, 1, bytes(64)))
    for number in range(2, 10):
        send(devnet, kms[number - 1], value(devnet, submission, request, number, right))
    assert devnet.decryption_logs(PUBLIC, request) == []
    for number in (10, 11):
        send(devnet, kms[number - 1], value(devnet, submission, request, number, right))
    assert len(devnet.decryption_logs(PUBLIC, request)) == 1
    assert Verifier(devnet.deployment).chain_answer(devnet.rpc, submission, request) == 9


@pytest.mark.parametrize("first", ["accept", "reject"])
def test_the_second_of_three_coprocessors_decides(devnet: Devnet, first: str) -> None:
    submission, request = opened(devnet, "input_proof")
    nodes, host = devnet.deployment.coprocessors, devnet.deployment.host
    body = submission.body
    ciphertext = bytes.fromhex(body["ciphertextWithInputVerification"])
    handles = derive(ciphertext, fhe_types(ciphertext), host["acl"], host["chain_id"])
    proof = Proof(host["chain_id"], body["contractAddress"], body["userAddress"], ciphertext, b"\x00")
    message = proof_digest(domain(devnet, "InputVerification", "input_verification"), handles, proof)
    address = devnet.deployment.gateway["input_verification"]

    def accept(node: Node) -> Call:
        signed = eip712.sign(node.signer.key, message)
        return Call(address, VERIFICATION.call("verifyProofResponse", int(request, 16), handles, signed, b"\x00"))

    def reject(node: Node) -> Call:
        return Call(address, VERIFICATION.call("rejectProofResponse", int(request, 16), b"\x00"))

    same, other = (accept, reject) if first == "accept" else (reject, accept)
    send(devnet, nodes[0], same(nodes[0]))
    repeat = {"accept": "CoprocessorAlreadyVerified", "reject": "CoprocessorAlreadyRejected"}[first]
    assert refusal(devnet, same(nodes[0]), nodes[0].sender.address) == repeat
    send(devnet, nodes[1], other(nodes[1]))
    events = [VERIFIED, REJECTED] if first == "accept" else [REJECTED, VERIFIED]
    assert not any(devnet.decryption_logs(event, request, "input_verification") for event in events)
    send(devnet, nodes[2], same(nodes[2]))
    counts = [len(devnet.decryption_logs(event, request, "input_verification")) for event in events]
    assert counts == [1, 0]
