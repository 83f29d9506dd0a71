"""Valid request bodies as the clients send them; each call returns a fresh one to change."""

from __future__ import annotations

import json
import time
from typing import Any

CONTRACT = "0x" + "11" * 20
USER = "0x" + "22" * 20
DELEGATOR = "0x" + "33" * 20
H1 = "0x000000000000000000000000000000000000000001ff0000000000001f490400"
H2 = "0x000000000000000000000000000000000000000002ff0000000000001f490000"
FOREIGN = "0x000000000000000000000000000000000000000001ff000000000001869f0400"  # chain 99999
SIGNER_KEY = bytes.fromhex("11" * 32)
SIGNER = "0x19E7E376E7C213B7E7e7e46cc70A5dD086DAff2A"
CONTEXT_V1 = "0x01" + "07" + "00" * 31
CONTEXT_V2 = "0x02" + "07" + "00" * 31 + "08" + "00" * 31


def input_proof(**changes: Any) -> dict[str, Any]:
    return {
        "contractAddress": CONTRACT,
        "userAddress": USER,
        "ciphertextWithInputVerification": "deadbeef",
        "contractChainId": "0x1f49",
        "extraData": "0x00",
        **changes,
    }


def public_decrypt(**changes: Any) -> dict[str, Any]:
    return {"ciphertextHandles": [H1, H2], "extraData": "0x00", **changes}


def direct(**changes: Any) -> dict[str, Any]:
    return {
        "handleContractPairs": [{"handle": H1, "contractAddress": CONTRACT}],
        "requestValidity": {"startTimestamp": "1700000000", "durationDays": "10"},
        "contractsChainId": "8009",
        "contractAddresses": [CONTRACT],
        "userAddress": USER,
        "signature": "ab" * 65,
        "publicKey": "abcd",
        "extraData": "0x00",
        **changes,
    }


def delegated(**changes: Any) -> dict[str, Any]:
    return {
        "handleContractPairs": [{"handle": H1, "contractAddress": CONTRACT}],
        "contractsChainId": "8009",
        "contractAddresses": [CONTRACT],
        "delegatorAddress": DELEGATOR,
        "delegateAddress": USER,
        "startTimestamp": "1700000000",
        "durationDays": "10",
        "signature": "ab" * 65,
        "publicKey": "abcd",
        "extraData": "0x00",
        **changes,
    }


def payload(**changes: Any) -> dict[str, Any]:
    return {
        "version": "2.0",
        "type": "user_decryption",
        "handles": [{"ctHandle": H1, "contractAddress": CONTRACT, "ownerAddress": USER}],
        "userAddress": USER,
        "allowedContracts": [CONTRACT],
        "requestValidity": {"startTimestamp": str(int(time.time()) - 60), "durationSeconds": "86400"},
        "publicKey": "0xabcd",
        "extraData": "0x00",
        **changes,
    }


def unified(**changes: Any) -> dict[str, Any]:
    return {
        "attestationType": "eip712-unified-user-decrypt-v1",
        "attestedPayload": changes.pop("attestedPayload", None) or payload(**changes.pop("payload", {})),
        "signature": "0x" + "ab" * 65,
        **changes,
    }


def raw(body: Any) -> bytes:
    return json.dumps(body).encode()
