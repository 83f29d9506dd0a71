"""Arrays packed at once are the bytes that psycopg packs."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.adapt import PyFormat, Transformer
from psycopg.types.array import ListBinaryDumper

from requests_app.store.arrays import BatchDumper, install

COLUMNS = st.one_of(
    st.lists(st.binary(max_size=40), min_size=1, max_size=60),
    st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=60),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=60),
    st.lists(st.integers(-(2**15), 2**15 - 1), min_size=1, max_size=60),
    st.lists(st.one_of(st.none(), st.binary(max_size=8)), min_size=1, max_size=60).filter(any),
    st.lists(st.one_of(st.none(), st.integers(0, 2**40)), min_size=1, max_size=60).filter(any),
    st.lists(st.text(alphabet='abä,{}"', max_size=5), min_size=1, max_size=60),
    st.lists(st.one_of(st.none(), st.text(alphabet="aß", max_size=3)), min_size=1, max_size=60).filter(any),
    st.lists(st.lists(st.integers(0, 9), min_size=2, max_size=2), min_size=1, max_size=30),
    st.lists(st.booleans(), min_size=1, max_size=60),
)


@given(COLUMNS)
def test_same_bytes(column: list[Any]) -> None:
    def packed(dumper: type[ListBinaryDumper]) -> bytes:
        return bytes(dumper(list, Transformer()).upgrade(column, PyFormat.BINARY).dump(column) or b"")

    assert packed(BatchDumper) == packed(ListBinaryDumper)


@pytest.mark.parametrize(
    "values",
    [[b"x" * 32] * 40, [bytes(n) for n in range(40)], list(range(2**40, 2**40 + 40)), ["ä{,}" * n for n in range(40)]],
)
def test_through_the_server(conn: psycopg.Connection, values: list[Any]) -> None:
    install(conn)
    with psycopg.Cursor(conn) as cursor:
        kind = {bytes: "bytea", int: "bigint", str: "text"}[type(values[0])]
        row = cursor.execute(f"SELECT %(v)b::{kind}[], %(w)s::text[]", {"v": values, "w": ["a", None]}).fetchone()
    assert row == (values, ["a", None])
