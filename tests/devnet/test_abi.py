"""The compiled contracts have every selector and topic of the protocol's list (fhevm_internals 4), and the relayer's copies
of the ABIs are those of the contracts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from workers.devnet.contracts import contract, signature
from workers.devnet.eip712 import keccak256

ABI_DIRECTORY = Path(__file__).resolve().parents[2] / "workers" / "chain" / "abi"

FUNCTIONS = {
    "InputVerification": {
        "verifyProofRequest": "0xa7004996",
        "verifyProofResponse": "0x31bedea3",
        "rejectProofResponse": "0x338007fc",
        "isProofVerified": "0xe96f88ea",
        "isProofRejected": "0x0c615839",
    },
    "Decryption": {
        "publicDecryptionRequest": "0xd8998f45",
        "userDecryptionRequest/direct": "0xf1b57adb",
        "delegatedUserDecryptionRequest": "0x9fad5a2f",
        "userDecryptionRequest/unified": "0xb4de2c37",
        "isPublicDecryptionReady": "0x4014c4cd",
        "isUserDecryptionReady/pairs": "0xe22d1b26",
        "isUserDecryptionReady/entries": "0x410bf0ba",
        "isUserDecryptionReady/user": "0xfbb83259",
        "isDelegatedUserDecryptionReady": "0x76227eed",
        "isDecryptionDone": "0x58f5b8ab",
        "getDecryptionConsensusTxSenders": "0x0900cc69",
        "publicDecryptionResponse": "0x6f8913bc",
        "userDecryptionResponse": "0x046f9eb3",
        "eip712Domain": "0x84b0196e",
    },
    "ACL": {
        "isAllowed": "0x82027b6d",
        "isAllowedForDecryption": "0xc0d02943",
        "isHandleDelegatedForUserDecryption": "0xd09c0dee",
        "multicall": "0xac9650d8",
        "persistAllowed": "0x1e2f86ba",
    },
    "ProtocolConfig": {
        "getUserDecryptionThresholdForContext": "0x281e8bfe",
        "getCurrentKmsContextAndEpoch": "0x65b394af",
        "getKmsContextAnchor": "0xc999a8b4",
    },
    "KMSGeneration": {
        "getActiveKeyId": "0xd52f10eb",
        "getActiveCrsId": "0xbaff211e",
        "getKeyMaterials": "0x936608ae",
        "getCrsMaterials": "0xc55b8724",
    },
    "ContractWallet": {"isValidSignature": "0x1626ba7e"},
    "KMSVerifier": {"eip712Domain": "0x84b0196e", "getThreshold": "0xe75235b8", "getKmsSigners": "0x7eaac8f2"},
    "InputVerifier": {
        "eip712Domain": "0x84b0196e",
        "getThreshold": "0xe75235b8",
        "getCoprocessorSigners": "0x9164d0ae",
    },
    "ZamaToken": {
        "transferFrom": "0x23b872dd",
        "approve": "0x095ea7b3",
        "balanceOf": "0x70a08231",
        "allowance": "0xdd62ed3e",
        "transferWithAuthorization/packed": "0xcf092995",
        "transferWithAuthorization/split": "0xe3ee160e",
        "authorizationState": "0xe94a0102",
        "cancelAuthorization": "0x5a049a70",
    },
}

EVENTS = {
    "Decryption": {
        "PublicDecryptionRequest/material": "0x22db480a39bd72556438aadb4a32a3d2a6638b87c03bbec5fef6997e109587ff",
        "PublicDecryptionRequest/handles": "0x9bb088a53f1fe13ec84fa0a1d7b578b589e193268baaccc5e23f7ab785aa3dae",
        "UserDecryptionRequest/legacy": "0xf9011bd6ba0da6049c520d70fe5971f17ed7ab795486052544b51019896c596b",
        "UserDecryptionRequest/unified": "0x1f80a47b51979837976f999a7735fdccbbe570e0d40081644ec88f8ed76c9612",
        "UserDecryptionRequest/handles": "0xc71e32c80f3109c673a9adfcded0b3b2093212ab284084a0e03a281dee2bdd5f",
        "UserDecryptionRequest/entries": "0x8ed4fab8b1d050676cd7d7d9fa448d5d22113375fab8ad4dc690e54593c527bf",
        "PublicDecryptionResponse": "0xd7e58a367a0a6c298e76ad5d240004e327aa1423cbe4bd7ff85d4c715ef8d15f",
        "UserDecryptionResponse": "0x7fcdfb5381917f554a717d0a5470a33f5a49ba6445f05ec43c74c0bc2cc608b2",
        "UserDecryptionResponseThresholdReached": "0xe89752be0ecdb68b2a6eb5ef1a891039e0e92ae3c8a62274c5881e48eea1ed25",
    },
    "InputVerification": {
        "VerifyProofRequest": "0x4ae54f6a6e900d806ffa5bb46ed91459523d2f6ac9b5d62404feab887686d005",
        "VerifyProofResponse": "0xfe2c43585786a5a658d2ec5df5dea3fb3385b77c94f60f724ff810896f419835",
        "RejectProofResponse": "0xe465e141fa8abd95ab7e0855543307f8506ab0170ef664420fb71ab7de0183de",
    },
    "ProtocolConfig": {"NewKmsContext": "0x204d6b80121154cd87d99cf54c639a3dd0a53b3084277098de972ebdd34c6be9"},
}

ERRORS = {
    "Decryption": {
        "EnforcedPause": "0xd93c0665",
        "InvalidUserSignature": "0x2a873d27",
        "ECDSAInvalidSignature": "0xf645eedf",
        "ECDSAInvalidSignatureLength": "0xfce698f7",
        "ECDSAInvalidSignatureS": "0xd78bce0c",
        "InvalidKmsContext": "0x77ddbe81",
        "UserDecryptionRequestExpired": "0x30348040",
        "UserDecryptionRequestExpiredSeconds": "0x678fcfce",
        "StartTimestampInFuture": "0xf24c0887",
        "MaxDurationDaysExceeded": "0x32951863",
        "MaxDurationSecondsExceeded": "0xae52eb12",
        "InvalidNullDurationDays": "0xde2859c1",
        "ContractNotInContractAddresses": "0xa4c30391",
        "UserAddressInContractAddresses": "0xdc4d78b1",
        "DelegatorAddressInContractAddresses": "0xc3446ac7",
        "CtHandleChainIdDiffersFromContractChainId": "0x9590e916",
        "MaxDecryptionRequestBitSizeExceeded": "0xe7f4895d",
        "EmptyCtHandles": "0x2de75438",
        "EmptyHandles": "0x240e9309",
        "DifferentKeyIdsNotAllowed": "0xcfae921f",
        "InvalidFHEType": "0x641950d7",
        "UnsupportedFHEType": "0xbe7830b1",
        "InvalidExtraDataLength": "0x93548a66",
        "UnsupportedExtraDataVersion": "0x2139cc2c",
        "InvalidNullContextId": "0xcb17b7a5",
        "DecryptionNotRequested": "0xd48af942",
    },
    "InputVerification": {"EnforcedPause": "0xd93c0665", "VerifyProofNotRequested": "0x4711083f"},
    "CiphertextCommits": {"CiphertextMaterialNotFound": "0x0666cbdf"},
    "GatewayConfig": {"HostChainNotRegistered": "0xb6679c3b", "HostChainDisabled": "0x603668c4"},
    "ZamaToken": {"ERC20InsufficientBalance": "0xe450d38c", "ERC20InsufficientAllowance": "0xfb8f41b2"},
}


def hashes(name: str, kind: str) -> set[tuple[str, str]]:
    """(name, whole hash) of every entry of a kind in a contract's ABI."""
    entries = (entry for entry in contract(name).abi if entry["type"] == kind)
    return {(entry["name"], "0x" + keccak256(signature(entry).encode()).hex()) for entry in entries}


