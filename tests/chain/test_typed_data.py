"""Golden vectors of fhevm_http 19.2 (from ethers v6), and eth_account as a second opinion."""

from __future__ import annotations

from typing import Any

import pytest
from eth_account import Account
from eth_account.messages import encode_typed_data
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.chain import typed_data
from workers.chain.keccak import keccak
from workers.chain.signer import LocalSigner
from workers.chain.typed_data import InvalidSignature, recover

DECRYPTION = bytes.fromhex("B8Ae44365c45A7C5256b14F607CaE23BC040c354")
SIGNER = LocalSigner(b"\x11" * 32, 1)
C, D = b"\x11" * 20, b"\x33" * 20
COMMON: dict[str, Any] = {"public_key": bytes.fromhex("abcd"), "start_timestamp": 1700000000, "extra_data": b"\0"}
V3 = "8c22909e251695348d5efda2f03e5678ec4d1467a8a1644367f14ab0b85b9405"
V3_SIGNATURE = (
    "d1956544c2b7ecec1a0949c8025987367cc8a72ad74763be6eaa4ad6cb9474f5"
    "5b95dc53913d5158a96793409f95bc5fbb42e66a9d5012708c7e7df7a0c1fa6a1c"
)


@pytest.mark.parametrize(
    ("typehash", "expected"),
    [
        (typed_data.DIRECT_TYPE, "9bf1f2b06a0ed501e5fa5a12ba3f9fbc1343c988847fb585c29c59ada4b71ab5"),
        (typed_data.DELEGATED_TYPE, "c93bc1d3fd0d779bf2a605403200af965b7571bbaf3401ffb5174398fbddac45"),
        (typed_data.UNIFIED_TYPE, "4ee965201c2f6fd39bb37401a5de0ea2362ef4db8199c112ec67d694006e114e"),
        (typed_data.PUBLIC_TYPE, "89bac15e5ba205584832145601e359431e80fb9fb331ba5a22058132d525c794"),
        (typed_data.CIPHERTEXT_TYPE, "7572bd9d6960146795387efc75c1f9d948f0c5aa786c2bb453b4b150e49801b4"),
    ],
)
def test_typehashes(typehash: bytes, expected: str) -> None:
    assert typehash.hex() == expected


def test_domain_separator() -> None:
    separator = typed_data.domain_separator("Decryption", 8009, DECRYPTION)
    assert separator.hex() == "7b40d194c57942a565091f2b0af548753e9b3b68fde0d8c4dfc746223c3e722f"


def test_golden_digests_of_the_three_forms() -> None:
    unified = {"user": SIGNER.address, "duration_seconds": 86400, **COMMON}
    assert typed_data.unified_digest(8009, DECRYPTION, allowed_contracts=[C], **unified).hex() == V3
    none_allowed = typed_data.unified_digest(8009, DECRYPTION, allowed_contracts=[], **unified)
    assert none_allowed.hex() == "be81573c4714a766b6d89936dddfae77a9f228c494198f7f235a03db10a197ab"
    direct = typed_data.direct_digest(8009, DECRYPTION, contracts=[C], duration_days=1, **COMMON)
    assert direct.hex() == "cee963a4eadb5f4ada8f91c2dce9f97c4df79f74a6993fe011fd4377e5b95f2f"
    delegated = typed_data.delegated_digest(8009, DECRYPTION, contracts=[C], delegator=D, duration_days=1, **COMMON)
    assert delegated.hex() == "d40751605687a1b122f474fac9391f7aa02b99683906a7560690ce0ecec51544"


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


@given(st.binary(max_size=70), st.binary(min_size=32, max_size=32))
@settings(max_examples=200, deadline=None)
def test_any_bytes_give_an_address_or_a_typed_error(signature: bytes, digest: bytes) -> None:
    try:
        assert len(recover(digest, signature)) == 20
    except InvalidSignature:
        assert True


def eth_account_digest(primary: str, types: dict[str, str], message: dict[str, Any], domain: dict[str, Any]) -> bytes:
    fields = [{"name": name, "type": kind} for name, kind in types.items()]
    signable = encode_typed_data(domain, {primary: fields}, message)
    return keccak(b"\x19" + signable.version + signable.header + signable.body)


@given(st.binary(max_size=100), st.lists(st.binary(min_size=20, max_size=20), max_size=4), st.integers(0, 2**256 - 1))
@settings(max_examples=50, deadline=None)
def test_digests_equal_eth_account(key: bytes, contracts: list[bytes], start: int) -> None:
    domain = {"name": "Decryption", "version": "1", "chainId": 9, "verifyingContract": "0x" + DECRYPTION.hex()}
    types = {
        "publicKey": "bytes",
        "contractAddresses": "address[]",
        "delegatorAddress": "address",
        "startTimestamp": "uint256",
        "durationDays": "uint256",
        "extraData": "bytes",
    }
    message = {
        "publicKey": key,
        "contractAddresses": ["0x" + item.hex() for item in contracts],
        "delegatorAddress": "0x" + D.hex(),
        "startTimestamp": start,
        "durationDays": 3,
        "extraData": key[:5],
    }
    ours = typed_data.delegated_digest(
        9,
        DECRYPTION,
        public_key=key,
        contracts=contracts,
        delegator=D,
        start_timestamp=start,
        duration_days=3,
        extra_data=key[:5],
    )
    assert ours == eth_account_digest("DelegatedUserDecryptRequestVerification", types, message, domain)


def test_answer_digests_equal_eth_account() -> None:
    """KMS and coprocessor signatures, which the demo re-checks."""
    handles = [b"\x01" * 32, b"\x02" * 32]
    domain = {"name": "Decryption", "version": "1", "chainId": 654321, "verifyingContract": "0x" + DECRYPTION.hex()}
    public = typed_data.public_decrypt_digest(654321, DECRYPTION, handles=handles, result=b"\x05" * 64, extra_data=b"")
    types = {"ctHandles": "bytes32[]", "decryptedResult": "bytes", "extraData": "bytes"}
    message: dict[str, Any] = {"ctHandles": handles, "decryptedResult": b"\x05" * 64, "extraData": b""}
    assert public == eth_account_digest("PublicDecryptVerification", types, message, domain)
    proof = typed_data.ciphertext_digest(
        654321, DECRYPTION, handles=handles, user=C, contract=D, contract_chain_id=8009, extra_data=b"\0"
    )
    types = {
        "ctHandles": "bytes32[]",
        "userAddress": "address",
        "contractAddress": "address",
        "contractChainId": "uint256",
        "extraData": "bytes",
    }
    message = {
        "ctHandles": handles,
        "userAddress": "0x" + C.hex(),
        "contractAddress": "0x" + D.hex(),
        "contractChainId": 8009,
        "extraData": b"\0",
    }
    assert proof == eth_account_digest(
        "CiphertextVerification", types, message, {**domain, "name": "InputVerification"}
    )


def test_signature_by_eth_account_recovers() -> None:
    account = Account.from_key(b"\x42" * 32)
    digest = keccak(b"m")
    signed = account.unsafe_sign_hash(digest)
    assert recover(digest, bytes(signed.signature)) == bytes.fromhex(account.address[2:])
