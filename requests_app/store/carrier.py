"""The outbox of a queue that travels by another carrier: which keys are to be published, and leasing by key (design 5.3.4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from psycopg import Connection

from requests_app import sql
from requests_app.store.queue import DEFERRED, Delivery, Receipt, delivery_of
from requests_app.store.session import Row, fetch_all, fetch_tuples, run
from requests_app.store.turns import Turns


class Due(NamedTuple):
    """A job whose key the carrier is to get. The receipt is not one of a lease: it only says which job it was."""

    receipt: Receipt
    job_key: str


def claim_due(conn: Connection[Any], turns: Turns, limit: int, seconds: float) -> list[Due]:
    """At most `limit` visible jobs of the queue of `turns`, hidden for `seconds`: publish their keys, then `keep_published`."""

    def fetch(claim: str, parameters: dict[str, Any]) -> list[Row]:
        return fetch_all(conn, "carrier", "claim_due", {**parameters, "seconds": float(seconds)}, claim=claim)

    rows = turns.take(conn, limit, DEFERRED, DEFERRED, fetch)
    return [Due(Receipt(row.id, row.attempt), row.job_key) for row in rows]


def keep_published(conn: Connection[Any], published: Sequence[Due], seconds: float) -> int:
    """Keep jobs whose keys are out from being published again for `seconds`; how many nobody had leased yet."""
    if not published:
        return 0
    parameters = {
        "id": [one.receipt.job_id for one in published],
        "attempt": [one.receipt.attempt for one in published],
        "seconds": float(seconds),
    }
    return run(conn, "carrier", "keep_published", parameters)


def lease_keys(
    conn: Connection[Any], queue: str, keys: Sequence[str], owner: str, seconds: float
) -> dict[str, Delivery]:
    """Lease the jobs of these keys, by key: the same lease as everybody's. Left out: leased by others, put off, or gone."""
    if not keys:
        return {}
    parameters = {"queue": queue, "keys": list(keys), "owner": owner, "seconds": float(seconds)}
    parts = {name: sql.statement("queue", name) for name in ("claim_keys", "leased")}
    return {key: delivery_of(*row) for *row, key in fetch_tuples(conn, "queue", "lease_keys", parameters, **parts)}


def waiting_keys(conn: Connection[Any], queue: str, keys: Sequence[str]) -> set[str]:
    """Those of the keys that have a job which nobody holds."""
    if not keys:
        return set()
    return {row.job_key for row in fetch_all(conn, "carrier", "waiting_keys", {"queue": queue, "keys": list(keys)})}
