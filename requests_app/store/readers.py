"""Reading the envelope log by vector clock (design 5.4.4; reference/envelopes.md 3.4).

A clock says for each originator the last position already read; an originator that is not in it is read from its beginning.
Topics and originators filter together. Every read is one bounded query with literals an originator and band.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

from psycopg import Connection

from requests_app.errors import RelayerError
from requests_app.store.bands import OutOfRange, checked_position, checked_source
from requests_app.store.session import Row, fetch_all, fetch_literal

LARGEST_PAGE: Final = 1000
BANDS_A_READ: Final = 8


class UnknownOriginator(RelayerError):
    """The originator has no row: asking again does not help."""


class Read(NamedTuple):
    """An envelope. `payload` None: its blob is retired; `expires_at` None: kept until its band leaves."""

    source_id: int
    position: int
    kind: int
    ref: bytes | None
    contract: bytes
    block_hash: bytes
    tx_hash: bytes
    recorded_at: datetime
    expires_at: datetime | None
    payload: bytes | None


class Page(NamedTuple):
    """Envelopes ordered by originator and position, the clock after them, and whether more is there already."""

    rows: list[Read]
    clock: dict[int, int]
    more: bool


@dataclass(slots=True)
class _Progress:
    """Where a read stands in one originator. `windows`: bounds (after, upto] left to read, one band each."""

    source_id: int
    head: int
    at: int
    windows: list[tuple[int, int]] = field(default_factory=list)


def list_originators(conn: Connection[Any]) -> list[Row]:
    """source_id, name, halted, width, role (chain, publisher, reserved), head of every originator."""
    return fetch_all(conn, "readers", "originators")


def go_back(
    conn: Connection[Any], clock: Mapping[int, int], seen: Mapping[int, int]
) -> tuple[dict[int, int], dict[int, int]]:
    """The clock before what gave way since it was told, and each chain's newest reorganisation, to be remembered with the next clock.

    `seen`: the reorganisation that was the newest when the clock was told; without one nothing is gone back over. Ask before the page is
    read: a reorganisation between the two is then gone back over next time, and what it left standing is told twice.
    """
    known = {source: seen[source] for source in clock if source in seen}
    parameters = {"sources": list(known), "seen": list(known.values())}
    rows = fetch_all(conn, "readers", "reorgs_since", parameters)
    forks = {row.source_id: (row.fork << 20) - 1 for row in rows if row.fork is not None}
    return (
        {source: min(at, forks.get(source, at)) for source, at in clock.items()},
        {row.source_id: row.newest for row in rows},
    )


def read_envelopes(
    conn: Connection[Any],
    *,
    topics: Collection[bytes] = (),
    originators: Collection[int] = (),
    clock: Mapping[int, int] | None = None,
    limit: int = LARGEST_PAGE,
) -> Page:
    """The next envelopes after `clock`, at most `limit`; empty filters mean all topics and all originators.

    Raises UnknownOriginator; OutOfRange for an id, a position or a limit outside its range. Originators in the clock that
    are not read here are kept in it as they are.
    """
    if type(limit) is not int or not 1 <= limit <= LARGEST_PAGE:
        raise OutOfRange(f"limit {limit!r} is not within 1..{LARGEST_PAGE}")
    after = {checked_source(source): checked_position(at) for source, at in (clock or {}).items()}
    chosen = _chosen(conn, {checked_source(source) for source in originators})
    progress = [_Progress(row.source_id, row.head, after.get(row.source_id, -1)) for row in chosen]
    _plan(conn, [one for one in progress if one.at < one.head])
    rows = _fill(conn, progress, sorted(topics), limit)
    after.update({one.source_id: one.at for one in progress if one.at >= 0})
    return Page(rows, after, any(one.at < one.head for one in progress))


def _chosen(conn: Connection[Any], wanted: Collection[int]) -> list[Row]:
    known = list_originators(conn)
    missing = set(wanted) - {row.source_id for row in known}
    if missing:
        raise UnknownOriginator(f"originator {min(missing)} does not exist")
    return [row for row in known if row.head is not None and (not wanted or row.source_id in wanted)]


def _plan(conn: Connection[Any], behind: Sequence[_Progress]) -> None:
    """Give every originator its next windows. Without a band above the cursor there is nothing up to the head."""
    if not behind:
        return
    parameters = {
        "sources": [one.source_id for one in behind], "afters": [one.at for one in behind], "limit": BANDS_A_READ + 1,
    }  # fmt: skip
    found: dict[int, list[Row]] = {}
    for row in fetch_all(conn, "readers", "bands_after", parameters):
        found.setdefault(row.source_id, []).append(row)
    for one in behind:
        listed = found.get(one.source_id, [])
        one.windows = [
            (max(one.at, band.lo - 1), min(band.hi - 1, one.head))
            for band in listed[:BANDS_A_READ]
            if band.lo <= one.head
        ]
        if len(listed) <= BANDS_A_READ:
            # Nothing can be stored between the last band and the head: the last window reaches up to it.
            last = one.windows[-1][1] if one.windows else one.at
            if last < one.head:
                one.windows.append((one.head, one.head))


def _fill(conn: Connection[Any], progress: Sequence[_Progress], topics: Sequence[bytes], limit: int) -> list[Read]:
    """A fair share for each originator first, then what is left in order: a busy one must not starve the others."""
    found: list[Read] = []
    share = max(1, limit // max(1, len(progress)))
    for quota in (share, limit):
        for one in progress:
            found += _read(conn, one, topics, min(quota, limit - len(found)))
    return sorted(found, key=lambda row: (row.source_id, row.position))


def _read(conn: Connection[Any], one: _Progress, topics: Sequence[bytes], limit: int) -> list[Read]:
    found: list[Read] = []
    while one.windows and len(found) < limit:
        after, upto = one.windows[0]
        room = limit - len(found)
        rows = read_window(conn, one.source_id, max(after, one.at), upto, topics, room) if after < upto else []
        found += rows
        if len(rows) == room:
            one.at = rows[-1].position
            break
        one.at = upto
        one.windows.pop(0)
    return found


def read_window(
    conn: Connection[Any], source_id: int, after: int, upto: int, topics: Sequence[bytes], limit: int
) -> list[Read]:
    """The envelopes with after < position <= upto of one originator, in order. The bounds should lie in one band."""
    parameters = {"source": source_id, "first": after + 1, "upto": upto, "limit": limit, "topics": list(topics)}
    part = "AND m.ref = ANY(%(topics)s::bytea[])" if topics else ""
    return [Read(source_id, *row) for row in fetch_literal(conn, "readers", "read_window", parameters, topics=part)]
