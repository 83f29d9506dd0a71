"""Handles: their layout, how those of a proven input are derived, and the plaintext each stands for on the devnet.

Layout of the 32 bytes: 0..20 hash, 21 index in its input (0xff for a computed value), 22..29 host chain id, 30 FHE
type, 31 version. Derivation: keccak256("ZK-w_rct" || ciphertext), then per value
keccak256("ZK-w_hdl" || that || index || ACL address || chain id as 32 bytes).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from eth_abi.abi import encode

from workers.devnet.eip712 import keccak256

EBOOL: Final = 0
EUINT32: Final = 4
EUINT64: Final = 5
EADDRESS: Final = 7
# FHE type code to bits of plaintext; ebool is one bit here and counts two against the limit of a request.
PLAINTEXT_BITS: Final = {0: 1, 2: 8, 3: 16, 4: 32, 5: 64, 6: 128, 7: 160, 8: 256}
COMPUTED: Final = 0xFF
VERSION: Final = 0


def compose(hash_bytes: bytes, index: int, chain_id: int, fhe_type: int) -> bytes:
    """A handle of the first 21 bytes of `hash_bytes`."""
    return hash_bytes[:21] + bytes([index]) + chain_id.to_bytes(8, "big") + bytes([fhe_type, VERSION])


def fresh(chain_id: int, fhe_type: int) -> bytes:
    """A handle that nobody has used, as of a computed value."""
    return compose(os.urandom(21), COMPUTED, chain_id, fhe_type)


def fhe_type_of(handle: bytes) -> int:
    return handle[30]


def derive(ciphertext: bytes, fhe_types: Sequence[int], acl: str, chain_id: int) -> list[bytes]:
    """The handles of a proven input with values of these types."""
    blob = keccak256(b"ZK-w_rct" + ciphertext)
    tail = bytes.fromhex(acl[2:]) + chain_id.to_bytes(32, "big")
    return [
        compose(keccak256(b"ZK-w_hdl" + blob + bytes([index]) + tail), index, chain_id, fhe_type)
        for index, fhe_type in enumerate(fhe_types)
    ]


def plaintext(handle: bytes) -> int:
    """The value behind a handle: nothing is encrypted on the devnet, so it is drawn from the handle itself.

    Raises:
        KeyError: a type that cannot be decrypted.
    """
    bits = PLAINTEXT_BITS[fhe_type_of(handle)]
    return int.from_bytes(keccak256(b"devnet plaintext" + handle), "big") & ((1 << bits) - 1)


def clear_values(handles: Sequence[bytes]) -> bytes:
    """The decrypted result of a public decryption: one ABI word a handle."""
    return encode(["uint256"] * len(handles), [plaintext(handle) for handle in handles])
