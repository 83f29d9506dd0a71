"""What the bodies of `Traffic` can be turned into: other handles, partial grants, other signatures."""

from __future__ import annotations

import copy
import dataclasses
import time
from collections.abc import Sequence
from typing import Any

from eth_utils.address import to_checksum_address

from workers.devnet import eip712
from workers.devnet.accounts import Wallet
from workers.devnet.contracts import contract
from workers.devnet.traffic import DAY_SECONDS, VALID_DAYS, Submission

SALT = slice(2_000, 2_064)  # hex digits of a sample proof that are unique to it
UNIFIED = "attestedPayload"


def mark(submission: Submission) -> str:
    """Bytes (hex without 0x) that stand in every call and transaction of this submission, and in no other."""
    if submission.form == "input_proof":
        return str(submission.body["ciphertextWithInputVerification"][SALT])
    return submission.handles[0].hex()


def with_handles(submission: Submission, handles: Sequence[bytes]) -> Submission:
    """The same request for other handles; v2 and v3 signatures do not cover them."""
    body = copy.deepcopy(submission.body)
    texts = ["0x" + handle.hex() for handle in handles]
    if submission.form == "public_decrypt":
        body["ciphertextHandles"] = texts
    elif submission.form == "unified":
        entry = body[UNIFIED]["handles"][0]
        body[UNIFIED]["handles"] = [{**entry, "ctHandle": text} for text in texts]
    else:
        entry = body["handleContractPairs"][0]
        body["handleContractPairs"] = [{**entry, "handle": text} for text in texts]
    return dataclasses.replace(submission, body=body, handles=tuple(handles))


def grants(submission: Submission, handles: Sequence[bytes]) -> list[bytes]:
    """Calls of the host ACL that allow these handles of the submission."""
    acl, body = contract("ACL"), submission.body
    if submission.form == "input_proof":
        return []
    if submission.form == "public_decrypt":
        return [acl.call("allowForDecryption", list(handles))]
    if submission.form == "delegated":
        owner, dapp = body["delegatorAddress"], body["handleContractPairs"][0]["contractAddress"]
        until = int(time.time()) + VALID_DAYS * DAY_SECONDS
        extra = [acl.call("setDelegation", owner, body["delegateAddress"], dapp, until)]
    elif submission.form == "unified":
        owner, dapp, extra = body[UNIFIED]["userAddress"], body[UNIFIED]["handles"][0]["contractAddress"], []
    else:
        owner, dapp, extra = body["userAddress"], body["handleContractPairs"][0]["contractAddress"], []
    return [acl.call("allow", handle, target) for handle in handles for target in (owner, dapp)] + extra


def unified_signed(submission: Submission, wallets: Sequence[Wallet], domain: bytes, **changes: Any) -> dict[str, Any]:
    """The v3 body with changed payload members, signed again by its user."""
    body = copy.deepcopy(submission.body)
    payload = body[UNIFIED]
    payload.update(changes)
    signer = next(one for one in wallets if to_checksum_address(one.address) == payload["userAddress"])
    body["signature"] = unified_signature(payload, signer.key, domain)
    return dict(body)


def unified_signature(payload: dict[str, Any], key: bytes, domain: bytes) -> str:
    """The 0x text of the EIP-712 signature of a v3 payload."""
    validity = payload["requestValidity"]
    message = eip712.digest(
        domain,
        eip712.UNIFIED,
        payload["userAddress"],
        bytes.fromhex(payload["publicKey"][2:]),
        payload["allowedContracts"],
        int(validity["startTimestamp"]),
        int(validity["durationSeconds"]),
        bytes.fromhex(payload["extraData"][2:]),
    )
    return "0x" + eip712.sign(key, message).hex()
