"""Rows in any state, written directly: what a test starts from."""

from __future__ import annotations

import os
import uuid
from typing import Any

import psycopg
from psycopg.rows import namedtuple_row

from requests_app.states import FINAL, Kind, Status

_EXTRA = {
    Kind.USER_DECRYPT: ("req_type", lambda: "user_decrypt"),
    Kind.PUBLIC_DECRYPT: None,
    Kind.INPUT_PROOF: ("int_request_id", uuid.uuid4),
}


def insert_request(conn: psycopg.Connection[Any], kind: Kind, status: Status, **columns: Any) -> int:
    """A request row in `status` with random ids; `columns` override."""
    values: dict[str, Any] = {
        "ext_job_id": uuid.uuid4(),
        "int_job_id": os.urandom(32),
        "status": str(status),
        **columns,
    }
    extra = _EXTRA[kind]
    if extra:
        values.setdefault(extra[0], extra[1]())
    final = ", completed_at" if status in FINAL else ""
    now = ", clock_timestamp()" if final else ""
    names, marks = ", ".join(values), ", ".join(f"%({name})s" for name in values)
    row = conn.execute(f"INSERT INTO {kind.table} ({names}{final}) VALUES ({marks}{now}) RETURNING id", values)
    found = row.fetchone()
    assert found is not None
    return int(found[0])


def read_request(conn: psycopg.Connection[Any], kind: Kind, row_id: int) -> Any:
    """The row as a named tuple."""
    with conn.cursor(row_factory=namedtuple_row) as cursor:
        return cursor.execute(f"SELECT * FROM {kind.table} WHERE id = %s", (row_id,)).fetchone()  # type: ignore[call-overload]


def insert_account(conn: psycopg.Connection[Any], name: str = "", status: str = "active") -> int:
    """A client account."""
    found = conn.execute(
        "INSERT INTO client_account (name, status) VALUES (%s, %s) RETURNING id", (name or uuid.uuid4().hex, status)
    ).fetchone()
    assert found is not None
    return int(found[0])
