"""Spelling of addresses: lower case, or mixed case with the checksum of EIP-55."""

from __future__ import annotations

import re
from typing import Final

from requests_app.typed_data import keccak256

_LOWER: Final = re.compile(r"0x[0-9a-f]{40}").fullmatch
_ANY: Final = re.compile(r"0x[0-9a-fA-F]{40}").fullmatch


def checksummed(address: bytes) -> str:
    """The EIP-55 spelling of 20 bytes."""
    plain = address.hex()
    marks = keccak256(plain.encode()).hex()
    return "0x" + "".join(c.upper() if int(mark, 16) >= 8 else c for c, mark in zip(plain, marks, strict=False))


def parse_address(text: str) -> bytes | None:
    """The 20 bytes of an address that is spelled in lower case or by its checksum; None for anything else."""
    if _LOWER(text):
        return bytes.fromhex(text[2:])
    if not _ANY(text):
        return None
    raw = bytes.fromhex(text[2:])
    return raw if checksummed(raw) == text else None


def spellings(address: bytes) -> list[str]:
    """Every text by which `parse_address` knows these 20 bytes."""
    return sorted({"0x" + address.hex(), checksummed(address)})
