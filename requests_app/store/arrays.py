"""Columns of a batch as PostgreSQL arrays, packed at once instead of value by value (reference/envelopes.md 6.7, T13).

psycopg packs a list in a loop of Python calls, and a batch of envelopes has ten columns of a thousand values. Lists of bytes, of texts and of
integers, without NULLs, go the fast way here; every other list goes psycopg's. What is sent is the same to the byte.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any, Final

from psycopg import Connection
from psycopg.abc import Buffer
from psycopg.types.array import ListBinaryDumper, ListDumper

_HEAD: Final = struct.Struct(
    "!iIiii"
).pack  # dimensions, whether NULLs are there, oid of the values, count, lower bound
_LENGTH: Final = struct.Struct("!i").pack
_INTEGERS: Final = {21: (2, "h"), 23: (4, "i"), 20: (8, "q")}  # oid -> bytes, format
_BYTEA, _TEXT = 17, 25
_SHORTEST: Final = 16


class BatchDumper(ListBinaryDumper):
    """Packs a list as a one-dimensional array in PostgreSQL's binary format."""

    def dump(self, obj: list[Any]) -> Buffer | None:
        """The array, as psycopg would pack it."""
        oid = self.sub_dumper.oid if self.sub_dumper and len(obj) >= _SHORTEST else 0
        if oid == _BYTEA and set(map(type, obj)) == {bytes}:
            return _packed_bytes(_HEAD(1, 0, oid, len(obj), 1), obj)
        if oid == _TEXT and self.sub_dumper and set(map(type, obj)) == {str}:
            return _packed_bytes(
                _HEAD(1, 0, oid, len(obj), 1), [bytes(self.sub_dumper.dump(one) or b"") for one in obj]
            )
        if oid in _INTEGERS and set(map(type, obj)) == {int}:
            values: list[int] = [_INTEGERS[oid][0]] * (2 * len(obj))
            values[1::2] = obj
            return _HEAD(1, 0, oid, len(obj), 1) + _layout(oid, len(obj)).pack(*values)
        return super().dump(obj)


def install(conn: Connection[Any]) -> None:
    """Use it for the `%b` parameters of a connection; `%s` stays text."""
    conn.adapters.register_dumper(list, BatchDumper)
    conn.adapters.register_dumper(list, ListDumper)


def _packed_bytes(head: bytes, obj: list[bytes]) -> bytes:
    lengths = list(map(len, obj))
    if len(set(lengths)) == 1:  # hashes, addresses, references
        before = _LENGTH(lengths[0])
        return head + before + before.join(obj)
    parts = [head] * (2 * len(obj) + 1)
    parts[1::2] = map(_LENGTH, lengths)
    parts[2::2] = obj
    return b"".join(parts)


@lru_cache(maxsize=64)
def _layout(oid: int, count: int) -> struct.Struct:
    return struct.Struct("!" + ("i" + _INTEGERS[oid][1]) * count)
