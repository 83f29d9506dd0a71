"""The journal in the database: append, read, balances. The pure side is `requests_app.ledger`.

Appending takes the journal's lock, the last in the lock order, and keeps it to the end of the caller's transaction: sign and
prepare before it, append as the last thing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

from psycopg import Connection
from psycopg.pq import TransactionStatus

from requests_app.errors import LedgerConflict, LedgerRefused, RelayerError
from requests_app.ledger import (
    GENESIS,
    Broken,
    Chained,
    Entry,
    Head,
    Leg,
    Movement,
    chained,
    check_shape,
    entry_body,
    movements,
    totals,
)
from requests_app.models.ledger import EntryKind
from requests_app.states import IntentActor
from requests_app.store.session import Row, fetch_all, fetch_one, fetch_only, run

BEGINNING: Final = -(2**63)  # what all numbers follow, also those that no entry may have
LOCK: Final = 1_818_583_911  # "ledg": the key of the journal's advisory lock
_EMPTY: Final = Head(0, GENESIS)
# Named one by one, for plans that outlive a migration. Amounts as text: a JSON number would pass through a float.
_COLUMNS: Final = """e.seq, e.entry_id, e.ref, e.kind, e.holds, e.chain, e.token, e.by_actor,
       CASE WHEN e.at >= '0001-01-02 00:00+00' AND e.at < '9999-12-31 00:00+00' THEN e.at END AS at, e.tx_hash, e.memo, e.prev_hash, e.hash,
       (SELECT jsonb_agg(jsonb_build_array(l.account, l.amount::text) ORDER BY l.ord) FROM ledger_leg l WHERE l.entry_seq = e.seq) AS legs"""


class UnreadableEntry(RelayerError):
    """A row of the journal that no writer of ours can have made: an amount, a time, a kind or an actor that there is not."""

    def __init__(self, seq: int, entry_id: str, why: str) -> None:
        super().__init__(why)
        self.broken = Broken(seq, entry_id, why)


class Appended(NamedTuple):
    """Where an entry stands now. `fresh` False: it stood there already, with the same content."""

    entry_id: str
    seq: int
    hash: bytes
    fresh: bool


class Balance(NamedTuple):
    """An account's balance in an asset: money that is spoken for, and money that moved."""

    account: str
    chain: str
    token: str
    pending: int
    posted: int


class Figures(NamedTuple):
    """The journal in three numbers."""

    head: int
    open_holds: int
    oldest_hold_seconds: float


def append(conn: Connection[Any], entries: Sequence[Entry]) -> list[Appended]:
    """Append entries to the journal in their order, and move the balances, in the caller's transaction.

    One answer an entry, in order. Checks, in this order: the entry's shape (LedgerRefused); the same id exists: the same content
    changes nothing, another one raises LedgerConflict; the hold exists, is a hold, of the same ref and asset (LedgerRefused); it
    is not resolved yet, and a payment not held yet (LedgerConflict). One refused entry refuses all: the transaction must be given up.
    """
    if not entries:
        return []
    if conn.info.transaction_status is TransactionStatus.IDLE:
        raise RelayerError("entries are appended in the transaction of what they record")
    for entry in entries:
        check_shape(entry)
    # Under the lock only what depends on the entry's place is hashed.
    bodies = {entry.entry_id: entry_body(entry) for entry in entries}
    # A statement of its own: the next one then sees what the writer before us has committed.
    fetch_one(conn, "ledger", "lock_journal", {"key": LOCK})
    known = _known(conn, entries)
    placed = chained(head(conn), _fresh(known, entries), bodies)
    fresh = {one.entry.entry_id: one for one in placed}
    places = {**known, **fresh}
    if placed:
        insert_placed(conn, placed)
        _move(conn, [move for one in placed for move in movements(one.entry, _hold_of(one.entry, places))])
    return [
        Appended(name, places[name].seq, places[name].hash, name in fresh)
        for name in (entry.entry_id for entry in entries)
    ]


def head(conn: Connection[Any]) -> Head:
    """The end of the journal. Only under the journal's lock is it still so a moment later."""
    row = fetch_one(conn, "ledger", "head")
    return Head(row.seq, bytes(row.hash)) if row else _EMPTY


def balances(conn: Connection[Any], account: str | None = None) -> list[Balance]:
    """The balances, or those of one ledger account, in order."""
    rows = fetch_all(conn, "ledger", "balances", {"account": account})
    return [Balance(row.account, row.chain, row.token, int(row.pending), int(row.posted)) for row in rows]


def journal(conn: Connection[Any], after: int = BEGINNING, page: int = 1000) -> Iterator[Chained]:
    """Every entry after `after`, in journal order, read page by page. Raises UnreadableEntry at one that is none."""
    while True:
        rows = fetch_all(conn, "ledger", "entries_after", {"seq": after, "limit": page}, columns=_COLUMNS)
        yield from map(_chained, rows)
        if len(rows) < page:
            return
        after = rows[-1].seq


