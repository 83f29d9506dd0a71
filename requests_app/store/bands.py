"""Missing bands of the envelope log: told from other errors, made, counted, tried again once (design 5.4.2)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import psycopg
from psycopg import Connection

from requests_app.errors import RelayerError
from requests_app.store.session import run

log = logging.getLogger("relayer.envelopes")

LARGEST_SOURCE: Final = 2**31 - 1
LARGEST_POSITION: Final = 2**63 - 1
T = TypeVar("T")


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


def note_missing(conn: Connection[Any], source_id: int, positions: Sequence[int]) -> None:
    """Count an insert that met a missing band (metric relayer_envelope_missing_bands_total) and say so in the log."""
    run(conn, "bands", "note_missing", {"source": source_id})
    log.warning(
        "a band was missing when it was needed",
        extra={"action": "band_missing", "source": source_id, "positions": list(positions)},
    )
