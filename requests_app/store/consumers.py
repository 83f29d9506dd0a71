"""The envelope log, reading side: pages, consumer cursors, late match, parked envelopes (reference/envelopes.md 6.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from psycopg import Connection

from requests_app.errors import RelayerError
from requests_app.store.session import fetch_all, fetch_binary, fetch_one, run

REQUESTS: Final = "requests"  # the consumer that moves gateway requests


class Stored(NamedTuple):
    """An envelope read back. `payload` None: its blob is retired."""

    position: int
    kind: int
    ref: bytes | None
    contract: bytes
    block_hash: bytes
    tx_hash: bytes
    payload: bytes | None


class Standing(NamedTuple):
    """Where a consumer and the seal of its source stand."""

    position: int
    sealed: int
    halted: str | None


def read_consumer(conn: Connection[Any], source_id: int, consumer: str = REQUESTS) -> Standing:
    """Position of a consumer, sealed block, halt reason. Raises RelayerError for an unknown pair."""
    row = fetch_one(conn, "envelopes", "read_consumer", {"consumer": consumer, "source": source_id})
    if row is None:
        raise RelayerError(f"consumer {consumer} of source {source_id} does not exist")
    return Standing(row.position, row.sealed, row.halted)


def move_consumer(
    conn: Connection[Any], source_id: int, expected: int, position: int, consumer: str = REQUESTS
) -> bool:
    """Claim the envelopes after `expected` up to `position`: False when another applier was there first.

    Run it first in the transaction that applies them: the row lock it takes orders the appliers.
    """
    parameters = {"consumer": consumer, "source": source_id, "expected": expected, "position": position}
    return run(conn, "envelopes", "move_consumer", parameters) == 1


def still_logged(
    conn: Connection[Any], source_id: int, found: Sequence[tuple[int, bytes]], consumer: str = REQUESTS
) -> set[int]:
    """Which of these (position, block hash) are in the log, in a transaction during which no reorganisation can happen."""
    fetch_one(conn, "envelopes", "hold_consumer", {"consumer": consumer, "source": source_id})
    parameters = {
        "source": source_id,
        "positions": [position for position, _ in found],
        "block_hashes": [block_hash for _, block_hash in found],
    }
    return {row.position for row in fetch_all(conn, "envelopes", "logged_positions", parameters)}


def read_page(conn: Connection[Any], source_id: int, after: int, upto: int, limit: int) -> list[Stored]:
    """The envelopes with after < position <= upto in order, at most `limit`. `upto` must not lie above the seal."""
    parameters = {"source": source_id, "after": after, "upto": upto, "limit": limit}
    return fetch_binary(conn, "envelopes", "read_page", parameters, Stored)


def read_by_refs(conn: Connection[Any], source_id: int, refs: Sequence[bytes], floor: int, upto: int) -> list[Stored]:
    """The envelopes of these references with floor <= position <= upto, in order."""
    if not refs or upto < floor:
        return []
    parameters = {"source": source_id, "refs": list(refs), "floor": floor, "upto": upto}
    return fetch_binary(conn, "envelopes", "read_by_refs", parameters, Stored)


def parked_positions(
    conn: Connection[Any], source_id: int, positions: Sequence[int] = (), *, consumer: str = REQUESTS
) -> list[int]:
    """The positions of a consumer's parked envelopes that nobody has resolved: all, or those of `positions`."""
    parameters = {"consumer": consumer, "source": source_id, "positions": list(positions)}
    return [row.position for row in fetch_all(conn, "readers", "parked_positions", parameters)]


def resolve_parked(conn: Connection[Any], source_id: int, positions: Sequence[int], *, consumer: str = REQUESTS) -> int:
    """Note that these parked envelopes are applied now: how many were open."""
    parameters = {"consumer": consumer, "source": source_id, "positions": list(positions)}
    return run(conn, "readers", "resolve_parked", parameters)


def park_envelopes(
    conn: Connection[Any], source_id: int, errors: Mapping[int, BaseException], *, consumer: str = REQUESTS
) -> int:
    """Set envelopes aside that cannot be applied, position -> reason, so that the rest goes on: how many.

    What the code did not expect may be applied again after a repair (`retryable`); a payload that cannot be read may not.
    """
    if not errors:
        return 0
    return run(conn, "envelopes", "park_envelopes", {
        "consumer": consumer, "source": source_id, "positions": list(errors),
        "classes": [type(error).__name__ for error in errors.values()],
        "errors": [str(error).replace("\x00", "")[:2000] for error in errors.values()],
        "retryable": [not isinstance(error, RelayerError) for error in errors.values()],
    })  # fmt: skip
