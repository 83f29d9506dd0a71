"""Jobs of a client in any state, written directly, and what the database holds."""

from __future__ import annotations

import json
import os
from typing import Any
from uuid import UUID, uuid4

import psycopg
from psycopg.sql import SQL, Identifier, Placeholder

from requests_app.states import Kind, Status
from tests.core.rows import insert_request

TABLES = ["user_decrypt_req", "public_decrypt_req", "input_proof_req", "request_payload", "request_client", "queue_job"]


def insert_job(conn: psycopg.Connection[Any], client_id: int, kind: Kind, status: Status, **columns: Any) -> UUID:
    """A row in `status` with the client's view of it: the client's job id."""
    if isinstance(columns.get("res"), dict):
        columns["res"] = json.dumps(columns["res"])
    row_id = insert_request(conn, kind, status, **columns)
    return insert_view(conn, client_id, kind, row_id)


def insert_view(conn: psycopg.Connection[Any], client_id: int, kind: Kind, row_id: int) -> UUID:
    """A client's view of a row."""
    job_id = uuid4()
    conn.execute(
        "INSERT INTO request_client (client_id, kind, request_id, ext_job_id) VALUES (%s, %s, %s, %s)",
        (client_id, kind.value, row_id, job_id),
    )
    return job_id


def set_status(conn: psycopg.Connection[Any], kind: Kind, job_id: str | UUID, status: Status, **columns: Any) -> None:
    """Move the row behind a job id, without the machine."""
    if isinstance(columns.get("res"), dict):
        columns["res"] = json.dumps(columns["res"])
    final = status in (Status.COMPLETED, Status.FAILURE, Status.TIMED_OUT)
    assignments = SQL("").join(SQL(", {} = {}").format(Identifier(name), Placeholder(name)) for name in columns)
    conn.execute(
        SQL(
            """UPDATE {table} SET status = %(status)s, state_entered_at = clock_timestamp(),
                 completed_at = CASE WHEN %(final)s THEN clock_timestamp() END {assignments}
               WHERE id = (SELECT request_id FROM request_client WHERE ext_job_id = %(job)s)"""
        ).format(table=Identifier(kind.table), assignments=assignments),
        {"status": status.value, "final": final, "job": job_id, **columns},
    )


def insert_shares(conn: psycopg.Connection[Any], reference: bytes, order: list[int]) -> None:
    """Shares with these indexes, arriving in this order."""
    for place, index in enumerate(order):
        conn.execute(
            """INSERT INTO user_decrypt_share
                 (gw_reference_id, share_index, share, kms_signature, extra_data, tx_hash, position)
               VALUES (%s, %s, %s, %s, %s, %s, %s)""",
            (reference, index, bytes([0xAA, index]), bytes([index]) * 65, b"\0", os.urandom(32), place << 20),
        )


def fill_queue(conn: psycopg.Connection[Any], queue: str, kind: Kind, count: int) -> None:
    """Jobs that wait, of nobody in particular."""
    conn.execute(
        """INSERT INTO queue_job (queue, job_key, kind, subject_id, tenant_id)
           SELECT %(queue)s, 'filler/' || %(queue)s || '/' || %(kind)s || '/' || g, %(kind)s, 1000000 + g, 1 FROM generate_series(1, %(count)s) g""",
        {"queue": queue, "kind": kind.value, "count": count},
    )


def counts(conn: psycopg.Connection[Any]) -> dict[str, int]:
    """How many rows each table holds."""
    found = {}
    for table in TABLES:
        row = conn.execute(SQL("SELECT count(*) FROM {}").format(Identifier(table))).fetchone()
        assert row is not None
        found[table] = int(row[0])
    return found
