"""The hand-written signatures against the ABI of the compiled contracts, through web3's own codec."""

from __future__ import annotations

from typing import Any

import pytest
from web3 import Web3
from web3._utils.events import get_event_data
from web3.types import LogReceipt

from requests_app.states import Kind, ReqType
from tests.chain.bodies import FORMS, GATEWAY
from workers.chain import acl, calldata, events, host
from workers.chain.abi_reader import bytes32_list, bytes_list
from workers.chain.calldata import Function, encode_readiness, encode_request
from workers.chain.keccak import topic
from workers.chain.key_material import abi
from workers.chain.reverts import RULES

CONTRACTS = {
    "Decryption": [
        calldata.PUBLIC_REQUEST,
        calldata.DIRECT_REQUEST,
        calldata.DELEGATED_REQUEST,
        calldata.UNIFIED_REQUEST,
        calldata.PUBLIC_READY,
        calldata.USER_READY,
        calldata.IS_DECRYPTION_DONE,
    ],
    "InputVerification": [calldata.VERIFY_PROOF, calldata.IS_PROOF_VERIFIED, calldata.IS_PROOF_REJECTED],
    "ACL": [acl.IS_ALLOWED, acl.IS_ALLOWED_FOR_DECRYPTION, acl.IS_DELEGATED, acl.MULTICALL],
    "ProtocolConfig": [host.THRESHOLD],
    "ZamaToken": [calldata.BALANCE_OF, calldata.ALLOWANCE],
    "ContractWallet": [host.IS_VALID_SIGNATURE],
}


def canonical(parameter: dict[str, Any]) -> str:
    kind: str = parameter["type"]
    if not kind.startswith("tuple"):
        return kind
    return "(" + ",".join(canonical(part) for part in parameter["components"]) + ")" + kind[5:]


def signatures(name: str, kind: str) -> set[str]:
    entries = [entry for entry in abi(name) if entry["type"] == kind]
    return {f"{entry['name']}({','.join(canonical(part) for part in entry['inputs'])})" for entry in entries}


@pytest.mark.parametrize("name", list(CONTRACTS))
def test_functions_exist_in_the_compiled_contract(name: str) -> None:
    assert {function.signature for function in CONTRACTS[name]} <= signatures(name, "function")


def test_events_of_the_contracts_are_known() -> None:
    emitted = signatures("Decryption", "event") | signatures("InputVerification", "event")
    responses = {signature for signature, kind in events.SIGNATURES.items() if kind not in events.REQUEST_KINDS}
    assert responses <= emitted
    for kind in events.REQUEST_KINDS:
        assert {signature for signature, found in events.SIGNATURES.items() if found is kind} & emitted


def test_errors_of_the_contracts_are_those_of_the_table() -> None:
    """A renamed or changed error would silently become a 500."""
    table = {rule.signature for rule in RULES}
    names = {signature.partition("(")[0] for signature in table}
    declared = set().union(*(signatures(name, "error") for name in ("Decryption", "InputVerification", "ZamaToken")))
    assert {signature for signature in declared if signature.partition("(")[0] in names} <= table
    assert "InvalidUserSignature(bytes)" in declared


@pytest.mark.parametrize(("kind", "form", "body"), FORMS)
def test_calldata_is_read_by_the_compiled_abi(kind: Kind, form: ReqType | None, body: Any) -> None:
    """web3 finds the function by our selector and encodes the values it has read back to the same bytes."""
    contract = Web3().eth.contract(abi=abi("InputVerification" if kind is Kind.INPUT_PROOF else "Decryption"))
    data = [encode_request(kind, form, body, GATEWAY)[1]]
    if kind is not Kind.INPUT_PROOF:
        data.append(encode_readiness(kind, body))
    for call in data:
        entry: Any = contract.get_function_by_selector(call[:4]).abi
        types = [canonical(parameter) for parameter in entry["inputs"]]
        values = Web3().codec.decode(types, call[4:])
        assert Web3().codec.encode(types, values) == call[4:]


def test_web3_and_the_reader_agree_on_an_event() -> None:
    codec = Web3().codec
    event = next(entry for entry in abi("InputVerification") if entry.get("name") == "VerifyProofResponse")
    handles, signs = [b"\x01" * 32, b"\x02" * 32], [b"\x0a" * 65]
    body = codec.encode(["bytes32[]", "bytes[]"], [handles, signs])
    log: Any = {
        "address": "0x" + "d1" * 20,
        "topics": [topic("VerifyProofResponse(uint256,bytes32[],bytes[])"), (5).to_bytes(32, "big")],
        "data": body,
        "blockNumber": 1,
        "logIndex": 0,
        "transactionIndex": 0,
        "transactionHash": b"\0" * 32,
        "blockHash": b"\0" * 32,
        "removed": False,
    }
    receipt: LogReceipt = log
    found = get_event_data(codec, event, receipt)["args"]  # type: ignore[arg-type]
    assert (tuple(found["ctHandles"]), tuple(found["signatures"])) == (bytes32_list(body, 0), bytes_list(body, 1))


def test_every_committed_function_name_is_spelled_as_in_the_reference() -> None:
    functions = [function for group in CONTRACTS.values() for function in group]
    assert all(isinstance(function, Function) for function in functions)
    assert len({function.selector for function in functions}) == len(functions)
