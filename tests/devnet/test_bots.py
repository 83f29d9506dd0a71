"""The bots do what a test tells them, and survive being killed."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.devnet.conftest import Devnet, bot, chain, end, layout_at, request_id
from tests.devnet.requesting import gateway_call
from tests.waiting import wait_until
from workers.devnet import anvil, eip712
from workers.devnet.accounts import derive
from workers.devnet.contracts import contract
from workers.devnet.control import Behaviour, parse
from workers.devnet.deploy import deploy
from workers.devnet.deployment import Deployment
from workers.devnet.handles import clear_values
from workers.devnet.kms_bots import FORGER, Request, share_digest, share_payload
from workers.devnet.sending import Call, Sender
from workers.devnet.traffic import Form, Submission, Traffic

SHARE = contract("Decryption").event("UserDecryptionResponse")
REACHED = contract("Decryption").event("UserDecryptionResponseThresholdReached")
PUBLIC = contract("Decryption").event("PublicDecryptionResponse")
REJECTED = contract("InputVerification").event("RejectProofResponse")
VERIFIED = contract("InputVerification").event("VerifyProofResponse")

Behave = Callable[..., None]


def user_request(devnet: Devnet) -> tuple[Submission, str]:
    (submission,) = devnet.traffic.build(["user_decrypt"])
    return submission, request_id(devnet.request(submission)[0])


def parts(devnet: Devnet, submission: Submission, logs: list[dict[str, Any]]) -> list[tuple[int, int | None]]:
    """(index, number of the node that signed, None for nobody registered) of share events."""
    gateway = devnet.deployment.gateway
    domain = eip712.domain("Decryption", gateway["chain_id"], gateway["decryption"])
    nodes = {node.signer.address: number for number, node in enumerate(devnet.deployment.kms, 1)}
    request = Request(submission.handles, submission.public_key, submission.extra_data)
    found = []
    for log in logs:
        index, payload, signature, _ = SHARE.decode(log)
        found.append((index, nodes.get(str(eip712.recover(share_digest(domain, request, payload), signature)))))
    return found


def test_withheld_nodes_never_answer(devnet: Devnet, behave: Behave) -> None:
    behave(user=Behaviour(withhold_nodes=(1, 2, 3, 4, 5)))
    submission, opened = user_request(devnet)
    logs = devnet.wait_logs(SHARE, opened, 8)
    assert parts(devnet, submission, logs) == list(enumerate(range(6, 14)))
    assert devnet.decryption_logs(REACHED, opened) == []


def test_answers_wait_until_they_are_wanted(devnet: Devnet, behave: Behave) -> None:
    behave(user=Behaviour(answer=False), public=Behaviour(answer=False))
    _, opened = user_request(devnet)
    (public,) = devnet.traffic.build(["public_decrypt"])
    asked = request_id(devnet.request(public)[0])
    head = devnet.rpc.head()
    wait_until(lambda: devnet.rpc.head() >= head + 10, 60, "ten blocks")
    assert devnet.decryption_logs(SHARE, opened) == devnet.decryption_logs(PUBLIC, asked) == []
    behave()
    devnet.wait_logs(SHARE, opened, 13)
    devnet.wait_logs(PUBLIC, asked)


def test_reverse_order_changes_the_indexes(devnet: Devnet, behave: Behave) -> None:
    behave(user=Behaviour(order="reverse"))
    submission, opened = user_request(devnet)
    found = parts(devnet, submission, devnet.wait_logs(SHARE, opened, 13))
    assert found == list(enumerate(range(13, 0, -1)))


def test_shares_come_one_by_one(devnet: Devnet, behave: Behave) -> None:
    behave(user=Behaviour(share_pause_seconds=0.1, withhold_nodes=tuple(range(4, 14))))
    submission, opened = user_request(devnet)
    logs = devnet.wait_logs(SHARE, opened, 3)
    assert parts(devnet, submission, logs) == [(0, 1), (1, 2), (2, 3)]
    assert len({log["transactionHash"] for log in logs}) == 3


def test_corrupt_forged_repeated_and_extra_shares(devnet: Devnet, behave: Behave) -> None:
    behave(user=Behaviour(corrupt_nodes=(2,), forge_nodes=(13,), repeat_shares=2, extra_shares=1))
    submission, opened = user_request(devnet)
    logs = devnet.wait_logs(SHARE, opened, 16)
    # By content, not by place: what is sent one by one may be mined before the bulk, and is sent again when it seems lost.
    found = parts(devnet, submission, logs)
    assert set(found) == {*enumerate(range(1, 13)), (12, None), (13, None)}
    assert min(found.count((0, 1)), found.count((1, 2))) >= 2
    logs = [logs[found.index(one)] for one in [*enumerate(range(1, 13)), (12, None)]]
    request = Request(submission.handles, submission.public_key, submission.extra_data)
    assert SHARE.decode(logs[1])[1] != share_payload(2, request)
    assert SHARE.decode(logs[0])[1] == share_payload(1, request)
    gateway = devnet.deployment.gateway
    domain = eip712.domain("Decryption", gateway["chain_id"], gateway["decryption"])
    _, payload, signature, _ = SHARE.decode(logs[12])
    assert eip712.recover(share_digest(domain, request, payload), signature) == FORGER.address


def test_too_few_willing_nodes_give_no_public_result(devnet: Devnet, behave: Behave) -> None:
    behave(public=Behaviour(withhold_nodes=(1, 2, 3), corrupt_nodes=(4, 5)))
    (submission,) = devnet.traffic.build(["public_decrypt"])
    silent = request_id(devnet.request(submission)[0])
    head = devnet.rpc.head()
    wait_until(lambda: devnet.rpc.head() >= head + 10, 60, "ten blocks")
    behave(public=Behaviour(withhold_nodes=(1, 2, 3, 4)))
    (submission,) = devnet.traffic.build(["public_decrypt"])
    answered = request_id(devnet.request(submission)[0])
    value, signatures, _ = PUBLIC.decode(devnet.wait_logs(PUBLIC, answered)[0])
    assert (value, len(signatures)) == (clear_values(submission.handles), 9)
    assert devnet.decryption_logs(PUBLIC, silent) == []


def test_rejected_proofs(devnet: Devnet, behave: Behave) -> None:
    behave(input=Behaviour(reject=True))
    (submission,) = devnet.traffic.build(["input_proof"])
    opened = request_id(devnet.request(submission)[0])
    assert len(devnet.wait_logs(REJECTED, opened, 1, "input_verification")) == 1
    verification = devnet.deployment.gateway["input_verification"]
    assert devnet.read("InputVerification", verification, "isProofRejected", int(opened, 16))


@pytest.mark.parametrize(
    "document",
    [{"nobody": {}}, {"user": {"unknown": 1}}, {"input": {"reject": True, "x": 0}}],
)
def test_a_wrong_control_file_is_refused(document: dict[str, dict[str, Any]]) -> None:
    with pytest.raises(ValueError, match="unknown behaviour"):
        parse(document)


def test_a_hundred_requests_in_one_block(devnet: Devnet) -> None:
    submissions = devnet.traffic.build(["user_decrypt", "public_decrypt", "unified", "input_proof"] * 25)
    ids = [request_id(receipt) for receipt in devnet.request(*submissions)]
    for submission, opened in zip(submissions, ids, strict=True):
        if submission.form == "public_decrypt":
            assert len(devnet.wait_logs(PUBLIC, opened)) == 1
        elif submission.form == "input_proof":
            assert len(devnet.wait_logs(VERIFIED, opened, 1, "input_verification")) == 1
        else:
            assert len(devnet.wait_logs(SHARE, opened, 13)) == 13


@pytest.mark.parametrize("form", ["user_decrypt", "public_decrypt", "input_proof"])
def test_an_answer_that_could_not_be_sent_is_sent_later(devnet: Devnet, form: Form) -> None:
    """Somebody else used the bot's account: its next transaction has a stale nonce and is refused by the node."""
    warm_up, submission = devnet.traffic.build([form, form])
    event, key = {
        "user_decrypt": (REACHED, "decryption"),
        "public_decrypt": (PUBLIC, "decryption"),
        "input_proof": (VERIFIED, "input_verification"),
    }[form]
    devnet.wait_logs(event, request_id(devnet.request(warm_up)[0]), 1, key)
    node = devnet.deployment.coprocessors[0] if form == "input_proof" else devnet.deployment.kms[0]
    nothing = Call(node.sender.address, b"")
    Sender(devnet.rpc, node.sender, devnet.deployment.gateway["chain_id"]).run([nothing] * 3)
    assert len(devnet.wait_logs(event, request_id(devnet.request(submission)[0]), 1, key)) == 1


