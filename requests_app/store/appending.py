"""Putting envelopes into the log inside a transaction that the caller already holds (design 5.4.2).

The standalone variant is store/envelopes.record_range. Here one SAVEPOINT protects the caller's work: when a band is
missing, only the insert is undone, the band is made on a second connection, and the insert runs once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any, NamedTuple

import psycopg
from psycopg import Connection

from requests_app.crash_points import crash_point
from requests_app.errors import RelayerError
from requests_app.prices import Prices, prices
from requests_app.store import bands, conflicts, envelopes
from requests_app.store.session import Row, connect, fetch_only, transaction


@dataclass(frozen=True, slots=True)
class Item:
    """An envelope to append. `ref` is its topic; `payer` a client account; `expires_at` None: kept until its band leaves."""

    position: int
    kind: int
    payload: bytes
    ref: bytes | None = None
    contract: bytes = b""
    block_hash: bytes = b""
    tx_hash: bytes = b""
    payer: int | None = None
    expires_at: datetime | None = None

    @property
    def digest(self) -> bytes:
        """What makes two envelopes the same."""
        return sha256(self.block_hash + self.tx_hash + self.payload).digest()


class Appended(NamedTuple):
    """How many were new, how many were stored before with the same content, and what the new ones cost."""

    inserted: int
    duplicates: int
    spend: int


def append(conn: Connection[Any], source_id: int, items: Sequence[Item], *, price: Prices | None = None) -> Appended:
    """Insert a batch (one item is a batch of one) into the caller's transaction, usage and congestion with it, once.

    Raises OutOfRange before anything is written; Conflict (source halted) for a position that holds something else;
    BandMissing; psycopg errors of the insert (unknown originator 23503, retired band 55000), after which the caller's
    transaction can go on. RelayerError outside of a transaction.
    """
    if conn.info.transaction_status != psycopg.pq.TransactionStatus.INTRANS:
        raise RelayerError("append works in the caller's transaction; record_range is the standalone way")
    bands.checked_source(source_id)
    distinct = _distinct(source_id, items)
    if not distinct:
        return Appended(0, 0, 0)
    positions = [one.position for one in distinct]
    parameters = {**_columns(distinct), **(price or prices()).parameters(), "source": source_id}

    def insert() -> Row:
        with transaction(conn):  # SAVEPOINT, one a batch
            crash_point("before_append")
            return fetch_only(conn, "publish", "append", parameters)

    row = bands.retry_once(insert, lambda: _make_bands(source_id, positions), source_id, positions)
    crash_point("after_append")
    if row.inserted < len(distinct):
        _compare(conn, source_id, distinct)
    return Appended(row.inserted, len(distinct) - row.inserted, row.spend)


def _distinct(source_id: int, items: Sequence[Item]) -> list[Item]:
    found: dict[int, Item] = {}
    clashes: list[conflicts.Clash] = []
    for item in items:
        twin = found.setdefault(bands.checked_position(item.position), item)
        if twin is not item and twin.digest != item.digest:
            clashes.append(conflicts.Clash.of(twin, item))
    if clashes:
        with connect("worker", name="conflict") as own:
            conflicts.refuse(own, source_id, clashes)
    return [found[position] for position in sorted(found)]


def _make_bands(source_id: int, positions: Sequence[int]) -> None:
    with bands.own_connection() as own:
        bands.note_missing(own, source_id, positions[:1])
        for position in envelopes.band_positions(own, source_id, positions):
            crash_point("before_append_band_commit")
            envelopes.ensure_band(own, source_id, position)
            crash_point("after_append_band_commit")
    bands.refresh(source_id)


def _compare(conn: Connection[Any], source_id: int, items: Sequence[Item]) -> None:
    clashes = conflicts.find_clashes(conn, source_id, items)
    if clashes:
        with connect("worker", name="conflict") as own:
            conflicts.refuse(own, source_id, clashes)


def _columns(items: Sequence[Item]) -> dict[str, list[Any]]:
    return {
        "positions": [one.position for one in items],
        "kinds": [one.kind for one in items],
        "refs": [one.ref for one in items],
        "contracts": [one.contract for one in items],
        "block_hashes": [one.block_hash for one in items],
        "tx_hashes": [one.tx_hash for one in items],
        "digests": [one.digest for one in items],
        "payloads": [one.payload for one in items],
        "payers": [one.payer for one in items],
        "expiries": [one.expires_at for one in items],
    }
