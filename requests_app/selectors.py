"""Reads for the API: what a client may see of its own jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg

from requests_app.states import Kind, Status
from requests_app.store import requests as store


@dataclass(frozen=True, slots=True)
class JobView:
    """A client's job. Hashes are 32 bytes; `res` and `shares` are the stored results; sizes only while it waits."""

    kind: Kind
    request_id: int
    ext_job_id: UUID
    status: Status
    created_at: datetime
    updated_at: datetime
    in_state_seconds: float
    canceled_at: datetime | None
    fail_label: str | None
    fail_detail: str | None
    fail_selector: bytes | None
    gw_reference_id: bytes | None
    gw_req_tx_hash: bytes | None
    gw_response_tx_hash: bytes | None
    readiness_queue_size: int | None
    tx_queue_size: int | None
    queue_position: int | None
    res: dict[str, Any] | None
    accepted: bool | None
    shares: list[dict[str, str]] | None
    threshold: int | None = None


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One transition of a job."""

    verb: str
    from_status: str | None
    to_status: str
    actor: str
    reason: str | None
    tx_hash: bytes | None
    at: datetime


def find_job(
    conn: psycopg.Connection[Any],
    *,
    client_id: int,
    ext_job_id: UUID,
    kind: Kind | None = None,
    spare_shares: bool = False,
    placed: bool = False,
) -> JobView | None:
    """The client's job of this id (and kind, when the route names one); None for a stranger's or an unknown id.

    `spare_shares`: all stored shares of a completed user decrypt, not only as many as it needs. `placed`: while it waits, its
    place in the queue, too.
    """
    if kind is None:
        view = store.find_view(conn, client_id, ext_job_id)
        if view is None:
            return None
        kind = Kind(view.kind)
    row = store.find_job(conn, client_id, kind, ext_job_id, spare_shares=spare_shares, placed=placed)
    if row is None:
        return None
    response_column = "gw_consensus_tx_hash" if kind is Kind.USER_DECRYPT else "gw_response_tx_hash"
    return JobView(
        kind=kind,
        request_id=row.id,
        ext_job_id=row.view_id,
        status=Status(row.status),
        created_at=row.created_at,
        updated_at=row.updated_at,
        in_state_seconds=row.in_state_seconds,
        canceled_at=row.canceled_at,
        fail_label=row.fail_label,
        fail_detail=row.fail_detail,
        fail_selector=row.fail_selector,
        gw_reference_id=row.gw_reference_id,
        gw_req_tx_hash=row.gw_req_tx_hash,
        gw_response_tx_hash=getattr(row, response_column),
        readiness_queue_size=row.readiness_queue_size,
        tx_queue_size=row.tx_queue_size,
        queue_position=row.queue_position,
        res=getattr(row, "res", None),
        accepted=getattr(row, "accepted", None),
        shares=getattr(row, "shares", None),
        threshold=getattr(row, "resolved_threshold", None),
    )


def find_statuses(
    conn: psycopg.Connection[Any], subjects: Sequence[tuple[Kind, int]]
) -> dict[tuple[Kind, int], Status | None]:
    """Where many rows stand now, by one statement."""
    rows = store.find_statuses(conn, [kind.value for kind, _ in subjects], [row_id for _, row_id in subjects])
    return {(Kind(row.kind), row.id): Status(row.status) if row.status else None for row in rows}


def timeline(conn: psycopg.Connection[Any], kind: Kind, request_id: int) -> list[TimelineEntry]:
    """Every transition of a row, oldest first."""
    return [TimelineEntry(*row) for row in store.timeline(conn, kind, request_id)]
