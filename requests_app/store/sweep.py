"""Statements of the duties: overdue rows, lost jobs, retention, the published key. Intervals are seconds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from psycopg import Connection

from requests_app.states import Kind, Status
from requests_app.store.requests import job_key
from requests_app.store.session import fetch_all, run


class Overdue(NamedTuple):
    """A row past its deadline. `has_attempt`: signed bytes for it exist or existed."""

    kind: Kind
    id: int
    status: Status
    ref: bytes | None
    receipt_block: int | None
    late_seconds: float
    spent_seconds: float
    has_attempt: bool


class Attempt(NamedTuple):
    """A signed transaction of a row: hash 32 bytes, signer's address 20 bytes. `carries`: not one that spends the nonce on nothing."""

    kind: Kind
    id: int
    tx_hash: bytes
    nonce: int
    state: str
    send_count: int
    address: bytes
    carries: bool


def overdue(conn: Connection[Any], limit: int) -> list[Overdue]:
    """At most `limit` rows of each kind and state, the longest overdue first."""
    return [
        Overdue(Kind(row.kind), row.id, Status(row.status), *row[3:])
        for row in fetch_all(conn, "sweep", "overdue", {"limit": limit})
    ]


def still_overdue(conn: Connection[Any], kind: Kind, ids: Sequence[int], status: Status) -> set[int]:
    """Lock those rows that are still in `status` and past their deadline, in the caller's transaction: their ids."""
    parameters = {"ids": list(ids), "status": status.value}
    return {row.id for row in fetch_all(conn, "sweep", "still_overdue", parameters, table=kind.table)}


def attempts_of(conn: Connection[Any], subjects: Sequence[tuple[Kind, int]]) -> list[Attempt]:
    """Every attempt of these rows, in nonce order."""
    if not subjects:
        return []
    parameters = {"kinds": [kind.value for kind, _ in subjects], "ids": [row_id for _, row_id in subjects]}
    return [Attempt(Kind(row[0]), *row[1:]) for row in fetch_all(conn, "sweep", "attempts_of", parameters)]


def extend_deadlines(conn: Connection[Any], kind: Kind, ids: Sequence[int], status: Status, seconds: float) -> int:
    """Give rows that are still in `status` another `seconds`: how many. Nothing else of them changes."""
    parameters = {"ids": list(ids), "status": status.value, "seconds": seconds}
    return run(conn, "sweep", "extend_deadlines", parameters, table=kind.table) if ids else 0


def drop_jobs(conn: Connection[Any], kind: Kind, ids: Sequence[int]) -> int:
    """Remove the jobs of rows that need no more work: how many there were."""
    return run(conn, "sweep", "drop_jobs", {"keys": [job_key(kind, row_id) for row_id in ids]}) if ids else 0


def enqueue_lost(conn: Connection[Any], idle_seconds: float, limit: int, priority: int) -> int:
    """Make the missing jobs of rows that have waited for `idle_seconds` without one: how many."""
    return run(conn, "sweep", "enqueue_lost", {"idle": idle_seconds, "limit": limit, "priority": priority})


def purge_requests(conn: Connection[Any], kind: Kind, seconds: float, limit: int) -> int:
    """Delete at most `limit` rows that have been final for `seconds`, with all that hangs on them: how many."""
    parameters = {"kind": kind.value, "seconds": seconds, "limit": limit}
    return run(conn, "sweep", "purge_requests", parameters, table=kind.table)


def purge_foreign(conn: Connection[Any], seconds: float, limit: int) -> int:
    """Delete references that nobody here has claimed for `seconds`, with their shares: how many."""
    return run(conn, "sweep", "purge_foreign", {"seconds": seconds, "limit": limit})


def publish_key(
    conn: Connection[Any], key_id: bytes, crs_id: bytes, context_id: bytes, body: Mapping[str, Any]
) -> bool:
    """Publish what /v2/keyurl answers under `response`; whether that is news. Ids are 32 bytes."""
    parameters = {"key_id": key_id, "crs_id": crs_id, "context_id": context_id, "body": json.dumps(body)}
    return run(conn, "sweep", "publish_key", parameters) == 1
