"""Figures that the duty keeps and the first page reads: ended requests, each counted once; waiting ones and jobs, counted over and over."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, NamedTuple

import psycopg

from requests_app.errors import StaleEpoch
from requests_app.states import REQUEST_KINDS, Kind
from requests_app.store.session import fetch_all, fetch_only, run
from requests_app.store.signing import Fence

Connection = psycopg.Connection[Any]
MINUTE: Final = 60
QUARTER: Final = 900
TWO_HOURS: Final = 7200
EVER: Final = 0
GRAINS: Final = (EVER, MINUTE, QUARTER, TWO_HOURS)
KEPT_STEPS: Final = 100
GROWTH: Final = 1.25


# Payments as rows of the shape that requests have: they end with their last transition, and only an expiry has a label.
_PAYMENTS: Final = """(SELECT updated_at AS completed_at, created_at, state AS status, CASE WHEN state_reason = 'expired' THEN 'expired' END AS fail_label
     FROM payment_intent WHERE state IN ('canceled', 'failed', 'settled'))"""


class EndedRows(NamedTuple):
    """Rows of one kind that ever ended in one state."""

    kind: int
    status: str
    rows: int


class Ended(NamedTuple):
    """Rows that ended alike in one step; they took GROWTH**bucket seconds, up to a quarter more."""

    at: datetime
    status: str
    label: str
    bucket: int
    n: int


def count_ended(conn: Connection, kind: Kind, settle_seconds: float, limit: int, fence: Fence | None = None) -> int:
    """Add the next ended rows of a kind to the figures, in one statement under the duty's fence; how many.

    Raises StaleEpoch, with nothing counted, when the fence does not hold any more.
    """
    parameters = {
        "resource": fence.resource if fence else None,
        "instance": fence.instance if fence else None,
        "epoch": fence.epoch if fence else None,
        "kind": kind.value,
        "settle": settle_seconds,
        "limit": limit,
        "grains": list(GRAINS),
        "steps": KEPT_STEPS,
    }
    table = _PAYMENTS if kind is Kind.PAYMENT else kind.table
    row = fetch_only(conn, "figures", "count_ended", parameters, table=table)
    if not row.marks:
        run(conn, "figures", "open_mark", {"kind": kind.value})
        row = fetch_only(conn, "figures", "count_ended", parameters, table=table)
    if fence is not None and not row.marks:
        raise StaleEpoch(f"{fence.resource}: epoch {fence.epoch} is over")
    return int(row.rows)


def forget_steps(conn: Connection) -> int:
    """Drop steps older than the charts show; how many figures left."""
    return run(conn, "figures", "forget_steps", {"steps": KEPT_STEPS})


def count_live(conn: Connection) -> None:
    """Count what waits by kind and state, whole. The caller's transaction holds the duty's fence."""
    run(conn, "figures", "count_live")


def count_jobs(conn: Connection) -> None:
    """Count the jobs by queue and kind, whole. The caller's transaction holds the duty's fence."""
    run(conn, "figures", "count_jobs")


def ended_ever(conn: Connection) -> list[EndedRows]:
    """How many rows ended in each final state since the figures began."""
    return [EndedRows(*row) for row in fetch_all(conn, "figures", "ended_ever")]


def ended_since(conn: Connection, grain: int, seconds: float) -> list[Ended]:
    """What ended of the gateway's requests in the last `seconds`, by steps of `grain` seconds."""
    parameters = {"grain": grain, "seconds": seconds, "kinds": [kind.value for kind in REQUEST_KINDS]}
    return [Ended(*row) for row in fetch_all(conn, "figures", "ended_since", parameters)]
