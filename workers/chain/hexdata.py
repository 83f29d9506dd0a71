"""JSON-RPC hex values (execution-apis "DATA" and "QUANTITY") to and from bytes and int."""

from __future__ import annotations

from binascii import Error as BinasciiError
from binascii import hexlify, unhexlify


class MalformedHex(ValueError):
    """A value is not what its JSON-RPC type promises."""


def data(text: object, size: int | None = None) -> bytes:
    """Bytes of a DATA string ("0x" and an even number of digits).

    `size` is the required length in bytes. Raises MalformedHex for anything else; blanks are refused, unlike in
    `bytes.fromhex`.
    """
    if not isinstance(text, str) or text[:2] != "0x":
        raise MalformedHex("expected 0x data")
    try:
        raw = unhexlify(text[2:])
    except (BinasciiError, ValueError):
        raise MalformedHex("0x data with other characters than pairs of hex digits") from None
    if size is not None and len(raw) != size:
        raise MalformedHex(f"expected {size} bytes, got {len(raw)}")
    return raw


def quantity(text: object) -> int:
    """The int of a QUANTITY string. Raises MalformedHex. Leading zeros are accepted: some nodes send them."""
    if not isinstance(text, str) or text[:2] != "0x" or not text[2:].isalnum():
        raise MalformedHex("expected a 0x quantity")
    try:
        return int(text, 16)
    except ValueError:
        raise MalformedHex("expected a 0x quantity") from None


def hex_data(raw: bytes) -> str:
    """The DATA string of `raw`, lower case."""
    return "0x" + hexlify(raw).decode()


def hex_quantity(number: int) -> str:
    """The QUANTITY string of a non-negative int. Raises ValueError for a negative one."""
    if number < 0:
        raise ValueError("a quantity is never negative")
    return hex(number)
