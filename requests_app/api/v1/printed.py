"""How single values are printed on the native face: hex with 0x, times in UTC with Z, absent values null."""

from __future__ import annotations

from datetime import UTC, datetime


def hex_text(value: bytes | memoryview | None) -> str | None:
    """0x and the bytes in hex; None stays None."""
    return None if value is None else "0x" + bytes(value).hex()


def time_text(value: datetime | None) -> str | None:
    """A time to the millisecond, as in 2026-01-31T12:00:00.000Z; None stays None."""
    return None if value is None else value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
