"""What a relayer sends to the gateway for a request body, encoded by the devnet's own ABI code."""

from __future__ import annotations

from typing import Any

from workers.devnet.contracts import contract
from workers.devnet.deployment import Deployment
from workers.devnet.sending import Call
from workers.devnet.traffic import Submission

DIRECT = "userDecryptionRequest((bytes32,address)[],(uint256,uint256),(uint256,address[]),address,bytes,bytes,bytes)"
UNIFIED = "userDecryptionRequest((bytes32,address,address)[],address,bytes,address[],(uint256,uint256),bytes,bytes)"
GAS = 5_000_000


def gateway_call(deployment: Deployment, submission: Submission) -> Call:
    """The transaction for one body."""
    encoders = {
        "input_proof": _input_proof,
        "public_decrypt": _public,
        "user_decrypt": _direct,
        "delegated": _delegated,
        "unified": _unified,
    }
    name = "input_verification" if submission.form == "input_proof" else "decryption"
    return Call(deployment.gateway[name], encoders[submission.form](submission), GAS)


def _input_proof(submission: Submission) -> bytes:
    body = submission.body
    return contract("InputVerification").call(
        "verifyProofRequest",
        int(body["contractChainId"], 16),
        body["contractAddress"],
        body["userAddress"],
        _raw(body["ciphertextWithInputVerification"]),
        _raw(body["extraData"]),
    )


def _public(submission: Submission) -> bytes:
    return contract("Decryption").call(
        "publicDecryptionRequest", list(submission.handles), _raw(submission.body["extraData"])
    )


def _direct(submission: Submission) -> bytes:
    body = submission.body
    validity = body["requestValidity"]
    return contract("Decryption").call(
        DIRECT,
        _pairs(body),
        (int(validity["startTimestamp"]), int(validity["durationDays"])),
        (int(body["contractsChainId"]), body["contractAddresses"]),
        body["userAddress"],
        _raw(body["publicKey"]),
        _raw(body["signature"]),
        _raw(body["extraData"]),
    )


def _delegated(submission: Submission) -> bytes:
    body = submission.body
    return contract("Decryption").call(
        "delegatedUserDecryptionRequest",
        _pairs(body),
        (int(body["startTimestamp"]), int(body["durationDays"])),
        (body["delegatorAddress"], body["delegateAddress"]),
        (int(body["contractsChainId"]), body["contractAddresses"]),
        _raw(body["publicKey"]),
        _raw(body["signature"]),
        _raw(body["extraData"]),
    )


def _unified(submission: Submission) -> bytes:
    payload = submission.body["attestedPayload"]
    validity = payload["requestValidity"]
    entries = [
        (_raw(entry["ctHandle"]), entry["contractAddress"], entry["ownerAddress"]) for entry in payload["handles"]
    ]
    return contract("Decryption").call(
        UNIFIED,
        entries,
        payload["userAddress"],
        _raw(payload["publicKey"]),
        payload["allowedContracts"],
        (int(validity["startTimestamp"]), int(validity["durationSeconds"])),
        _raw(submission.body["signature"]),
        _raw(payload["extraData"]),
    )


def _pairs(body: dict[str, Any]) -> list[tuple[bytes, str]]:
    return [(_raw(pair["handle"]), pair["contractAddress"]) for pair in body["handleContractPairs"]]


def _raw(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("0x"))