def test_kills_lose_nothing_and_repeat_nothing(tmp_path: Any) -> None:
    """Requests that no bot was there for, a chain that restarted meanwhile, a bot killed and started again: each request
    is answered once in the end. A chain without its state is another one."""
    layout = layout_at(tmp_path)
    with chain(layout, "host"):
        with chain(layout, "gateway") as gateway:
            document = deploy(layout)
            deployment = Deployment.read(layout.deployment)
            traffic = Traffic(deployment)
            submissions = traffic.build(["user_decrypt", "public_decrypt", "user_decrypt"])
            traffic.close()
            with deployment.gateway_rpc() as rpc:
                relayer = Sender(rpc, derive().relayer[0], deployment.gateway["chain_id"])
                calls = [gateway_call(deployment, submission) for submission in submissions]
                ids = [request_id(one) for one in rpc.receipts(relayer.send(calls))]
            end(gateway)
        assert layout.state("gateway").exists()
        with chain(layout, "gateway") as gateway:
            assert deploy(layout) == document
            for how in (signal.SIGKILL, signal.SIGTERM):
                with bot(layout, "kms") as kms, deployment.gateway_rpc() as rpc:
                    wait_until(lambda: _counts(deployment, rpc, ids) == [13, 1, 13], 60, "all answers")
                    end(kms, how)
            end(gateway)
        for path in anvil.CHAINS:
            layout.state(path).unlink(missing_ok=True)
        with chain(layout, "gateway"), deployment.gateway_rpc() as rpc:
            rpc.wait_ready(deployment.gateway["chain_id"], 60)
            assert rpc.genesis_hash() != deployment.gateway["genesis_hash"]
            assert not deployment.matches_chains()


def _counts(deployment: Deployment, rpc: Any, ids: list[str]) -> list[int]:
    topics = [SHARE.topic, PUBLIC.topic]
    address = deployment.gateway["decryption"]
    return [len(rpc.logs([address], [topics, opened], 0, rpc.head())) for opened in ids]
