"""Webhooks and deliveries, written directly, and what the outbox holds."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.rows import namedtuple_row

from requests_app.states import EVENTS, DeliveryState, Kind

Connection = psycopg.Connection[Any]
SECRET = bytes(range(32))
_numbers = itertools.count(1)


def insert_webhook(
    conn: Connection,
    account_id: int,
    url: str = "https://receiver.example/hook",
    *,
    events: Sequence[str] = EVENTS,
    kinds: Sequence[Kind] = tuple(Kind),
    state: str = "enabled",
) -> int:
    """A webhook of an account; its row id."""
    found = conn.execute(
        "INSERT INTO webhook (public_id, account_id, url, events, kinds, secret, state)"
        " VALUES (%s, %s, %s, %s::text[], %s::smallint[], %s, %s) RETURNING id",
        (
            f"wh_{next(_numbers):024x}",
            account_id,
            url,
            list(events),
            [kind.value for kind in kinds],
            None if state == "removed" else SECRET,
            state,
        ),
    ).fetchone()
    assert found is not None
    return int(found[0])


def insert_delivery(conn: Connection, webhook_id: int, state: str = "waiting", **columns: Any) -> int:
    """A delivery of a test event, due now; its row id."""
    values = {
        "webhook_id": webhook_id,
        "event": "webhook.test",
        "state": state,
        "occurred_at": "2026-01-31T12:00:00Z",
        "ended_at": None if state == DeliveryState.WAITING else "2026-01-31T12:00:00Z",
        **columns,
    }
    names, marks = ", ".join(values), ", ".join(f"%({name})s" for name in values)
    found = conn.execute(
        f"INSERT INTO webhook_delivery ({names}) VALUES ({marks}) RETURNING id",  # type: ignore[arg-type]
        values,
    ).fetchone()
    assert found is not None
    return int(found[0])


def outbox(conn: Connection) -> list[tuple[int, str, str | None]]:
    """(webhook, event, the id the client knows) of every delivery, oldest first."""
    return list(conn.execute("SELECT webhook_id, event, subject FROM webhook_delivery ORDER BY id").fetchall())


def read_delivery(conn: Connection, delivery_id: int) -> Any:
    """The row as a named tuple."""
    with conn.cursor(row_factory=namedtuple_row) as cursor:
        return cursor.execute("SELECT * FROM webhook_delivery WHERE id = %s", (delivery_id,)).fetchone()


def make_due(conn: Connection) -> None:
    """Whatever waits is due now."""
    conn.execute("UPDATE webhook_delivery SET next_attempt_at = clock_timestamp() WHERE state = 'waiting'")
