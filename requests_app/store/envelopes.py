"""The envelope log, writing side: sources, bands, block ranges (design 3.6; reference/envelopes.md 6.3).

position = block << 20 | log index, unique and ordered within a source. Hashes and references are 32 bytes, contracts 20.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import psycopg
from psycopg import Connection

from requests_app import sql
from requests_app.crash_points import crash_point
from requests_app.errors import RelayerError, SourceHalted, StaleEpoch
from requests_app.prices import Prices, prices
from requests_app.store import bands, conflicts
from requests_app.store.session import Row, fetch_one, run
from requests_app.store.signing import Fence

INDEX_BITS: Final = 20


class Gap(RelayerError):
    """The range does not join the seal: blocks between are not stored. `sealed` is the last stored block."""

    def __init__(self, sealed: int) -> None:
        super().__init__(f"the range does not follow sealed block {sealed}")
        self.sealed = sealed


class Recordable(conflicts.Placed, Protocol):
    """What the log stores of an event; the chain layer's Envelope has these.

    `digest` is sha256(block_hash || tx_hash || payload): what makes two events the same.
    """

    @property
    def kind(self) -> int: ...
    @property
    def contract(self) -> bytes: ...
    @property
    def block_hash(self) -> bytes: ...


class Sight(NamedTuple):
    """What a listener saw of the chain beside the events: its head, and hashes of blocks (number -> 32 bytes) to keep.

    `depth`: how many blocks below the seal keep their hash, which is how deep a reorganisation may reach.
    """

    head: int | None = None
    hashes: Mapping[int, bytes] = {}
    depth: int = 64


class Recorded(NamedTuple):
    """What a range added, and the seal after it."""

    inserted: int
    sealed: int


def position_of(block: int, index: int = 0) -> int:
    """The position of a log. Raises ValueError outside block < 2**43, index < 2**20."""
    if not (0 <= block < 1 << 43 and 0 <= index < 1 << INDEX_BITS):
        raise ValueError(f"block {block}, log {index} has no position")
    return block << INDEX_BITS | index


def last_position(block: int) -> int:
    """The highest position a block can hold."""
    return (block + 1 << INDEX_BITS) - 1


def add_source(
    conn: Connection[Any],
    source_id: int,
    *,
    name: str,
    chain_id: int,
    start_block: int,
    reorg_depth: int = 64,
    band_blocks: int = 131_072,
    retain_days: int = 14,
) -> Row:
    """Make the source, its seal and the cursor of the request consumer if they do not exist; the source as it is."""
    run(conn, "envelopes", "add_source", {
        "source": source_id, "name": name, "chain_id": chain_id, "start_block": start_block,
        "reorg_depth": reorg_depth, "band_blocks": band_blocks, "retain_days": retain_days,
    })  # fmt: skip
    source = read_source(conn, source_id)
    assert source is not None  # noqa: S101 - just made, and never deleted
    return source


def read_source(conn: Connection[Any], source_id: int) -> Row | None:
    """A source with its seal, or None.

    source_id, name, chain_id, start_block, band_blocks, reorg_depth, halted, block (the seal), head_hash, window_blocks, chain_head.
    """
    return fetch_one(conn, "envelopes", "read_source", {"source": source_id})


def ensure_band(conn: Connection[Any], source_id: int, position: int) -> bool:
    """Create the partitions that hold `position`, in a transaction of their own; whether any was made.

    Raises psycopg.errors.ObjectNotInPrerequisiteState for a band that was retired.
    """
    if conn.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
        raise RelayerError("bands are made outside of transactions")
    row = fetch_one(conn, "envelopes", "ensure_band", {"source": source_id, "position": position})
    return bool(row and row.made)


def record_range(
    conn: Connection[Any],
    source_id: int,
    lo: int,
    hi: int,
    envelopes: Sequence[Recordable],
    fence: Fence,
    head_hash: bytes | None,
    *,
    request_kinds: Collection[int] = (),
    make_band: Callable[[int], object] | None = None,
    price: Prices | None = None,
    sight: Sight | None = None,
) -> Recorded:
    """Store all events of blocks lo..hi and move the seal to hi, atomically, once: a replay adds nothing.

    `head_hash` is the hash of block `hi`; `request_kinds` are the event kinds that a client pays for. `make_band` makes a
    missing band (default: on `conn`), then the insert is tried once more. `price` (default: the settings') is what request
    events cost their payer. `sight` is stored with the seal. Raises Gap, Conflict (source halted),
    SourceHalted, StaleEpoch; ValueError for an event outside the range.
    """
    bands.checked_source(source_id)
    position_of(lo), position_of(hi)
    distinct = _distinct(conn, source_id, lo, hi, envelopes)
    seen = sight or Sight()
    parameters = {
        **_columns(distinct), "source": source_id, "lo": lo, "hi": hi, "head_hash": head_hash,
        "resource": fence.resource, "instance": fence.instance, "epoch": fence.epoch, "request_kinds": list(request_kinds),
        **(price or prices()).parameters(), "chain_head": seen.head, "depth": seen.depth,
        "kept_blocks": list(seen.hashes), "kept_hashes": list(seen.hashes.values()),
    }  # fmt: skip
    crash_point("before_record_range_commit")
    try:
        row = _banded(conn, source_id, "record_range", parameters, make_band, rows="fresh")
    except psycopg.errors.UniqueViolation:
        row = _banded(conn, source_id, "record_range", parameters, make_band, rows="again")
    crash_point("after_record_range_commit")
    if row is None:
        raise RelayerError(f"source {source_id} does not exist")
    _refuse(row, fence, lo)
    if row.moved is not None:
        return Recorded(row.inserted, row.moved)
    return _replayed(conn, source_id, distinct, parameters, row.inserted)


def insert_below_seal(
    conn: Connection[Any], source_id: int, envelopes: Sequence[Recordable], *, request_kinds: Collection[int] = ()
) -> int:
    """Store events that were withheld when their block was sealed: how many were new. Later ones are left out.

    New ones are counted and charged once, as in `record_range`: not again what was counted before its block gave way.
    Raises Conflict (source halted) when the log holds another event of the same block at one of these places: only what the
    log holds may be applied.
    """
    if not envelopes:
        return 0
    ordered = sorted({envelope.position: envelope for envelope in envelopes}.values(), key=lambda one: one.position)
    parameters = {
        **_columns(ordered),
        **prices().parameters(),
        "source": source_id,
        "request_kinds": list(request_kinds),
    }
    row = _banded(conn, source_id, "insert_below_seal", parameters, None)
    inserted = int(row.inserted) if row else 0
    if inserted < len(ordered):
        blocks = {one.position: one.block_hash for one in ordered}
        clashes = conflicts.find_clashes(conn, source_id, ordered, of_blocks=blocks)
        if clashes:
            conflicts.refuse(conn, source_id, clashes)
    return inserted


def _banded(
    conn: Connection[Any],
    source_id: int,
    name: str,
    parameters: Mapping[str, Any],
    make_band: Callable[[int], object] | None,
    **parts: str,
) -> Row | None:
    """The row of an inserting statement, run once more after missing bands were made (each once). `parts` are statements' names."""
    positions: list[int] = parameters["positions"]

    def mend() -> None:
        bands.note_missing(conn, source_id, positions[:1])
        for position in band_positions(conn, source_id, positions):
            (make_band or (lambda place: ensure_band(conn, source_id, place)))(position)
        bands.refresh(source_id)

    texts = {part: sql.statement("envelopes", text) for part, text in {"countable": "countable", **parts}.items()}

    def insert() -> Row | None:
        return fetch_one(conn, "envelopes", name, parameters, **texts)

    return bands.retry_once(insert, mend, source_id, positions)


def _columns(envelopes: Sequence[Recordable]) -> dict[str, list[Any]]:
    return {
        "positions": [one.position for one in envelopes],
        "kinds": [int(one.kind) for one in envelopes],
        "refs": [one.ref for one in envelopes],
        "contracts": [one.contract for one in envelopes],
        "block_hashes": [one.block_hash for one in envelopes],
        "tx_hashes": [one.tx_hash for one in envelopes],
        "digests": [one.digest for one in envelopes],
        "payloads": [one.payload for one in envelopes],
    }


def _distinct(
    conn: Connection[Any], source_id: int, lo: int, hi: int, envelopes: Sequence[Recordable]
) -> list[Recordable]:
    """One envelope a position, in order. The same position with two contents in one answer is a conflict too."""
    found: dict[int, Recordable] = {}
    clashes: list[conflicts.Clash] = []
    for envelope in envelopes:
        if not lo <= envelope.position >> INDEX_BITS <= hi:
            raise ValueError(f"event at block {envelope.position >> INDEX_BITS} is outside {lo}..{hi}")
        twin = found.setdefault(envelope.position, envelope)
        if twin is not envelope and twin.digest != envelope.digest:
            clashes.append(conflicts.Clash.of(twin, envelope))
    if clashes:
        conflicts.refuse(conn, source_id, clashes)
    return [found[position] for position in sorted(found)]


def band_positions(conn: Connection[Any], source_id: int, positions: Sequence[int]) -> list[int]:
    """One of the positions for each band that they lie in. Raises RelayerError for an unknown originator."""
    row = fetch_one(conn, "envelopes", "band_width", {"source": source_id})
    if row is None:
        raise RelayerError(f"originator {source_id} does not exist")
    return list({position // row.width: position for position in positions}.values())


def _refuse(row: Row, fence: Fence, lo: int) -> None:
    if not row.held:
        raise StaleEpoch(f"{fence.resource} is no longer held by {fence.instance} in epoch {fence.epoch}")
    if row.halted is not None:
        raise SourceHalted(row.halted)
    if row.sealed < lo - 1:
        raise Gap(row.sealed)


def _replayed(
    conn: Connection[Any], source_id: int, envelopes: Sequence[Recordable], parameters: Mapping[str, Any], inserted: int
) -> Recorded:
    """Some events were stored before: seal the range if they are the same ones, else halt the source."""
    clashes = conflicts.find_clashes(conn, source_id, envelopes)
    if clashes:
        conflicts.refuse(conn, source_id, clashes)
    keys: tuple[str, ...] = ("source", "lo", "hi", "head_hash", "resource", "instance", "epoch")
    keys = (*keys, "chain_head", "depth", "kept_blocks", "kept_hashes")
    crash_point("before_seal_replayed_commit")
    row = fetch_one(conn, "envelopes", "seal_replayed", {key: parameters[key] for key in keys})
    crash_point("after_seal_replayed_commit")
    if row is None:
        raise StaleEpoch(f"source {source_id} was taken over or halted while a range was replayed")
    return Recorded(inserted, row.block)
