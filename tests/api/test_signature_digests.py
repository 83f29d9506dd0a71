"""What the signers of user decrypts have signed: golden vectors of fhevm_http 19.2 (from ethers v6), and eth_account as a second opinion."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from eth_account import Account
from eth_account.messages import encode_typed_data
from hypothesis import given, settings
from hypothesis import strategies as st

from requests_app.api import signatures
from requests_app.api.signatures import legacy_digest, unified_digest
from requests_app.states import ReqType
from requests_app.typed_data import keccak256, recover
from tests.chain import bodies

DECRYPTION = bytes.fromhex("B8Ae44365c45A7C5256b14F607CaE23BC040c354")
SIGNER = Account.from_key(b"\x11" * 32)
V3 = "8c22909e251695348d5efda2f03e5678ec4d1467a8a1644367f14ab0b85b9405"
UNIFIED = {**bodies.UNIFIED, "user": SIGNER.address.lower()}
DIRECT = {**bodies.DIRECT, "duration_days": "1"}
DELEGATED = {**bodies.DELEGATED, "duration_days": "1"}


@pytest.fixture(autouse=True)
def gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signatures, "config", lambda: SimpleNamespace(gateway=SimpleNamespace(decryption=DECRYPTION)))


def digest_of(form: ReqType, body: Any) -> bytes:
    return unified_digest(body, 8009) if form is ReqType.UNIFIED else legacy_digest(form, body)[0]


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
    assert digest_of(form, body).hex() == digest


@given(st.integers(1, 1 << 255).map(lambda number: number.to_bytes(32, "big")), st.binary(min_size=32, max_size=32))
@settings(max_examples=50, deadline=None)
def test_recover_agrees_with_eth_account(key: bytes, digest: bytes) -> None:
    account = Account.from_key(key)
    signature = bytes(account.unsafe_sign_hash(digest).signature)
    assert recover(digest, signature) == bytes.fromhex(account.address[2:])


@pytest.mark.parametrize(
    ("form", "body", "signer"),
    [(ReqType.DELEGATED, DELEGATED, b"\x22" * 20), (ReqType.DIRECT, DIRECT, b"\x22" * 20)],
    ids=["the delegate", "the user"],
)
def test_who_must_have_signed(form: ReqType, body: Any, signer: bytes) -> None:
    assert legacy_digest(form, body)[1] == signer


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
    expected = keccak256(b"\x19" + signable.version + signable.header + signable.body)
    assert digest_of(form[0], body) == expected