def listed(table: dict[str, dict[str, str]]) -> list[Any]:
    return [
        pytest.param(name, entry.partition("/")[0], wanted, id=f"{name}.{entry}")
        for name, entries in table.items()
        for entry, wanted in entries.items()
    ]


@pytest.mark.parametrize(("name", "function", "selector"), listed(FUNCTIONS))
def test_selector(name: str, function: str, selector: str) -> None:
    assert (function, selector) in {(found, whole[:10]) for found, whole in hashes(name, "function")}


@pytest.mark.parametrize(("name", "event", "topic"), listed(EVENTS))
def test_topic(name: str, event: str, topic: str) -> None:
    assert (event, topic) in hashes(name, "event")


@pytest.mark.parametrize(("name", "error", "selector"), listed(ERRORS))
def test_error_selector(name: str, error: str, selector: str) -> None:
    assert (error, selector) in {(found, whole[:10]) for found, whole in hashes(name, "error")}


def test_ids_are_indexed_first() -> None:
    for name, events in EVENTS.items():
        for entry in contract(name).abi:
            if entry["type"] == "event" and entry["name"] in {event.partition("/")[0] for event in events}:
                assert entry["inputs"][0]["indexed"], entry["name"]


@pytest.mark.parametrize("path", sorted(ABI_DIRECTORY.glob("*.json")), ids=lambda path: path.stem)
def test_the_relayer_reads_the_same_abi(path: Path) -> None:
    assert tuple(json.loads(path.read_text())) == contract(path.stem).abi


def test_the_relayer_has_the_abis_it_needs() -> None:
    found = {path.stem for path in ABI_DIRECTORY.glob("*.json")}
    assert {"Decryption", "InputVerification", "ACL", "ProtocolConfig", "KMSGeneration", "ZamaToken"} <= found
