"""From a request body to its canonical payload: parse, validate, normalise (fhevm_http 4 to 6).

Each reader raises Refused with the label and details of the contract. The payload it returns has the canonical shape
(hex lower case with 0x, integers as decimal text) that hashing, calldata and the database share.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from requests_app.api import forms, rules
from requests_app.api.json_reader import read_record, top_level_keys
from requests_app.api.labels import INTERNAL_TEXT, Label
from requests_app.api.refusals import Refused
from requests_app.states import Kind, ReqType

Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Intake:
    """A valid request. `handles` are 32-byte ciphertext handles as 0x text; empty for input proofs."""

    kind: Kind
    req_type: ReqType | None
    body: dict[str, Any]
    handles: tuple[str, ...] = ()

    def host_chains(self) -> list[int]:
        """The host chain id of each handle: bytes 22 to 29, big-endian (fhevm_http 13.1)."""
        return [int(handle[46:62], 16) for handle in self.handles]


Reader = Callable[[bytes], Intake]


def input_proof(raw: bytes) -> Intake:
    """POST /v2/input-proof."""
    fields = read_record(raw, forms.INPUT_PROOF)
    found = rules.Findings()
    found.add("contractChainId", rules.chain_id(fields["contractChainId"]))
    found.add("contractAddress", rules.address(fields["contractAddress"]))
    found.add("userAddress", rules.address(fields["userAddress"]))
    ciphertext = fields["ciphertextWithInputVerification"]
    found.add("ciphertextWithInputVerification", rules.not_empty(ciphertext))
    found.add("ciphertextWithInputVerification", rules.hex_bare(ciphertext))
    found.add("extraData", rules.extra_data_of_proof(fields["extraData"]))
    found.settle()
    body = {
        "contract_chain_id": str(rules.parse_chain_id(fields["contractChainId"])),
        "contract": fields["contractAddress"].lower(),
        "user": fields["userAddress"].lower(),
        "ciphertext": "0x" + ciphertext.lower(),
        "extra_data": fields["extraData"],
    }
    return Intake(Kind.INPUT_PROOF, None, body)


def public_decrypt(raw: bytes) -> Intake:
    """POST /v2/public-decrypt. A handle of more than 32 bytes is a 500, as upstream; a shorter one is padded left."""
    fields = read_record(raw, forms.PUBLIC_DECRYPT)
    found = rules.Findings()
    texts: list[str] = fields["ciphertextHandles"]
    found.add("ciphertextHandles", rules.not_empty(texts))
    found.add_first("ciphertextHandles", texts, rules.hex_0x)
    found.add("extraData", rules.extra_data(fields["extraData"]))
    found.settle()
    if any(len(text) > 66 for text in texts):
        raise Refused(Label.INTERNAL_SERVER_ERROR, INTERNAL_TEXT)
    handles = ["0x" + text[2:].lower().rjust(64, "0") for text in texts]
    body = {"handles": handles, "extra_data": fields["extraData"].lower()}
    return Intake(Kind.PUBLIC_DECRYPT, None, body, tuple(handles))


def direct(raw: bytes) -> Intake:
    """POST /v2/user-decrypt."""
    fields = read_record(raw, forms.DIRECT)
    found = rules.Findings()
    validity = fields["requestValidity"]
    _check_pairs(found, fields["handleContractPairs"])
    complaint = rules.timestamp(validity["startTimestamp"]) or rules.u32(validity["durationDays"])
    found.add("requestValidity", complaint)
    _check_contracts(found, fields)
    found.add("userAddress", rules.address(fields["userAddress"]))
    _check_bare_evidence(found, fields)
    found.settle()
    parties = {"user": fields["userAddress"].lower()}
    return _typed(ReqType.DIRECT, fields, validity, parties)


def delegated(raw: bytes) -> Intake:
    """POST /v2/delegated-user-decrypt."""
    fields = read_record(raw, forms.DELEGATED)
    found = rules.Findings()
    _check_pairs(found, fields["handleContractPairs"])
    _check_contracts(found, fields)
    found.add("delegatorAddress", rules.address(fields["delegatorAddress"]))
    found.add("delegateAddress", rules.address(fields["delegateAddress"]))
    found.add("startTimestamp", rules.timestamp(fields["startTimestamp"]))
    found.add("durationDays", rules.u32(fields["durationDays"]))
    _check_bare_evidence(found, fields)
    found.settle()
    parties = {"delegator": fields["delegatorAddress"].lower(), "delegate": fields["delegateAddress"].lower()}
    return _typed(ReqType.DELEGATED, fields, fields, parties)


def unified(raw: bytes) -> Intake:
    """POST /v3/user-decrypt: the typed attestation envelope."""
    fields = read_record(raw, forms.UNIFIED)
    payload = fields["attestedPayload"]
    found = rules.Findings()
    if fields["attestationType"] != forms.ATTESTATION_TYPE:
        found.add("attestationType", f"Unsupported attestationType; expected one of: [{forms.ATTESTATION_TYPE}]")
    _check_payload(found, payload)
    found.add("signature", rules.hex_0x_or_empty(fields["signature"]))
    found.settle()
    handles = [
        {
            "handle": entry["ctHandle"].lower(),
            "contract": entry["contractAddress"].lower(),
            "owner": entry["ownerAddress"].lower(),
        }
        for entry in payload["handles"]
    ]
    validity = payload["requestValidity"]
    body = {
        "type": ReqType.UNIFIED.value,
        "handles": handles,
        "user": payload["userAddress"].lower(),
        "allowed_contracts": [text.lower() for text in payload["allowedContracts"]],
        "start_timestamp": str(rules.parse_decimal(validity["startTimestamp"], rules.U64_MAX)),
        "duration_seconds": str(rules.parse_decimal(validity["durationSeconds"], rules.U64_MAX)),
        "signature": fields["signature"].lower() or "0x",
        "public_key": payload["publicKey"].lower(),
        "extra_data": payload["extraData"].lower(),
    }
    return Intake(Kind.USER_DECRYPT, ReqType.UNIFIED, body, tuple(entry["handle"] for entry in handles))


def any_user_decrypt(raw: bytes) -> Intake:
    """POST /v1/user-decrypt: the form is recognised by the keys that only it has."""
    keys = top_level_keys(raw)
    if keys & {"attestationType", "attestedPayload"}:
        return unified(raw)
    if keys & {"delegatorAddress", "delegateAddress"}:
        return delegated(raw)
    return direct(raw)


def _check_pairs(found: rules.Findings, pairs: list[Fields]) -> None:
    found.add("handleContractPairs", rules.not_empty(pairs))
    for pair in pairs:
        complaint = rules.handle(pair["handle"]) or rules.address(pair["contractAddress"])
        if complaint is not None:
            found.add("handleContractPairs", complaint)
            return


def _check_contracts(found: rules.Findings, fields: Fields) -> None:
    found.add("contractsChainId", rules.chain_id(fields["contractsChainId"]))
    found.add("contractAddresses", rules.not_empty(fields["contractAddresses"]))
    found.add_first("contractAddresses", fields["contractAddresses"], rules.address)


def _check_bare_evidence(found: rules.Findings, fields: Fields) -> None:
    """Signature, public key and extra data of the v2 forms, whose hex has no prefix."""
    found.add("signature", rules.signature_length(fields["signature"]))
    found.add("signature", rules.hex_bare(fields["signature"]))
    found.add("publicKey", rules.EMPTY if len(fields["publicKey"]) < 2 else None)
    found.add("publicKey", rules.hex_bare(fields["publicKey"]))
    found.add("extraData", rules.extra_data(fields["extraData"]))


def _check_payload(found: rules.Findings, payload: Fields) -> None:
    at: Final = "attestedPayload."
    if payload["version"] != forms.PAYLOAD_VERSION:
        found.add(at + "version", f'Unsupported version; expected "{forms.PAYLOAD_VERSION}"')
    if payload["type"] != forms.PAYLOAD_TYPE:
        found.add(at + "type", f'Unsupported payload type; expected "{forms.PAYLOAD_TYPE}"')
    found.add(at + "handles", rules.not_empty(payload["handles"]))
    for entry in payload["handles"]:
        complaint = (
            rules.handle(entry["ctHandle"])
            or rules.address(entry["contractAddress"])
            or rules.address(entry["ownerAddress"])
        )
        if complaint is not None:
            found.add(at + "handles", complaint)
            break
    found.add(at + "userAddress", rules.address(payload["userAddress"]))
    found.add_first(at + "allowedContracts", payload["allowedContracts"], rules.address)
    found.add(at + "requestValidity", _window_complaint(payload["requestValidity"]))
    found.add(at + "publicKey", rules.EMPTY if len(payload["publicKey"]) < 4 else None)
    found.add(at + "publicKey", rules.hex_0x(payload["publicKey"]))
    found.add(at + "extraData", rules.extra_data(payload["extraData"]))


def _window_complaint(validity: Fields) -> str | None:
    complaint = rules.timestamp(validity["startTimestamp"]) or rules.u64(validity["durationSeconds"])
    if complaint is not None:
        return complaint
    start = rules.parse_decimal(validity["startTimestamp"], rules.U64_MAX)
    duration = rules.parse_decimal(validity["durationSeconds"], rules.U64_MAX)
    if start is None or duration is None:
        return "startTimestamp must be a valid u64 number"
    return None if start + duration > time.time() else "requestValidity window has already expired"


def _typed(req_type: ReqType, fields: Fields, validity: Fields, parties: dict[str, str]) -> Intake:
    """The canonical payload of the two v2 user decrypt forms, which share all but who signs."""
    pairs = [
        {"handle": pair["handle"].lower(), "contract": pair["contractAddress"].lower()}
        for pair in fields["handleContractPairs"]
    ]
    body = {
        "type": req_type.value,
        "handles": pairs,
        "start_timestamp": str(rules.parse_u256(validity["startTimestamp"])),
        "duration_days": str(rules.parse_decimal(validity["durationDays"], rules.U32_MAX)),
        "contracts_chain_id": str(rules.parse_chain_id(fields["contractsChainId"])),
        "contracts": [text.lower() for text in fields["contractAddresses"]],
        **parties,
        "signature": "0x" + fields["signature"].lower(),
        "public_key": "0x" + fields["publicKey"].lower(),
        "extra_data": fields["extraData"].lower(),
    }
    return Intake(Kind.USER_DECRYPT, req_type, body, tuple(pair["handle"] for pair in pairs))
