"""Elementary rules for field values, with the exact complaint texts of fhevm_http 5.

A rule takes text and returns the complaint, or None when the text is fine. `Findings` collects complaints per field.
"""

from __future__ import annotations

import binascii
import re
import time
from collections.abc import Callable, Sequence
from typing import Final

from requests_app.api.refusals import Detail, validation_failed

Rule = Callable[[str], str | None]

MUST_START = "Must start with 0x"
MUST_NOT_START = "Must not start with 0x"
WRONG_LENGTH_42 = "Must be 42 characters long"
WRONG_LENGTH_HANDLE = "Must be 64 characters long"  # the text says 64, the count is 66 with the prefix
WRONG_LENGTH_SIGNATURE = "Must be 130 characters long"
NOT_HEX_ADDRESS = "Contains invalid hex characters"
NOT_HEX = "Invalid hex string"
NOT_A_CHAIN_ID = "Must be decimal number or 0x hex string"
EMPTY = "Must not be empty"
NOT_U32 = "Value must be a valid u32 number"
NOT_U64 = "Value must be a valid u64 number"
NOT_U256 = "Value must be a valid U256 number"
IN_THE_FUTURE = "Timestamp must not be in the future"
WRONG_EXTRA_DATA = (
    "Must be 0x00, or a versioned format: 0x01 + 32-byte contextId (0x07-tagged first byte), "
    "or 0x02 + 32-byte contextId (0x07-tagged) + 32-byte epochId (0x08-tagged)"
)

U32_MAX: Final = 2**32 - 1
U64_MAX: Final = 2**64 - 1
U256_MAX: Final = 2**256 - 1

# fullmatch and explicit classes: `$` would allow a final newline and `\d` every script's digits.
_FORTY_HEX = re.compile(r"[0-9a-fA-F]{40}").fullmatch
_DECIMAL = re.compile(r"\+?([0-9]+)").fullmatch
_HEX_ID = re.compile(r"0x\+?([0-9a-fA-F]+)").fullmatch
_PREFIXED = re.compile(r"0(?:[xX][0-9a-fA-F_]*|[oO][0-7_]*|[bB][01_]*)").fullmatch
_LOOSE_DECIMAL = re.compile(r"[0-9_]*").fullmatch
_EXTRA_DATA = re.compile(r"0x00|0x0107[0-9a-fA-F]{62}|0x0207[0-9a-fA-F]{62}08[0-9a-fA-F]{62}").fullmatch


class Findings:
    """The complaints about one body, in the order in which they were found."""

    __slots__ = ("_details",)

    def __init__(self) -> None:
        self._details: list[Detail] = []

    def add(self, field: str, complaint: str | None) -> None:
        """Note the complaint, if there is one."""
        if complaint is not None:
            self._details.append(Detail(field, complaint))

    def add_first(self, field: str, values: Sequence[str], rule: Rule) -> None:
        """Note the first complaint about a list's items: a list validator stops at the first bad item."""
        for value in values:
            complaint = rule(value)
            if complaint is not None:
                self._details.append(Detail(field, complaint))
                return

    def settle(self) -> None:
        """Raise Refused(validation_failed) when there is any complaint."""
        if self._details:
            raise validation_failed(self._details)


def is_hex(text: str) -> bool:
    """An even number of hex digits and nothing else. unhexlify skips no blanks (as bytes.fromhex does) and is fast."""
    try:
        binascii.unhexlify(text)
    except ValueError:
        return False
    return True


def address(text: str) -> str | None:
    """20 bytes with 0x; letter case is free and the checksum is not verified."""
    if not text.startswith("0x"):
        return MUST_START
    if len(text.encode()) != 42:
        return WRONG_LENGTH_42
    return None if _FORTY_HEX(text, 2) else NOT_HEX_ADDRESS


def hex_0x(text: str) -> str | None:
    """0x and an even number of hex digits, zero digits allowed."""
    if not text.startswith("0x"):
        return MUST_START
    return None if is_hex(text[2:]) else NOT_HEX


def hex_bare(text: str) -> str | None:
    """An even number of hex digits without prefix, zero digits allowed."""
    if text.startswith("0x"):
        return MUST_NOT_START
    return None if is_hex(text) else NOT_HEX


def hex_0x_or_empty(text: str) -> str | None:
    """The empty string, or hex with 0x."""
    return hex_0x(text) if text else None


def handle(text: str) -> str | None:
    """32 bytes with 0x."""
    complaint = hex_0x(text)
    if complaint is None and len(text) != 66:
        return WRONG_LENGTH_HANDLE
    return complaint


def not_empty(value: Sequence[object]) -> str | None:
    """At least one item or character."""
    return None if value else EMPTY


def signature_length(text: str) -> str | None:
    """65 bytes as hex without prefix."""
    return None if len(text) == 130 else WRONG_LENGTH_SIGNATURE


def chain_id(text: str) -> str | None:
    """A u64 in decimal, or 0x and hex."""
    return None if parse_chain_id(text) is not None else NOT_A_CHAIN_ID


def u32(text: str) -> str | None:
    """A decimal u32."""
    return None if parse_decimal(text, U32_MAX) is not None else NOT_U32


def u64(text: str) -> str | None:
    """A decimal u64."""
    return None if parse_decimal(text, U64_MAX) is not None else NOT_U64


def timestamp(text: str) -> str | None:
    """A 256-bit unsigned number not later than this server's clock, in seconds since 1970.

    The one place where the web process's own clock counts: the hot POST makes a single statement, and the gateway
    contract compares with its block time again.
    """
    value = parse_u256(text)
    if value is None:
        return NOT_U256
    return IN_THE_FUTURE if value > int(time.time()) else None


def extra_data_of_proof(text: str) -> str | None:
    """Input proofs know version 0 only."""
    return None if text == "0x00" else WRONG_EXTRA_DATA


def extra_data(text: str) -> str | None:
    """Version 0, 1 or 2 of fhevm_http 13.5; the prefix is matched as text, so 0x is lower case."""
    return None if _EXTRA_DATA(text) else WRONG_EXTRA_DATA


def parse_decimal(text: str, largest: int) -> int | None:
    """The number in `text`, or None. Rust's syntax: an optional plus sign, ASCII digits, nothing else."""
    match = _DECIMAL(text)
    if match is None:
        return None
    digits = match[1].lstrip("0") or "0"
    # int() of thousands of digits is slow and, from 4,300 on, an error.
    if len(digits) > 78:
        return None
    value = int(digits)
    return value if value <= largest else None


def parse_chain_id(text: str) -> int | None:
    """The u64 in `text`, decimal or 0x hex, or None."""
    match = _HEX_ID(text)
    if match is None:
        return parse_decimal(text, U64_MAX)
    digits = match[1].lstrip("0") or "0"
    return int(digits, 16) if len(digits) <= 16 else None


def parse_u256(text: str) -> int | None:
    """The number in `text`, or None. Accepts what Rust's U256 does: 0x, 0o, 0b prefixes, underscores, empty as 0."""
    base, digits = 10, text
    if _PREFIXED(text):
        base, digits = {"x": 16, "o": 8, "b": 2}[text[1].lower()], text[2:]
    elif not _LOOSE_DECIMAL(text):
        return None
    digits = digits.replace("_", "").lstrip("0") or "0"
    if len(digits) > 256:
        return None
    value = int(digits, base)
    return value if value <= U256_MAX else None
