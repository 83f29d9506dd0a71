"""Golden vectors of fhevm_http 19.2 (from ethers v6), and eth_account as a second opinion."""

from __future__ import annotations

from typing import Any

import pytest
from eth_account import Account
from eth_account.messages import encode_typed_data
from hypothesis import given, settings
from hypothesis import strategies as st

from requests_app.states import ReqType
from tests.chain import bodies
from workers.chain.calldata import Unencodable
from workers.chain.keccak import keccak
from workers.chain.signer import LocalSigner
from workers.chain.typed_data import InvalidSignature, expected_signer, recover, request_digest

DECRYPTION = bytes.fromhex("B8Ae44365c45A7C5256b14F607CaE23BC040c354")
SIGNER = LocalSigner(b"\x11" * 32, 1)
V3 = "8c22909e251695348d5efda2f03e5678ec4d1467a8a1644367f14ab0b85b9405"
V3_SIGNATURE = (
    "d1956544c2b7ecec1a0949c8025987367cc8a72ad74763be6eaa4ad6cb9474f5"
    "5b95dc53913d5158a96793409f95bc5fbb42e66a9d5012708c7e7df7a0c1fa6a1c"
)
UNIFIED = {**bodies.UNIFIED, "user": "0x" + SIGNER.address.hex()}
DIRECT = {**bodies.DIRECT, "duration_days": "1"}
DELEGATED = {**bodies.DELEGATED, "duration_days": "1"}


@pytest.mark.parametrize(
    ("form", "body", "digest"),
    [
        (ReqType.UNIFIED, UNIFIED, V3),
        (
            ReqType.UNIFIED,
            {**UNIFIED, "allowed_contracts": []},
            "be81573c4714a766b6d89936dddfae77a9f228c494198f7f235a03db10a197ab",
        ),
        (ReqType.DIRECT, DIRECT, "cee963a4eadb5f4ada8f91c2dce9f97c4df79f74a6993fe011fd4377e5b95f2f"),
        (ReqType.DELEGATED, DELEGATED, "d40751605687a1b122f474fac9391f7aa02b99683906a7560690ce0ecec51544"),
    ],
    ids=["unified", "unified without contracts", "direct", "delegated"],
)
def test_golden_digests_of_the_three_forms(form: ReqType, body: Any, digest: str) -> None:
    assert request_digest(form, body, DECRYPTION).hex() == digest


def test_golden_signature_recovers_in_every_spelling_of_v() -> None:
    digest, signature = bytes.fromhex(V3), bytes.fromhex(V3_SIGNATURE)
    assert recover(digest, signature) == SIGNER.address
    assert recover(digest, signature[:64] + b"\x01") == SIGNER.address
    made = SIGNER.sign_digest(digest)
    assert made[:64] == signature[:64]
    assert recover(digest, made[:64] + bytes([made[64] + 27])) == SIGNER.address
    assert recover(keccak(b"other"), signature) != SIGNER.address


@pytest.mark.parametrize(
    "signature",
    [
        b"",
        b"\0" * 65,
        b"\xff" * 64 + b"\x1b",
        b"\x01" * 64,
        b"\x01" * 66,
        b"\x01" * 64 + b"\x02",
        b"\x01" * 64 + b"\x1d",
    ],
)
def test_no_signature_is_a_typed_error(signature: bytes) -> None:
    with pytest.raises(InvalidSignature):
        recover(keccak(b"x"), signature)


@given(st.integers(1, 1 << 255).map(lambda number: number.to_bytes(32, "big")), st.binary(min_size=32, max_size=32))
@settings(max_examples=50, deadline=None)
def test_recover_agrees_with_eth_account(key: bytes, digest: bytes) -> None:
    account = Account.from_key(key)
    signature = bytes(account.unsafe_sign_hash(digest).signature)
    assert recover(digest, signature) == bytes.fromhex(account.address[2:])


def test_the_delegate_signs_a_delegated_request() -> None:
    assert expected_signer(ReqType.DELEGATED, DELEGATED) == b"\x22" * 20
    assert expected_signer(ReqType.DIRECT, DIRECT) == b"\x22" * 20
    assert expected_signer(ReqType.UNIFIED, UNIFIED) == SIGNER.address


@pytest.mark.parametrize(
    ("form", "body"),
    [
        (ReqType.DIRECT, {}),
        (ReqType.DIRECT, {**DIRECT, "public_key": 5}),
        (ReqType.DIRECT, {**DIRECT, "start_timestamp": str(2**256)}),
        (ReqType.DIRECT, {**DIRECT, "contracts": None}),
        (ReqType.DELEGATED, DIRECT),
        (ReqType.DELEGATED, {**DELEGATED, "delegator": "0x12"}),
        (ReqType.UNIFIED, {**UNIFIED, "handles": []}),
        (ReqType.UNIFIED, {**UNIFIED, "duration_seconds": "-1"}),
    ],
)
def test_bodies_of_another_shape_are_typed_errors(form: ReqType, body: Any) -> None:
    with pytest.raises(Unencodable):
        request_digest(form, body, DECRYPTION)


DOMAIN = {"name": "Decryption", "version": "1", "chainId": 8009, "verifyingContract": "0x" + DECRYPTION.hex()}
STRUCTS = {
    ReqType.DIRECT: ("UserDecryptRequestVerification", "publicKey contractAddresses startTimestamp durationDays"),
    ReqType.DELEGATED: (
        "DelegatedUserDecryptRequestVerification",
        "publicKey contractAddresses delegatorAddress startTimestamp durationDays",
    ),
    ReqType.UNIFIED: (
        "UserDecryptRequestVerification",
        "userAddress publicKey allowedContracts startTimestamp durationSeconds",
    ),
}
FIELDS: dict[str, tuple[str, str]] = {
    "publicKey": ("bytes", "public_key"),
    "contractAddresses": ("address[]", "contracts"),
    "allowedContracts": ("address[]", "allowed_contracts"),
    "delegatorAddress": ("address", "delegator"),
    "userAddress": ("address", "user"),
    "startTimestamp": ("uint256", "start_timestamp"),
    "durationDays": ("uint256", "duration_days"),
    "durationSeconds": ("uint256", "duration_seconds"),
    "extraData": ("bytes", "extra_data"),
}


@given(
    st.sampled_from([(ReqType.DIRECT, DIRECT), (ReqType.DELEGATED, DELEGATED), (ReqType.UNIFIED, UNIFIED)]),
    st.binary(max_size=100),
    st.lists(st.binary(min_size=20, max_size=20), max_size=4),
    st.integers(0, 2**256 - 1),
)
@settings(max_examples=60, deadline=None)
def test_digests_equal_eth_account(form: tuple[ReqType, Any], key: bytes, contracts: list[bytes], start: int) -> None:
    addresses = ["0x" + item.hex() for item in contracts]
    body = {
        **form[1],
        "public_key": "0x" + key.hex(),
        "start_timestamp": str(start),
        "extra_data": "0x" + key[:3].hex(),
    }
    body.update({"contracts": addresses, "allowed_contracts": addresses})
    primary, names = STRUCTS[form[0]]
    members = [*names.split(), "extraData"]
    types = [{"name": name, "type": FIELDS[name][0]} for name in members]
    message = {name: body[FIELDS[name][1]] for name in members}
    message = {name: int(value) if FIELDS[name][0] == "uint256" else value for name, value in message.items()}
    signable = encode_typed_data(DOMAIN, {primary: types}, message)
    expected = keccak(b"\x19" + signable.version + signable.header + signable.body)
    assert request_digest(form[0], body, DECRYPTION) == expected
