"""Reads which values a proven ciphertext list carries, without the FHE library.

Source: safe serialization of tfhe-rs (`ProvenCompactCiphertextList`, format seen from node-tfhe 1.4.0-alpha.3). The
types are a vector near the end: a u64 count, then for each value a u32 version (1) and a u32 kind; kind 0 (unsigned
integer) is followed by a u64 count of two-bit blocks, kind 2 is a boolean. Twelve bytes of options follow. All little
endian. The list may not be empty. The proof itself is not checked.
"""

from __future__ import annotations

import struct
from typing import Final

from workers.devnet.handles import EBOOL, EUINT32

MARKER: Final = b"high_level_api::ProvenCompactCiphertextList"
OPTIONS_BYTES: Final = 12
MAX_VALUES: Final = 255
BITS_TO_TYPE: Final = {8: 2, 16: 3, 32: 4, 64: 5, 128: 6, 160: 7, 256: 8}
_UNSIGNED: Final = struct.pack("<II", 1, 0)
_BOOLEAN: Final = struct.pack("<II", 1, 2)


def fhe_types(ciphertext: bytes) -> list[int]:
    """FHE type codes of the values, in order.

    Bodies that are not such a list (plain test data) stand for one euint32.

    Raises:
        ValueError: it says that it is such a list, and no types can be read from it.
    """
    if MARKER not in ciphertext[:128]:
        return [EUINT32]
    end = len(ciphertext) - OPTIONS_BYTES
    longest = min(end, 8 + 16 * MAX_VALUES)
    # A count of blocks can look like the vector's own count, so the longest vector that fits is the right one.
    for size in range(longest, 15, -1):
        found = _vector(ciphertext[end - size : end])
        if found:
            return found
    raise ValueError("no value types in the ciphertext list")


def _vector(raw: bytes) -> list[int] | None:
    """The types when `raw` is exactly one vector, else None."""
    (count,) = struct.unpack_from("<Q", raw)
    if not 1 <= count <= MAX_VALUES or not raw.startswith((_UNSIGNED, _BOOLEAN), 8):
        return None
    types: list[int] = []
    place = 8
    while place < len(raw) and len(types) < count:
        if raw.startswith(_BOOLEAN, place):
            types.append(EBOOL)
            place += 8
            continue
        if not raw.startswith(_UNSIGNED, place) or place + 16 > len(raw):
            return None
        (blocks,) = struct.unpack_from("<Q", raw, place + 8)
        fhe_type = BITS_TO_TYPE.get(blocks * 2)
        if fhe_type is None:
            return None
        types.append(fhe_type)
        place += 16
    return types if place == len(raw) and len(types) == count else None
