"""Two different events at one position: recorded with what both name, the source halted, and found again for those who review them.

Hashes and digests are 32 bytes. A source whose log contradicts itself is read no further until a person has looked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn, Protocol

from psycopg import Connection

from requests_app.crash_points import crash_point
from requests_app.errors import RelayerError
from requests_app.states import Kind
from requests_app.store.queue import Subject
from requests_app.store.session import fetch_all, run, transaction


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


def find_clashes(conn: Connection[Any], source_id: int, envelopes: Sequence[Placed]) -> list[Clash]:
    """Of envelopes ordered by position those that are stored with another digest."""
    by_position = {one.position: one for one in envelopes}
    rows = fetch_all(conn, "conflicts", "find_clashes", {
        "source": source_id, "positions": list(by_position), "digests": [one.digest for one in by_position.values()],
        "first": envelopes[0].position, "last": envelopes[-1].position,
    })  # fmt: skip
    found = [(row, by_position[row.position]) for row in rows]
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
        run(conn, "conflicts", "record_conflicts", {"source": source_id, **columns})
        halt_source(conn, source_id, text)
    crash_point("after_conflict_commit")
    raise Conflict(text)


def halt_source(conn: Connection[Any], source_id: int, reason: str) -> bool:
    """Stop a source until a person has looked; whether it was running."""
    return run(conn, "conflicts", "halt_source", {"source": source_id, "reason": reason}) == 1


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
