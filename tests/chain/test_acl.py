from __future__ import annotations

from typing import Any

import pytest
from eth_abi.abi import decode, encode

from requests_app.states import Kind, ReqType
from tests.chain.bodies import CONTRACT, DELEGATED, DIRECT, H1, H2, OTHER_CHAIN, PROOF, PUBLIC, UNIFIED
from workers.chain import acl
from workers.chain.abi_reader import MalformedAbi

YES, NO = (1).to_bytes(32, "big"), bytes(32)
USER_TEXT, OWNER_TEXT = "0x2222222222222222222222222222222222222222", "0x3333333333333333333333333333333333333333"
CONTRACT_TEXT = "0x1111111111111111111111111111111111111111"


def answer(*entries: bytes) -> bytes:
    return encode(["bytes[]"], [list(entries)])


def names(kind: Kind, body: Any) -> list[str]:
    return [check.name for check in acl.acl_checks(kind, None, body)[8009]]


def test_questions_of_each_form() -> None:
    assert names(Kind.PUBLIC_DECRYPT, PUBLIC) == ["isAllowedForDecryption"] * 2
    both = [f"isAllowed(user {USER_TEXT})", f"isAllowed(contract {CONTRACT_TEXT})"]
    assert names(Kind.USER_DECRYPT, DIRECT) == both * 2
    assert names(Kind.USER_DECRYPT, DELEGATED) == ["isHandleDelegatedForUserDecryption"] * 2
    assert names(Kind.USER_DECRYPT, UNIFIED) == [
        f"isAllowed(user {USER_TEXT})",
        f"isHandleDelegatedForUserDecryption(owner {OWNER_TEXT}, user {USER_TEXT})",
    ]


def test_delegation_is_asked_with_delegator_delegate_contract_handle() -> None:
    handle = bytes.fromhex(H1[2:])
    first = acl.acl_checks(Kind.USER_DECRYPT, ReqType.DELEGATED, DELEGATED)[8009][0]
    values = decode(["address", "address", "address", "bytes32"], first.calldata[4:])
    assert values == (OWNER_TEXT, USER_TEXT, CONTRACT_TEXT, handle)
    second = acl.acl_checks(Kind.USER_DECRYPT, ReqType.UNIFIED, UNIFIED)[8009][1]
    values = decode(["address", "address", "address", "bytes32"], second.calldata[4:])
    assert values == (OWNER_TEXT, USER_TEXT, CONTRACT_TEXT, bytes.fromhex(H2[2:]))


def test_handles_of_several_chains_are_asked_on_their_chains() -> None:
    body = {"handles": [H1, OTHER_CHAIN, H2], "extra_data": "0x00"}
    by_chain = acl.acl_checks(Kind.PUBLIC_DECRYPT, None, body)
    assert {chain: [c.handle for c in checks] for chain, checks in by_chain.items()} == {
        8009: [bytes.fromhex(H1[2:]), bytes.fromhex(H2[2:])],
        11111: [bytes.fromhex(OTHER_CHAIN[2:])],
    }


def test_multicall_carries_every_question_in_order() -> None:
    checks = acl.acl_checks(Kind.USER_DECRYPT, None, DIRECT)[8009]
    data = acl.encode_multicall(checks)
    assert data[:4].hex() == "ac9650d8"
    assert decode(["bytes[]"], data[4:]) == (tuple(check.calldata for check in checks),)


def test_denied_are_zero_and_short_answers() -> None:
    checks = acl.acl_checks(Kind.USER_DECRYPT, None, DIRECT)[8009]
    assert acl.denied(checks, answer(YES, YES, YES, YES)) == []
    assert acl.denied(checks, answer(YES, NO, b"", b"\0" * 31 + b"\x01")) == [checks[1], checks[2]]
    assert acl.denied(checks, answer(YES, YES, b"\x01", YES)) == [checks[2]]


@pytest.mark.parametrize("raw", [b"", b"\x01", answer(YES), answer(YES, YES, YES, YES, YES), YES + YES])
def test_answers_of_another_shape_are_typed_errors(raw: bytes) -> None:
    with pytest.raises(MalformedAbi):
        acl.denied(acl.acl_checks(Kind.USER_DECRYPT, None, DIRECT)[8009], raw)


def test_texts_are_those_of_the_wire_contract() -> None:
    checks = acl.acl_checks(Kind.USER_DECRYPT, None, DIRECT)[8009]
    assert acl.denial_text(checks[:2]) == (
        f"Not allowed on host ACL: ACL check failed for 1 handle(s): handle={H1} check=isAllowed(user {USER_TEXT}), "
        f"handle={H1} check=isAllowed(contract {CONTRACT_TEXT})"
    )
    assert "for 2 handle(s)" in acl.denial_text([checks[0], checks[2]])
    assert acl.failure_text(8009, "x") == "Host ACL check failed: Host chain 8009 call failed: x"
    assert acl.unbound_text(5) == "Host ACL check failed: No ACL binding configured for host chain 5"


def test_addresses_in_texts_are_checksummed() -> None:
    mixed = {**DIRECT, "user": "0xb8ae44365c45a7c5256b14f607cae23bc040c354"}
    assert names(Kind.USER_DECRYPT, mixed)[0] == "isAllowed(user 0xB8Ae44365c45A7C5256b14F607CaE23BC040c354)"
    assert CONTRACT.startswith("0x11")


def test_input_proofs_have_no_questions() -> None:
    with pytest.raises(ValueError):
        acl.acl_checks(Kind.INPUT_PROOF, None, PROOF)
