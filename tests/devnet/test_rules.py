"""What the gateway contracts refuse, and with which custom error. Asked by eth_call, so nothing is sent."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest

from tests.devnet.conftest import Devnet
from workers.devnet import eip712
from workers.devnet.contracts import contract, signature
from workers.devnet.eip712 import keccak256
from workers.devnet.handles import EUINT64, fresh
from workers.devnet.rpc import RpcFailure
from workers.devnet.sending import Call
from workers.devnet.traffic import Form, Submission

ERROR_NAMES = {
    keccak256(signature(entry).encode())[:4]: entry["name"]
    for name in ("Decryption", "InputVerification", "GatewayConfig", "CiphertextCommits", "ZamaToken")
    for entry in contract(name).abi
    if entry["type"] == "error"
}
STRANGER = "0x" + "77" * 20


def refusal(devnet: Devnet, call: Call, sender: str | None = None) -> str:
    """The name of the custom error that the call reverts with, or "accepted"."""
    query = {"from": sender or devnet.relayer.address, "to": call.to, "data": "0x" + call.data.hex()}
    try:
        devnet.rpc.call("eth_call", query, "latest")
    except RpcFailure as error:
        return ERROR_NAMES.get(bytes.fromhex(str(error.data)[2:10]), str(error.data))
    return "accepted"


@pytest.fixture(scope="module")
def good(devnet: Devnet) -> dict[str, Submission]:
    """One acceptable body of each form."""
    forms: list[Form] = ["input_proof", "public_decrypt", "user_decrypt", "delegated", "unified"]
    return {submission.form: submission for submission in devnet.traffic.build(forms)}


@pytest.mark.parametrize("form", ["input_proof", "public_decrypt", "user_decrypt", "delegated", "unified"])
def test_good_bodies_are_accepted(devnet: Devnet, good: dict[str, Submission], form: str) -> None:
    assert refusal(devnet, devnet.call_of(good[form])) == "accepted"


Change = Callable[[dict[str, Any]], object]


def validity(start: int | None = None, **values: str) -> Change:
    def change(body: dict[str, Any]) -> None:
        holder = body.get("attestedPayload", body).get("requestValidity", body)
        holder.update(values)
        if start is not None:
            holder["startTimestamp"] = str(int(time.time()) + start)

    return change


CASES: list[tuple[str, str, Change]] = [
    ("user_decrypt", "InvalidNullDurationDays", validity(durationDays="0")),
    ("user_decrypt", "MaxDurationDaysExceeded", validity(durationDays="366")),
    ("user_decrypt", "StartTimestampInFuture", validity(start=9_999)),
    ("user_decrypt", "UserDecryptionRequestExpired", validity(start=-90_000, durationDays="1")),
    ("delegated", "InvalidNullDurationDays", validity(durationDays="0")),
    ("unified", "InvalidNullDurationSeconds", validity(durationSeconds="0")),
    ("unified", "MaxDurationSecondsExceeded", validity(durationSeconds="31536001")),
    ("unified", "StartTimestampInFuture", validity(start=9_999)),
    ("unified", "UserDecryptionRequestExpiredSeconds", validity(start=-9_999, durationSeconds="5")),
    ("user_decrypt", "HostChainNotRegistered", lambda body: body.update(contractsChainId="1")),
    ("user_decrypt", "EmptyContractAddresses", lambda body: body.update(contractAddresses=[])),
    (
        "user_decrypt",
        "ContractAddressesMaxLengthExceeded",
        lambda body: body.update(contractAddresses=[STRANGER] * 11),
    ),
    (
        "user_decrypt",
        "UserAddressInContractAddresses",
        lambda body: body["contractAddresses"].append(body["userAddress"]),
    ),
    (
        "delegated",
        "DelegatorAddressInContractAddresses",
        lambda body: body["contractAddresses"].append(body["delegatorAddress"]),
    ),
    ("user_decrypt", "InvalidUserSignature", lambda body: body.update(publicKey="ab" * 869)),
    ("user_decrypt", "InvalidUserSignature", lambda body: body.update(userAddress=STRANGER)),
    ("user_decrypt", "ECDSAInvalidSignatureLength", lambda body: body.update(signature="ab" * 64)),
    ("user_decrypt", "ECDSAInvalidSignature", lambda body: body.update(signature=body["signature"][:-2] + "05")),
    ("user_decrypt", "ECDSAInvalidSignatureS", lambda body: body.update(signature=body["signature"][:64] + "ff" * 33)),
    ("delegated", "InvalidUserSignature", lambda body: body.update(delegatorAddress=STRANGER)),
    ("unified", "InvalidUserSignature", lambda body: body["attestedPayload"].update(userAddress=STRANGER)),
    (
        "user_decrypt",
        "ContractNotInContractAddresses",
        lambda body: body["handleContractPairs"][0].update(contractAddress=STRANGER),
    ),
    ("user_decrypt", "EmptyCtHandleContractPairs", lambda body: body.update(handleContractPairs=[])),
    ("unified", "EmptyHandles", lambda body: body["attestedPayload"].update(handles=[])),
    (
        "user_decrypt",
        "CtHandleChainIdDiffersFromContractChainId",
        lambda body: body["handleContractPairs"][0].update(handle="0x" + fresh(1, EUINT64).hex()),
    ),
    ("input_proof", "HostChainNotRegistered", lambda body: body.update(contractChainId="0x1")),
    ("input_proof", "UnsupportedExtraDataVersion", lambda body: body.update(extraData="0x09")),
    ("public_decrypt", "InvalidExtraDataLength", lambda body: body.update(extraData="0x01" + "07" * 31)),
    ("public_decrypt", "InvalidNullContextId", lambda body: body.update(extraData="0x01" + "00" * 32)),
    ("public_decrypt", "InvalidKmsContext", lambda body: body.update(extraData="0x01" + "07" * 32)),
    ("public_decrypt", "UnsupportedExtraDataVersion", lambda body: body.update(extraData="0x03" + "07" * 32)),
]


@pytest.mark.parametrize(("form", "error", "change"), CASES, ids=[f"{form}-{error}" for form, error, _ in CASES])
def test_refused(devnet: Devnet, good: dict[str, Submission], form: str, error: str, change: Change) -> None:
    body = deepcopy(good[form].body)
    change(body)
    assert refusal(devnet, devnet.call_of(dataclasses.replace(good[form], body=body))) == error


@pytest.mark.parametrize(
    ("error", "handles"),
    [
        ("EmptyCtHandles", []),
        ("CiphertextMaterialNotFound", [fresh(8009, EUINT64)]),
        ("HostChainNotRegistered", [fresh(1, EUINT64)]),
        ("MaxDecryptionRequestBitSizeExceeded", [fresh(8009, 8)] * 9),
        ("UnsupportedFHEType", [fresh(8009, 1)]),
        ("InvalidFHEType", [fresh(8009, 84)]),
    ],
)
def test_refused_handles(devnet: Devnet, good: dict[str, Submission], error: str, handles: list[bytes]) -> None:
    changed = dataclasses.replace(good["public_decrypt"], handles=tuple(handles))
    assert refusal(devnet, devnet.call_of(changed)) == error


def test_2048_bits_are_just_allowed(devnet: Devnet, good: dict[str, Submission]) -> None:
    handles = tuple(fresh(8009, 8) for _ in range(8))
    devnet.traffic.commit(handles)
    assert refusal(devnet, devnet.call_of(dataclasses.replace(good["public_decrypt"], handles=handles))) == "accepted"


def test_handles_of_two_keys_are_refused(devnet: Devnet, good: dict[str, Submission]) -> None:
    other = fresh(8009, EUINT64)
    devnet.traffic.commit([other], key_id=99)
    handles = (*good["public_decrypt"].handles, other)
    changed = dataclasses.replace(good["public_decrypt"], handles=handles)
    assert refusal(devnet, devnet.call_of(changed)) == "DifferentKeyIdsNotAllowed"


def test_a_sender_without_tokens_or_allowance(devnet: Devnet, good: dict[str, Submission]) -> None:
    call = devnet.call_of(good["public_decrypt"])
    user = devnet.deployment.users[0].address
    assert refusal(devnet, call, user) == "ERC20InsufficientAllowance"
    sender = devnet.deployment.operators[3]
    token, payment = devnet.deployment.gateway["fee_token"], devnet.deployment.gateway["payment"]
    from workers.devnet.sending import Sender

    approve = Call(token, contract("ZamaToken").call("approve", payment, 10**30))
    Sender(devnet.rpc, sender, devnet.deployment.gateway["chain_id"]).run([approve])
    assert refusal(devnet, call, sender.address) == "ERC20InsufficientBalance"


@pytest.fixture
def paused(devnet: Devnet) -> Iterator[None]:
    for name, key in (("Decryption", "decryption"), ("InputVerification", "input_verification")):
        devnet.as_owner(name, key, "pause")
    yield
    for name, key in (("Decryption", "decryption"), ("InputVerification", "input_verification")):
        devnet.as_owner(name, key, "unpause")


def test_paused(devnet: Devnet, good: dict[str, Submission], paused: None) -> None:
    assert {refusal(devnet, devnet.call_of(one)) for one in good.values()} == {"EnforcedPause"}


def test_disabled_host_chain(devnet: Devnet, good: dict[str, Submission]) -> None:
    devnet.as_owner("GatewayConfig", "gateway_config", "setHostChain", 8009, True, True)
    try:
        assert {refusal(devnet, devnet.call_of(one)) for one in good.values()} == {"HostChainDisabled"}
    finally:
        devnet.as_owner("GatewayConfig", "gateway_config", "setHostChain", 8009, True, False)


def test_a_contract_wallet_is_left_to_the_kms(devnet: Devnet, good: dict[str, Submission]) -> None:
    body = deepcopy(good["unified"].body)
    wallet = devnet.deployment.host["contract_wallet"]
    body["attestedPayload"].update(userAddress=wallet)
    body["signature"] = "0x1234"
    call = devnet.call_of(dataclasses.replace(good["unified"], body=body))
    assert refusal(devnet, call) == "ECDSAInvalidSignatureLength"
    devnet.as_owner("Decryption", "decryption", "setContractWallet", wallet, True)
    assert refusal(devnet, call) == "accepted"


@pytest.mark.parametrize(
    ("name", "key", "function", "values", "error"),
    [
        ("Decryption", "decryption", "publicDecryptionResponse", (77, b"", bytes(65), b""), "DecryptionNotRequested"),
        ("Decryption", "decryption", "userDecryptionResponse", (77, b"", bytes(65), b""), "DecryptionNotRequested"),
        (
            "InputVerification",
            "input_verification",
            "verifyProofResponse",
            (10**9, [], b"", b""),
            "VerifyProofNotRequested",
        ),
        ("InputVerification", "input_verification", "rejectProofResponse", (10**9, b""), "VerifyProofNotRequested"),
    ],
)
def test_answers_to_nothing(
    devnet: Devnet, name: str, key: str, function: str, values: tuple[Any, ...], error: str
) -> None:
    node = devnet.deployment.kms[0] if key == "decryption" else devnet.deployment.coprocessors[0]
    call = Call(devnet.deployment.gateway[key], contract(name).call(function, *values))
    assert refusal(devnet, call, node.sender.address) == error
    stranger = "NotKmsTxSender" if key == "decryption" else "NotCoprocessorTxSender"
    assert refusal(devnet, call, STRANGER) == stranger


def test_the_host_wallet_speaks_erc1271(devnet: Devnet) -> None:
    owner, wallet = devnet.deployment.users[0], devnet.deployment.host["contract_wallet"]
    abi, message = contract("ContractWallet"), bytes(range(32))
    with devnet.deployment.host_rpc() as host:
        for key, magic in ((owner.key, "1626ba7e"), (devnet.deployment.users[1].key, "ffffffff")):
            query = abi.call("isValidSignature", message, eip712.sign(key, message))
            assert host.eth_call(wallet, query)[:4].hex() == magic
