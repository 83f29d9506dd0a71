from __future__ import annotations

import copy
from contextlib import suppress
from typing import Any

import pytest
from eth_abi.abi import decode

from requests_app.states import Kind, ReqType
from tests.chain.bodies import CONTRACT, DIRECT, FORMS, GATEWAY, H1, H2, PROOF, PUBLIC, UNIFIED, USER
from workers.chain import acl, calldata
from workers.chain.abi_reader import MalformedAbi
from workers.chain.calldata import Function, Unencodable, encode_readiness, encode_request


@pytest.mark.parametrize(
    ("function", "selector"),
    [
        (calldata.VERIFY_PROOF, "a7004996"),
        (calldata.PUBLIC_REQUEST, "d8998f45"),
        (calldata.DIRECT_REQUEST, "f1b57adb"),
        (calldata.DELEGATED_REQUEST, "9fad5a2f"),
        (calldata.UNIFIED_REQUEST, "b4de2c37"),
        (calldata.PUBLIC_READY, "4014c4cd"),
        (calldata.USER_READY, "e22d1b26"),
        (calldata.IS_DECRYPTION_DONE, "58f5b8ab"),
        (calldata.IS_PROOF_VERIFIED, "e96f88ea"),
        (calldata.IS_PROOF_REJECTED, "0c615839"),
        (calldata.BALANCE_OF, "70a08231"),
        (calldata.ALLOWANCE, "dd62ed3e"),
        (acl.IS_ALLOWED, "82027b6d"),
        (acl.IS_ALLOWED_FOR_DECRYPTION, "c0d02943"),
        (acl.IS_DELEGATED, "d09c0dee"),
        (acl.MULTICALL, "ac9650d8"),
    ],
    ids=lambda value: value.signature if isinstance(value, Function) else value,
)
def test_selectors_are_those_of_the_reference(function: Function, selector: str) -> None:
    assert function.selector.hex() == selector


@pytest.mark.parametrize(("kind", "form", "body"), FORMS)
def test_each_form_goes_to_its_contract_with_its_selector(kind: Kind, form: ReqType | None, body: Any) -> None:
    to, data = encode_request(kind, form, body, GATEWAY)
    assert to == (GATEWAY.input_verification if kind is Kind.INPUT_PROOF else GATEWAY.decryption)
    wanted = {
        (Kind.USER_DECRYPT, ReqType.DIRECT): "f1b57adb",
        (Kind.USER_DECRYPT, ReqType.DELEGATED): "9fad5a2f",
        (Kind.USER_DECRYPT, ReqType.UNIFIED): "b4de2c37",
        (Kind.PUBLIC_DECRYPT, None): "d8998f45",
        (Kind.INPUT_PROOF, None): "a7004996",
    }
    assert data[:4].hex() == wanted[kind, form]


def test_direct_arguments_read_back() -> None:
    _, data = encode_request(Kind.USER_DECRYPT, "user_decrypt", DIRECT, GATEWAY)
    types = ["(bytes32,address)[]", "(uint256,uint256)", "(uint256,address[])", "address", "bytes", "bytes", "bytes"]
    pairs, validity, contracts, user, key, signature, extra = decode(types, data[4:])
    assert pairs == ((bytes.fromhex(H1[2:]), CONTRACT), (bytes.fromhex(H2[2:]), CONTRACT))
    assert (validity, contracts, user) == ((1700000000, 10), (8009, (CONTRACT,)), USER)
    assert (key, signature, extra) == (b"\xab\xcd", b"\xab" * 65, b"\0")


def test_unified_arguments_read_back() -> None:
    _, data = encode_request(Kind.USER_DECRYPT, None, UNIFIED, GATEWAY)
    types = ["(bytes32,address,address)[]", "address", "bytes", "address[]", "(uint256,uint256)", "bytes", "bytes"]
    handles, user, key, allowed, validity, signature, extra = decode(types, data[4:])
    assert handles[1] == (bytes.fromhex(H2[2:]), CONTRACT, "0x" + "33" * 20)
    assert (user, key, allowed, validity) == (USER, b"\xab\xcd", (CONTRACT,), (1700000000, 86400))
    assert (signature, extra) == (b"\xab" * 65, b"\0")


def test_proof_arguments_read_back() -> None:
    _, data = encode_request(Kind.INPUT_PROOF, None, PROOF, GATEWAY)
    values = decode(["uint256", "address", "address", "bytes", "bytes"], data[4:])
    assert values == (8009, CONTRACT, USER, b"\xcd" * 100, b"\0")


def test_readiness_of_all_user_forms_drops_the_owner() -> None:
    calls = {encode_readiness(Kind.USER_DECRYPT, body) for _, _, body in FORMS[:3]}
    assert len(calls) == 1
    assert decode(["(bytes32,address)[]", "bytes"], calls.pop()[4:])[0][1] == (bytes.fromhex(H2[2:]), CONTRACT)
    public = encode_readiness(Kind.PUBLIC_DECRYPT, PUBLIC)
    assert decode(["bytes32[]", "bytes"], public[4:]) == ((bytes.fromhex(H1[2:]), bytes.fromhex(H2[2:])), b"\0")
    with pytest.raises(ValueError):
        encode_readiness(Kind.INPUT_PROOF, PROOF)


def corrupted() -> list[tuple[Kind, Any, Any]]:
    """Every body with each of its keys missing or replaced by something of another type."""
    cases: list[tuple[Kind, Any, Any]] = []
    for kind, form, body in FORMS:
        for key in set(body) - {"type"}:
            for bad in (None, "0xzz", "0x1", {"a": 1}, [1], -1):
                damaged = copy.deepcopy(body)
                damaged[key] = bad
                cases.append((kind, form, damaged))
            cases.append((kind, form, {k: v for k, v in body.items() if k != key}))
    return cases


def test_bodies_that_do_not_fit_are_typed_errors() -> None:
    for kind, form, body in corrupted():
        with pytest.raises(Unencodable):
            encode_request(kind, form, body, GATEWAY)
        # The checks read fewer fields: they answer or refuse in the same typed way.
        if kind is not Kind.INPUT_PROOF:
            with suppress(Unencodable):
                encode_readiness(kind, body)
            with suppress(Unencodable):
                acl.acl_checks(kind, form, body)
    with pytest.raises(Unencodable, match="unknown form"):
        encode_request(Kind.USER_DECRYPT, "solana", DIRECT, GATEWAY)
    with pytest.raises(Unencodable):
        encode_request(Kind.USER_DECRYPT, None, {**DIRECT, "start_timestamp": str(2**256)}, GATEWAY)


def test_bool_and_uint_answers() -> None:
    assert calldata.decode_bool((1).to_bytes(32, "big")) is True
    assert calldata.decode_bool(bytes(32)) is False
    assert calldata.decode_uint((9).to_bytes(32, "big")) == 9
    for read in (calldata.decode_bool, calldata.decode_uint):
        with pytest.raises(MalformedAbi):
            read(b"")
