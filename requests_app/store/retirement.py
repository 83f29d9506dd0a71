"""Retirement of whole bands: gates, the steps of the catalogue, names (reference/envelopes.md 6.3; design 3.6).

open > blobs_retiring > blobs_dropped > retiring > dropped; a band may go from open to retiring at once. Each step can be repeated
after a crash: what to do next is read from PostgreSQL's catalogue, not remembered.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any, Final, NamedTuple

from psycopg import Connection
from psycopg.sql import Identifier

from requests_app.crash_points import crash_point
from requests_app.errors import RelayerError
from requests_app.store.bands import checked_position, checked_source
from requests_app.store.session import Row, fetch_all, fetch_literal, fetch_only, run

META: Final = "envelope_meta"
BLOB: Final = "envelope_blob"
NAME_BYTES: Final = 63
_PLAIN_NAME: Final = re.compile(r"[a-z_][a-z0-9_]*").fullmatch


class BandState(StrEnum):
    """How far a band's retirement has come."""

    OPEN = "open"
    BLOBS_RETIRING = "blobs_retiring"
    BLOBS_DROPPED = "blobs_dropped"
    RETIRING = "retiring"
    DROPPED = "dropped"


class Gate(StrEnum):
    """What holds a band back."""

    DEPTH = "depth"  # it may still be reorganised, or is not full yet
    CONSUMER = "consumer"  # a required consumer has not read it
    PARKED = "parked"  # an envelope of it waits for a redrive
    EXPIRY = "expiry"  # it holds rows that must be kept


class Band(NamedTuple):
    """A band with what its gates need. Positions: lo <= position < hi."""

    source_id: int
    band_no: int
    lo: int
    hi: int
    state: BandState
    settled_below: int
    consumed: int | None
    parked: bool


def live_bands(conn: Connection[Any]) -> list[Band]:
    """Every band that is not dropped, those under retirement first, then by originator and number."""
    return [
        Band(b.source_id, b.band_no, b.lo, b.hi, BandState(b.state), b.settled_below, b.consumed, b.parked)
        for b in fetch_all(conn, "bands", "live_bands")
    ]


def gate(conn: Connection[Any], band: Band, blob_days: int | None = None) -> Gate | None:
    """What holds the band back; None when it may go. With `blob_days` only its payloads, after so many days."""
    if band.hi > band.settled_below:
        return Gate.DEPTH
    if band.consumed is not None and band.hi > band.consumed + 1:
        return Gate.CONSUMER
    if band.parked:
        return Gate.PARKED
    parameters = {"source": band.source_id, "lo": band.lo, "hi": band.hi, "days": blob_days}
    return Gate.EXPIRY if fetch_literal(conn, "bands", "still_needed", parameters)[0].needed else None


def mark(conn: Connection[Any], band: Band, before: BandState, after: BandState) -> bool:
    """Move the band's state; False when somebody else did."""
    crash_point("before_mark_band_commit")
    parameters = {"source": band.source_id, "band": band.band_no, "before": before.value, "after": after.value}
    moved = run(conn, "bands", "mark_band", parameters) == 1
    crash_point("after_mark_band_commit")
    return moved


def remove_partition(conn: Connection[Any], base: str, source_id: int, band_no: int) -> int:
    """Detach and drop a leaf, from wherever it stands: how many steps it took. Outside of a transaction only.

    Raises psycopg.errors.LockNotAvailable when readers or writers hold it too long; the next call goes on from there.
    """
    parent, child = parent_name(base, source_id), leaf_name(base, source_id, band_no)
    for steps in range(5):
        found = fetch_only(conn, "bands", "partition_state", {"parent": parent, "child": child})
        if found.state == "absent":
            return steps
        state, leaf = found.state, child
        if state == "attached" and found.pending is not None:
            # A table detaches one leaf at a time. Somebody frozen, or who has died since, left another one half done.
            state, leaf = "pending", found.pending
        action = {"attached": "detach", "pending": "finalize", "detached": "drop"}[state]
        crash_point(f"before_band_{action}")
        run(conn, "bands", action, parent=Identifier(parent).as_string(), child=Identifier(leaf).as_string())
        crash_point(f"after_band_{action}")
    raise RelayerError(f"partition {child} does not go away")


def parent_name(base: str, source_id: int) -> str:
    """The originator's partition of a log table. Raises OutOfRange, ValueError."""
    return _checked(f"{base}_s{checked_source(source_id)}")


def leaf_name(base: str, source_id: int, band_no: int) -> str:
    """The band's partition of a log table. Raises OutOfRange, ValueError."""
    return _checked(f"{parent_name(base, source_id)}_b{checked_position(band_no)}")


def _checked(name: str) -> str:
    if not _PLAIN_NAME(name) or len(name) > NAME_BYTES:
        raise ValueError(f"{name!r} is not the name of a partition")
    return name


def band_sizes(conn: Connection[Any], source_id: int, limit: int) -> list[Row]:
    """band_no, lo, hi, state, at, meta_bytes, blob_bytes of the newest bands."""
    return fetch_all(conn, "bands", "band_sizes", {"source": source_id, "limit": limit})


def figures(conn: Connection[Any]) -> list[Row]:
    """source_id, name, bands, misses, lag (positions a consumer is behind) of every originator."""
    return fetch_all(conn, "bands", "figures")


def staged_figures(conn: Connection[Any]) -> Row:
    """waiting, parked, oldest_seconds of publications."""
    return fetch_only(conn, "bands", "staged_figures")
