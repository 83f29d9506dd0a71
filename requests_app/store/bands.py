"""Missing bands of the envelope log: told from other errors, made, counted, tried again once (design 5.4.2)."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import psycopg
from django.db import connections
from psycopg import Connection

from requests_app.errors import RelayerError
from requests_app.store.session import connect, fetch_all, run

log = logging.getLogger("relayer.envelopes")

LARGEST_SOURCE: Final = 2**31 - 1
LARGEST_POSITION: Final = 2**63 - 1
IDLE_SESSION: Final = "5min"
T = TypeVar("T")

_idle: list[tuple[int, Connection[Any]]] = []  # (process, connection); append and pop are atomic


class OutOfRange(RelayerError, ValueError):
    """An originator id or a position is outside its column's type: nothing was written."""


class BandMissing(RelayerError):
    """The band of a position does not exist, not even after it was made: it is not tried a third time."""


def checked_source(value: object) -> int:
    """An originator id, 1 to 2**31 - 1. Raises OutOfRange naming the value; nothing is wrapped or clamped."""
    if type(value) is not int or not 1 <= value <= LARGEST_SOURCE:
        raise OutOfRange(f"originator {value!r} is not within 1..{LARGEST_SOURCE}")
    return value


def checked_position(value: object, least: int = 0) -> int:
    """A position or sequence number, `least` to 2**63 - 1. Raises OutOfRange naming the value."""
    if type(value) is not int or not least <= value <= LARGEST_POSITION:
        raise OutOfRange(f"position {value!r} is not within {least}..{LARGEST_POSITION}")
    return value


def is_missing(error: BaseException) -> bool:
    """Whether an insert failed because no partition covers its key; by the server's source function, never by text."""
    if not isinstance(error, psycopg.errors.CheckViolation):
        return False
    if error.diag.source_function:
        return error.diag.source_function == "ExecFindPartition"
    return error.diag.constraint_name is None and (error.diag.table_name or "").startswith("envelope_")


def retry_once(work: Callable[[], T], mend: Callable[[], object], source_id: int, positions: Sequence[int]) -> T:
    """`work()`; when it meets a missing band `mend()` and `work()` once more. Raises BandMissing when that fails alike."""
    try:
        return work()
    except psycopg.errors.CheckViolation as error:
        if not is_missing(error):
            raise
    mend()
    try:
        return work()
    except psycopg.errors.CheckViolation as error:
        if not is_missing(error):
            raise
        raise BandMissing(f"no band of originator {source_id} for {positions[0]}..{positions[-1]}") from error


@contextmanager
def own_connection() -> Iterator[Connection[Any]]:
    """A connection on which this process makes bands, beside whatever the caller's is doing.

    The caller's may hold locks and must never run DDL (S-1). It is kept for the next band: a new session reads the catalogue anew,
    which costs three times as much as the band. The server ends one that was not needed for 5 minutes.
    Raises psycopg.OperationalError when the database is unreachable.
    """
    conn = _kept_connection()
    if conn is None:
        conn = connect("worker", name="bands")
        conn.execute(f"SET idle_session_timeout = '{IDLE_SESSION}'")
    try:
        yield conn
    finally:
        if not conn.closed and conn.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
            _idle.append((os.getpid(), conn))
        else:
            conn.close()


def _kept_connection() -> Connection[Any] | None:
    """A kept connection that still answers. Those of a parent process are left alone, those to another database end."""
    while _idle:
        owner, conn = _idle.pop()
        if owner != os.getpid():
            continue
        try:
            if conn.info.dbname == connections["default"].settings_dict["NAME"]:
                conn.execute("SELECT 1")
                return conn
        except psycopg.OperationalError:
            log.debug("a kept connection had ended", extra={"action": "kept_connection_ended"})
        conn.close()
    return None


def close_kept_connections() -> None:
    """End the connections that are kept for the next band; for whoever drops the database."""
    while _idle:
        owner, conn = _idle.pop()
        if owner == os.getpid():
            conn.close()


def refresh(source_id: int) -> None:
    """Tell every session once more which partitions an originator has, in a transaction of its own (sql/ddl/band_refresh.sql).

    One that read the list while a partition was attached may have kept the old list, and misses the band although it was made.
    """
    with own_connection() as own:
        run(own, "bands", "refresh", {"source": source_id})


def young(conn: Connection[Any], seconds: float) -> list[int]:
    """The originators whose newest band was made within the last so many seconds."""
    return [row.source_id for row in fetch_all(conn, "bands", "young", {"seconds": seconds})]


def note_missing(conn: Connection[Any], source_id: int, positions: Sequence[int]) -> None:
    """Count an insert that met a missing band (metric relayer_envelope_missing_bands_total) and say so in the log."""
    run(conn, "bands", "note_missing", {"source": source_id})
    log.warning(
        "a band was missing when it was needed",
        extra={"action": "band_missing", "source": source_id, "positions": list(positions)},
    )
