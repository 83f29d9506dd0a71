"""Handles, plaintexts and the types that a proven ciphertext list carries."""

from __future__ import annotations

from pathlib import Path

import pytest
from eth_abi.abi import decode

from workers.devnet import handles
from workers.devnet.ciphertext import MARKER, fhe_types
from workers.devnet.published import KEY_FILES

# Made once with node-tfhe (ProvenCompactCiphertextList.safe_serialize) over the devnet's public key and CRS.
ALL_TYPES = Path(__file__).parent / "data" / "proof_all_types.bin"


def test_types_of_real_proofs() -> None:
    assert fhe_types((KEY_FILES / "sample_proof.bin").read_bytes()) == [handles.EBOOL, handles.EUINT32]
    assert fhe_types(ALL_TYPES.read_bytes()) == [2, 3, 5, 6, 7, 8, 0]


def test_plain_bytes_stand_for_one_euint32() -> None:
    assert fhe_types(b"") == fhe_types(b"\xde\xad\xbe\xef") == [handles.EUINT32]


def test_a_broken_list_has_no_types() -> None:
    raw = (KEY_FILES / "sample_proof.bin").read_bytes()
    for broken in (raw[:-1], raw[:200], bytes(32) + MARKER, raw[:-30] + bytes(30)):
        with pytest.raises(ValueError, match="no value types"):
            fhe_types(broken)


def test_layout_of_a_derived_handle() -> None:
    acl, chain_id = "0x" + "ab" * 20, 8009
    first, second = handles.derive(b"ciphertext", [handles.EBOOL, handles.EUINT32], acl, chain_id)
    assert (first[21], second[21]) == (0, 1)
    assert (first[30:], second[30:]) == (b"\x00\x00", b"\x04\x00")
    assert int.from_bytes(first[22:30], "big") == chain_id
    assert first[:21] != second[:21]
    assert handles.derive(b"ciphertext", [0], "0x" + "cd" * 20, chain_id)[0][:21] != first[:21]


def test_every_plaintext_fits_its_type() -> None:
    made = [handles.fresh(8009, fhe_type) for fhe_type in handles.PLAINTEXT_BITS for _ in range(50)]
    for handle in made:
        value = handles.plaintext(handle)
        assert 0 <= value < 1 << handles.PLAINTEXT_BITS[handles.fhe_type_of(handle)]
        assert value == handles.plaintext(handle)
    words = handles.clear_values(made)
    assert list(decode(["uint256"] * len(made), words)) == [handles.plaintext(handle) for handle in made]


def test_an_unknown_type_has_no_plaintext() -> None:
    with pytest.raises(KeyError):
        handles.plaintext(handles.fresh(8009, 1))
