"""EIP-712: the golden vectors of fhevm_http 19.2 (made by ethers)."""

from __future__ import annotations

import pytest

from requests_app import typed_data as t
from tests.api.bodies import CONTRACT, DELEGATOR, SIGNER

DOMAIN = t.Domain("Decryption", 8009, bytes.fromhex("B8Ae44365c45A7C5256b14F607CaE23BC040c354"))
C, D, U = (bytes.fromhex(text[2:]) for text in (CONTRACT, DELEGATOR, SIGNER))
START, KEY, EXTRA = 1_700_000_000, bytes.fromhex("abcd"), b"\0"
SIGNATURE = bytes.fromhex(
    "d1956544c2b7ecec1a0949c8025987367cc8a72ad74763be6eaa4ad6cb9474f55b95dc53913d5158a96793409f95bc5fbb42e66a9d5012708c7e7df7a0c1fa6a1c"
)
UNIFIED_DIGEST = bytes.fromhex("8c22909e251695348d5efda2f03e5678ec4d1467a8a1644367f14ab0b85b9405")


def test_domain_separator() -> None:
    assert DOMAIN.separator().hex() == "7b40d194c57942a565091f2b0af548753e9b3b68fde0d8c4dfc746223c3e722f"


@pytest.mark.parametrize(
    ("type_text", "expected"),
    [
        (t.DIRECT_TYPE, "9bf1f2b06a0ed501e5fa5a12ba3f9fbc1343c988847fb585c29c59ada4b71ab5"),
        (t.DELEGATED_TYPE, "c93bc1d3fd0d779bf2a605403200af965b7571bbaf3401ffb5174398fbddac45"),
        (t.UNIFIED_TYPE, "4ee965201c2f6fd39bb37401a5de0ea2362ef4db8199c112ec67d694006e114e"),
    ],
)
def test_typehashes(type_text: bytes, expected: str) -> None:
    assert t.keccak256(type_text).hex() == expected


def test_unified_digest_and_signer() -> None:
    digest = DOMAIN.digest(t.unified_hash(U, KEY, [C], START, 86_400, EXTRA))
    assert digest == UNIFIED_DIGEST
    assert t.recover(digest, SIGNATURE) == U


def test_unified_digest_without_contracts() -> None:
    digest = DOMAIN.digest(t.unified_hash(U, KEY, [], START, 86_400, EXTRA))
    assert digest.hex() == "be81573c4714a766b6d89936dddfae77a9f228c494198f7f235a03db10a197ab"


def test_direct_digest() -> None:
    digest = DOMAIN.digest(t.direct_hash(KEY, [C], START, 1, EXTRA))
    assert digest.hex() == "cee963a4eadb5f4ada8f91c2dce9f97c4df79f74a6993fe011fd4377e5b95f2f"


def test_delegated_digest() -> None:
    digest = DOMAIN.digest(t.delegated_hash(KEY, [C], D, START, 1, EXTRA))
    assert digest.hex() == "d40751605687a1b122f474fac9391f7aa02b99683906a7560690ce0ecec51544"


@pytest.mark.parametrize("v", [0, 1, 27, 28])
def test_all_four_spellings_of_v_are_read(v: int) -> None:
    assert (t.recover(UNIFIED_DIGEST, SIGNATURE[:64] + bytes([v])) == U) is (v in (1, 28))


@pytest.mark.parametrize(
    "signature",
    [
        b"",
        SIGNATURE[:64],
        SIGNATURE + b"\0",
        SIGNATURE[:64] + b"\x02",
        SIGNATURE[:64] + b"\xff",
        b"\xff" * 65,
        bytes(65),
    ],
)
def test_nonsense_names_nobody(signature: bytes) -> None:
    assert t.recover(UNIFIED_DIGEST, signature) is None
