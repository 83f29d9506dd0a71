"""Publications of this deployment: staged by the API, put into the log by the publisher (design 5.4.7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

from psycopg import Connection

from requests_app.errors import RelayerError
from requests_app.store.bands import checked_position, checked_source
from requests_app.store.session import fetch_all, fetch_one, run

PUBLISHED: Final = 100
"""The kind of a published envelope; kinds of chain events are below."""

LONGEST_TOPIC: Final = 128
WAITING_AT_MOST: Final = 10_000
NAME: Final = "publisher"
RESERVED: Final[Mapping[int, str]] = {101: "reserved-settlements", 102: "reserved-migration"}
"""Originator ids that nobody writes yet, kept from being given to a chain."""


class NotAPublisher(RelayerError):
    """The originator of this deployment's publications does not exist, or is a chain's or a reserved id."""


class Staged(NamedTuple):
    """A publication that waits. `expired`: its time is over already; `active`: its client may still write."""

    id: int
    ext_id: UUID
    client_id: int
    topic: bytes
    payload: bytes
    expires_at: datetime | None
    attempts: int
    expired: bool | None
    active: bool


class Publication(NamedTuple):
    """What became of a publication: in the log (originator and position), parked with its error, or still waiting."""

    ext_id: UUID
    source_id: int | None
    position: int | None
    parked: bool
    error: str | None


def head(conn: Connection[Any], source_id: int) -> int:
    """The last position that a publisher assigned, 0 before the first. Raises NotAPublisher."""
    found = [
        row.head
        for row in fetch_all(conn, "readers", "originators")
        if row.source_id == source_id and row.role == "publisher"
    ]
    if not found:
        raise NotAPublisher(f"originator {source_id} is not this deployment's publisher")
    return int(found[0])


def open_publisher(conn: Connection[Any], source_id: int, retain_days: int = 14) -> None:
    """Make the rows of the publisher and of the reserved ids where they are missing. Raises NotAPublisher, OutOfRange."""
    checked_source(source_id)
    run(conn, "publish", "open_publisher", {"source": source_id, "name": NAME, "retain_days": retain_days})
    reserved = {number: name for number, name in RESERVED.items() if number != source_id}
    run(conn, "publish", "reserve_originators", {"sources": list(reserved), "names": list(reserved.values())})
    head(conn, source_id)


def stage(
    conn: Connection[Any], ext_id: UUID, client_id: int, topic: bytes, payload: bytes, expires_at: datetime | None
) -> int | None:
    """Store a publication: its staging id; None when the account is not active or too much waits already."""
    row = fetch_one(conn, "publish", "stage", {
        "ext_id": ext_id, "client": client_id, "topic": topic, "payload": payload, "expires_at": expires_at,
        "limit": WAITING_AT_MOST,
    })  # fmt: skip
    return row.id if row else None


def account_active(conn: Connection[Any], client_id: int) -> bool:
    """Whether the account may write."""
    return fetch_one(conn, "publish", "account_active", {"client": client_id}) is not None


def waiting_ids(conn: Connection[Any], ids: Sequence[int]) -> set[int]:
    """Which of these staging ids are neither published nor parked yet."""
    return {row.id for row in fetch_all(conn, "publish", "waiting_ids", {"ids": list(ids)})}


def publication(conn: Connection[Any], ext_id: UUID, client_id: int) -> Publication | None:
    """A client's publication; None for an unknown or somebody else's id."""
    row = fetch_one(conn, "publish", "publication", {"ext_id": ext_id, "client": client_id})
    return Publication(*row) if row else None


def next_staged(conn: Connection[Any], limit: int) -> list[Staged]:
    """The oldest publications that wait."""
    return [Staged(*row) for row in fetch_all(conn, "publish", "next_staged", {"limit": limit})]


def lock_head(conn: Connection[Any], source_id: int) -> int | None:
    """The last assigned position, locked until the transaction ends; None when another publisher holds it."""
    row = fetch_one(conn, "publish", "lock_head", {"source": source_id})
    return row.last if row else None


def lock_staged(conn: Connection[Any], ids: Sequence[int]) -> set[int]:
    """Lock those that still wait: their ids."""
    return {row.id for row in fetch_all(conn, "publish", "lock_staged", {"ids": list(ids)})}


def finish(conn: Connection[Any], source_id: int, head: int, placed: Mapping[int, int]) -> None:
    """Turn staged rows (id -> position) into receipts and move the head from `head` to the last position."""
    last = checked_position(max(placed.values()), 1)
    parameters = {"ids": list(placed), "positions": list(placed.values()), "source": source_id}
    if run(conn, "publish", "finish", {**parameters, "last": last, "expected": head}) != 1:
        raise RelayerError(f"the head of originator {source_id} moved under its lock")


def park(conn: Connection[Any], errors: Mapping[int, BaseException]) -> int:
    """Set publications aside that can never be published, id -> reason, so that the rest goes on: how many."""
    if not errors:
        return 0
    return run(conn, "publish", "park", {
        "ids": list(errors), "classes": [type(error).__name__ for error in errors.values()],
        "errors": [str(error).replace("\x00", "")[:2000] for error in errors.values()],
    })  # fmt: skip


def unpark(conn: Connection[Any], staged_id: int | None = None) -> int:
    """Let parked publications (all, or one) try again: how many."""
    return run(conn, "publish", "unpark", {"id": staged_id})


def parked_ids(conn: Connection[Any], staged_id: int | None = None) -> list[int]:
    """The staging ids that `unpark` would let try again, in order."""
    return [row.id for row in fetch_all(conn, "publish", "parked_ids", {"id": staged_id})]


def purge_published(conn: Connection[Any], source_id: int, lo: int, hi: int) -> int:
    """Forget the receipts of positions lo <= position < hi: how many."""
    return run(conn, "publish", "purge_published", {"source": source_id, "lo": lo, "hi": hi})
