"""Two different events at one position: recorded with what both name, the source halted, and found again for those who review them.

Hashes and digests are 32 bytes. A source whose log contradicts itself is read no further until a person has looked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol

from psycopg import Connection

from requests_app.crash_points import crash_point
from requests_app.errors import RelayerError, StaleEpoch
from requests_app.models.reviews import ReasonCode
from requests_app.states import Kind
from requests_app.store.queue import Subject
from requests_app.store.session import fetch_all, fetch_only, run, transaction

if TYPE_CHECKING:
    from requests_app.store.signing import Fence


class Conflict(RelayerError):
    """A position is already stored with another content. The source is halted."""


class Placed(Protocol):
    """An event as far as a conflict is concerned: store.envelopes.Recordable and store.appending.Item are ones."""

    @property
    def position(self) -> int: ...
    @property
    def ref(self) -> bytes | None: ...
    @property
    def tx_hash(self) -> bytes: ...
    @property
    def payload(self) -> bytes: ...
    @property
    def digest(self) -> bytes: ...


class Clash(NamedTuple):
    """A position with the event that was there (digest, reference, transaction) and the one that was got."""

    position: int
    have: bytes
    have_ref: bytes | None
    have_tx_hash: bytes
    got: bytes
    got_ref: bytes | None
    got_tx_hash: bytes
    payload: bytes

    @classmethod
    def of(cls, have: Placed, got: Placed) -> Clash:
        """Two events of one answer."""
        return cls(
            got.position, have.digest, have.ref, have.tx_hash, got.digest, got.ref, got.tx_hash, got.payload
        )  # fmt: skip


class Unreviewed(NamedTuple):
    """A recorded conflict whose requests and payments nobody was shown yet."""

    id: int
    source_id: int
    position: int
    have: bytes
    got: bytes
    have_tx_hash: bytes | None
    got_tx_hash: bytes | None


def find_clashes(
    conn: Connection[Any], source_id: int, envelopes: Sequence[Placed], *, of_blocks: Mapping[int, bytes] | None = None
) -> list[Clash]:
    """Of envelopes ordered by position those that are stored with another digest.

    With `of_blocks` (position -> block hash) only those of the same block: of another block they may be a reorganisation's.
    """
    by_position = {one.position: one for one in envelopes}
    rows = fetch_all(conn, "conflicts", "find_clashes", {
        "source": source_id, "positions": list(by_position), "digests": [one.digest for one in by_position.values()],
        "first": envelopes[0].position, "last": envelopes[-1].position,
    })  # fmt: skip
    found = [
        (row, by_position[row.position])
        for row in rows
        if of_blocks is None or of_blocks[row.position] == bytes(row.block_hash)
    ]
    return [
        Clash(row.position, row.have, row.ref, row.tx_hash, got.digest, got.ref, got.tx_hash, got.payload)
        for row, got in found
    ]


def refuse(conn: Connection[Any], source_id: int, clashes: Sequence[Clash]) -> NoReturn:
    """Record both events and stop the source, in one transaction; raises Conflict. The seal stays where it is.

    What the events name goes to a person by the duty `conflicts`: whoever reads a source holds no fence over requests.
    """
    text = f"{len(clashes)} stored events differ from what the chain shows now, first at position {clashes[0].position}"
    columns = {name: [getattr(one, name) for one in clashes] for name in Clash._fields}
    crash_point("before_conflict_commit")
    with transaction(conn):
        ran = halt_source(conn, source_id, text, ReasonCode.ENVELOPE_CONFLICT, _evidence(source_id, clashes))
        run(conn, "conflicts", "record_conflicts", {"source": source_id, "again": not ran, **columns})
    crash_point("after_conflict_commit")
    raise Conflict(text)


def halt_source(
    conn: Connection[Any],
    source_id: int,
    text: str,
    reason: ReasonCode,
    evidence: Mapping[str, Any],
    fence: Fence | None = None,
) -> bool:
    """Stop a source until a person has looked, and open its case; whether it was running.

    `evidence`: what the case shows; its `block` is the first one that is in doubt. Raises StaleEpoch when `fence` is no longer held.
    """
    row = fetch_only(conn, "conflicts", "halt_source", {
        "source": source_id, "text": text, "reason": reason.value, "evidence": json.dumps(dict(evidence)),
        "resource": fence.resource if fence else None, "instance": fence.instance if fence else None,
        "epoch": fence.epoch if fence else None,
    })  # fmt: skip
    if not row.held:
        raise StaleEpoch(f"source {source_id} is somebody else's to halt")
    return bool(row.halted)


def _evidence(source_id: int, clashes: Sequence[Clash]) -> dict[str, Any]:
    """What the case of the halted source shows: the first contradiction, and how many there are."""
    first = min(clashes, key=lambda one: one.position)
    return {
        "source": source_id,
        "block": first.position >> 20,
        "log_index": first.position & 0xFFFFF,
        "stored_digest": f"0x{first.have.hex()}",
        "got_digest": f"0x{first.got.hex()}",
        "stored_tx_hash": f"0x{first.have_tx_hash.hex()}",
        "got_tx_hash": f"0x{first.got_tx_hash.hex()}",
        "conflicts": len(clashes),
    }


def lock_unreviewed(conn: Connection[Any], limit: int) -> list[Unreviewed]:
    """Lock conflicts that are to be reviewed, oldest first, in the caller's transaction."""
    return [Unreviewed(*row) for row in fetch_all(conn, "conflicts", "lock_unreviewed", {"limit": limit})]


def named_subjects(conn: Connection[Any], conflict_ids: Sequence[int]) -> list[tuple[int, Subject]]:
    """(conflict, subject): whose reference, or whose transaction, one of its two events names."""
    rows = fetch_all(conn, "conflicts", "named_subjects", {"ids": list(conflict_ids)})
    return [(row.conflict, Subject(Kind(row.kind), row.subject_id)) for row in rows]


def mark_reviewed(conn: Connection[Any], conflict_ids: Sequence[int]) -> int:
    """Note that what these conflicts name was given to a person: how many."""
    return run(conn, "conflicts", "mark_reviewed", {"ids": list(conflict_ids)})
