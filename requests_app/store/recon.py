"""Reconciliation of payments: its cursor, its windows, its findings. Blocks are numbers, refs and hashes 32 bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from psycopg import Connection

from requests_app.models.payments import FindingKind
from requests_app.states import Kind
from requests_app.store.envelopes import last_position, position_of
from requests_app.store.observations import EXACT
from requests_app.store.queue import Subject
from requests_app.store.session import Row, fetch_all, fetch_one, run


class Finding(NamedTuple):
    """Something that a window shows and the books do not, or the other way round; stored for the first time."""

    kind: FindingKind
    ref: bytes
    position: int
    intent_id: int | None
    tx_hash: bytes
    detail: dict[str, Any]


def open_cursor(conn: Connection[Any], source_id: int) -> int:
    """The last block that is reconciled; the block before the source's first one when nothing is yet."""
    row = fetch_one(conn, "recon", "read_cursor", {"source": source_id})
    if row is None:
        run(conn, "recon", "open_cursor", {"source": source_id})
        row = fetch_one(conn, "recon", "read_cursor", {"source": source_id})
    return int(row.block) if row else -1


def move_cursor(conn: Connection[Any], source_id: int, lo: int, hi: int) -> datetime | None:
    """Claim the window lo..hi: when the cursor had moved before; None when it does not stand below `lo` any more."""
    row = fetch_one(conn, "recon", "move_cursor", {"source": source_id, "lo": lo, "hi": hi})
    return row.moved_at if row else None


def not_logged(conn: Connection[Any], source_id: int, digests: Mapping[int, bytes]) -> set[int]:
    """Those of these events (position -> digest) that the log lacks, or holds another one in the place of."""
    if not digests:
        return set()
    positions = list(digests)
    parameters = {
        "source": source_id,
        "positions": positions,
        "digests": list(digests.values()),
        "first": min(positions),
        "last": max(positions),
    }
    return {row.position for row in fetch_all(conn, "recon", "not_logged", parameters)}


def settling_refs(conn: Connection[Any], source_id: int, lo: int, hi: int) -> list[bytes]:
    """Refs of settling payments whose execution lies in the window."""
    return [bytes(row.ref) for row in fetch_all(conn, "recon", "settling_refs", _window(source_id, lo, hi))]


def find_in_window(conn: Connection[Any], source_id: int, lo: int, hi: int) -> list[Finding]:
    """Store what the window shows that the books do not expect: those that are new."""
    return _findings(fetch_all(conn, "recon", "find_in_window", _window(source_id, lo, hi), exact=EXACT))


def find_unreferenced(conn: Connection[Any], source_id: int, since: datetime) -> list[Finding]:
    """Store payments that were settled since then with a transaction that the log does not show: those that are new."""
    parameters = {"source": source_id, "since": since}
    return _findings(fetch_all(conn, "recon", "find_unreferenced", parameters, exact=EXACT))


def carriers(conn: Connection[Any], hashes: Sequence[bytes]) -> dict[bytes, Subject]:
    """For each of our transactions, the subject whose nonce it has."""
    if not hashes:
        return {}
    rows = fetch_all(conn, "recon", "carriers", {"hashes": list(hashes)})
    return {bytes(row.tx_hash): Subject(Kind(row.kind), row.subject_id) for row in rows}


def _window(source_id: int, lo: int, hi: int) -> dict[str, int]:
    return {"source": source_id, "first": position_of(lo), "last": last_position(hi)}


def _findings(rows: Sequence[Row]) -> list[Finding]:
    return [
        Finding(FindingKind(row.kind), bytes(row.ref), row.position, row.intent_id, bytes(row.tx_hash), row.detail)
        for row in rows
    ]