def figures(conn: Connection[Any]) -> Figures:
    """How far the journal is, and the holds of payments that are under way."""
    return Figures(*fetch_only(conn, "ledger", "figures"))


def _known(conn: Connection[Any], entries: Sequence[Entry]) -> dict[str, Chained]:
    """What stands in the journal under the ids of these entries and of the holds that they resolve, and the holds of their payments."""
    names = {entry.entry_id for entry in entries} | {entry.holds for entry in entries if entry.holds}
    refs = {entry.ref for entry in entries if entry.kind is EntryKind.HOLD}
    rows = fetch_all(conn, "ledger", "entries_by_id", {"ids": sorted(names), "refs": sorted(refs)}, columns=_COLUMNS)
    return {row.entry_id: _chained(row) for row in rows}


def _fresh(known: Mapping[str, Chained], entries: Sequence[Entry]) -> Iterator[Entry]:
    """The entries that are not in the journal yet, each judged against the journal and those before it."""
    seen: dict[str, Entry] = {name: one.entry for name, one in known.items()}
    resolved = {entry.holds for entry in seen.values() if entry.holds}
    held = {entry.ref for entry in seen.values() if entry.kind is EntryKind.HOLD}
    for entry in entries:
        before = seen.get(entry.entry_id)
        if before is not None:
            if before != entry:
                raise LedgerConflict(f"{entry.entry_id} is in the journal with other content")
            continue
        if entry.holds is not None:
            hold = seen.get(entry.holds)
            if hold is None or hold.kind is not EntryKind.HOLD:
                raise LedgerRefused(f"{entry.entry_id}: {entry.holds} is no hold")
            if (hold.ref, hold.chain, hold.token) != (entry.ref, entry.chain, entry.token):
                raise LedgerRefused(f"{entry.entry_id}: {entry.holds} is of another payment or asset")
            if entry.holds in resolved:
                raise LedgerConflict(f"{entry.entry_id}: {entry.holds} is resolved already")
            resolved.add(entry.holds)
        elif entry.ref in held:
            raise LedgerConflict(f"{entry.entry_id}: its payment is held already")
        else:
            held.add(entry.ref)
        seen[entry.entry_id] = entry
        yield entry


def _hold_of(entry: Entry, places: Mapping[str, Chained]) -> Entry | None:
    return places[entry.holds].entry if entry.holds else None


def insert_placed(conn: Connection[Any], placed: Sequence[Chained]) -> None:
    """Store entries that have their places. Without balances: `append` moves these, and the seeding adds them up at its end."""
    parameters = {
        "seq": [one.seq for one in placed],
        "id": [one.entry.entry_id for one in placed],
        "ref": [one.entry.ref for one in placed],
        "kind": [one.entry.kind.value for one in placed],
        "holds": [one.entry.holds for one in placed],
        "chain": [one.entry.chain for one in placed],
        "token": [one.entry.token for one in placed],
        "by": [one.entry.by.value for one in placed],
        "at": [one.entry.at for one in placed],
        "tx": [one.entry.tx_hash for one in placed],
        "memo": [one.entry.memo for one in placed],
        "legs": [len(one.entry.legs) for one in placed],
        "prev": [one.prev for one in placed],
        "hash": [one.hash for one in placed],
    }
    run(conn, "ledger", "insert_entries", parameters)
    legs = [(one.seq, place, leg) for one in placed for place, leg in enumerate(one.entry.legs, 1)]
    if legs:
        parameters = {
            "seq": [seq for seq, _, _ in legs],
            "ord": [place for _, place, _ in legs],
            "account": [leg.account for _, _, leg in legs],
            "amount": [Decimal(leg.amount) for _, _, leg in legs],
        }
        run(conn, "ledger", "insert_legs", parameters)


def _move(conn: Connection[Any], moves: Sequence[Movement]) -> None:
    sums = totals(moves)
    if sums:
        parameters = {
            "account": [move.account for move in sums],
            "chain": [move.chain for move in sums],
            "token": [move.token for move in sums],
            "pending": [Decimal(move.pending) for move in sums],
            "posted": [Decimal(move.posted) for move in sums],
        }
        run(conn, "ledger", "move_balances", parameters)


def _chained(row: Row) -> Chained:
    try:
        legs = tuple(Leg(account, int(amount)) for account, amount in row.legs or ())
        kind, by = EntryKind(row.kind), IntentActor(row.by_actor)
    except ValueError as error:
        raise UnreadableEntry(row.seq, row.entry_id, str(error)) from None
    if row.at is None:
        raise UnreadableEntry(row.seq, row.entry_id, "its time is none")
    entry = Entry(
        row.entry_id,
        bytes(row.ref),
        kind,
        row.holds,
        row.chain,
        row.token,
        legs,
        by,
        row.at,
        bytes(row.tx_hash) if row.tx_hash is not None else None,
        row.memo,
    )
    return Chained(row.seq, bytes(row.prev_hash), bytes(row.hash), entry)
