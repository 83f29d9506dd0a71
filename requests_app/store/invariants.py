"""The invariants of payments and their journal, judged in windows so that no statement is long (reference queue_settle 1.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, Final, NamedTuple

from psycopg import Connection

from requests_app.identity import REF_TAG
from requests_app.ledger import GENESIS, Broken, Head, follow
from requests_app.states import INTENT_TRANSITIONS
from requests_app.store.ledger import BEGINNING, UnreadableEntry, journal
from requests_app.store.session import fetch_all, fetch_only, run

LIMIT: Final = 100  # rows that one look names


class Over(StrEnum):
    """What an invariant's windows are counted in."""

    ENTRIES = "entries"
    INTENTS = "intents"
    BALANCES = "balances"
    WHOLE = "whole"  # small enough to be judged at once


class Violation(NamedTuple):
    """One row that breaks an invariant: which, whom, how."""

    number: int
    name: str
    subject: str
    detail: str


class Invariant(NamedTuple):
    """One statement of sql/invariants.sql (the chain: a walk). Two may share a number of the reference."""

    number: int
    name: str
    over: Over
    meaning: str


INVARIANTS: Final = (
    Invariant(1, "entries_balance", Over.ENTRIES, "every entry's legs are whole and sum to zero"),
    Invariant(2, "assets_balance", Over.WHOLE, "over all accounts an asset sums to zero, pending and posted"),
    Invariant(
        3, "holds_resolved_once", Over.ENTRIES, "a hold is resolved once, by its own payment, which has one hold"
    ),
    Invariant(4, "balances_fold", Over.BALANCES, "the cached balances are what the journal comes to"),
    Invariant(4, "balances_missing", Over.ENTRIES, "every account that the journal moves has a balance"),
    Invariant(5, "chain", Over.ENTRIES, "every entry follows the one before it and has the hash of its content"),
    Invariant(6, "states_and_entries", Over.INTENTS, "each payment has the entries that its state asks for"),
    Invariant(7, "versions", Over.INTENTS, "a payment's history has no gap and only legal steps"),
    Invariant(8, "refs", Over.INTENTS, "a payment's ref is that of its terms"),
    Invariant(9, "held_before_sent", Over.INTENTS, "nothing was signed for a payment without a hold"),
    Invariant(10, "one_live_nonce", Over.INTENTS, "at most one nonce of a payment is not proven dead"),
    Invariant(11, "nonces_dense", Over.WHOLE, "a signer's nonces have no gap"),
    Invariant(12, "bills_follow_payments", Over.WHOLE, "usage is claimed only by a payment that can still be paid"),
)


def spans(conn: Connection[Any]) -> dict[Over, tuple[int, int]]:
    """From where (exclusive) to where the windows of each kind reach now."""
    row = fetch_only(conn, "invariants", "bounds")
    return {
        Over.ENTRIES: (0, row.entries),
        Over.INTENTS: (row.before, row.intents),
        Over.BALANCES: (0, row.balances),
        Over.WHOLE: (0, 1),
    }


def clock(conn: Connection[Any]) -> float:
    """Seconds since 1970 by the database's clock."""
    return float(fetch_only(conn, "invariants", "clock").seconds)


@contextmanager
def patience(conn: Connection[Any], seconds: float) -> Iterator[None]:
    """No statement of the block takes longer (psycopg.errors.QueryCanceled); then the session's own limit is back."""
    fetch_only(conn, "invariants", "set_patience", {"milliseconds": str(round(seconds * 1000))})
    try:
        yield
    finally:
        run(conn, "invariants", "reset_patience")


def check(conn: Connection[Any], invariant: Invariant, low: int, high: int) -> list[Violation]:
    """What breaks an invariant in the window (low, high], at most `LIMIT` rows; `Over.WHOLE` ignores the window."""
    if invariant.name == "chain":
        return _chain(conn, invariant, low, high)
    parameters = {"low": low, "high": high, "limit": LIMIT, **_EXTRA.get(invariant.name, dict)()}
    rows = fetch_all(conn, "invariants", invariant.name, parameters)
    return [Violation(invariant.number, invariant.name, row.subject, row.detail) for row in rows]


def _edges() -> dict[str, Any]:
    edges = [(*pair, actor) for pair, edge in INTENT_TRANSITIONS.items() for actor in sorted(edge.actors)]
    sources, targets, actors = (list(column) for column in zip(*edges, strict=True))
    return {"sources": _texts(sources), "targets": _texts(targets), "actors": _texts(actors)}


def _texts(values: Sequence[Any]) -> list[str]:
    return [str(value) for value in values]


_EXTRA: Final[dict[str, Callable[[], dict[str, Any]]]] = {"versions": _edges, "refs": lambda: {"tag": REF_TAG}}


def _chain(conn: Connection[Any], invariant: Invariant, low: int, high: int) -> list[Violation]:
    """The walk begins at the entry `low`, whose hash it takes as it stands: the window before has judged it."""
    try:
        broken = _walk(conn, low, high)
    except UnreadableEntry as error:
        broken = error.broken
    return [] if broken is None else [Violation(invariant.number, invariant.name, _named(broken), broken.why)]


def _walk(conn: Connection[Any], low: int, high: int) -> Broken | None:
    head = Head(0, GENESIS)
    if low > 0:
        before = next(journal(conn, low - 1, 1), None)
        if before is None or before.seq != low:
            return Broken(low, "", "the entry is missing")
        head = Head(low, before.hash)
    for found in journal(conn, low if low > 0 else BEGINNING):
        if found.seq > high:
            break
        after = follow(head, found)
        if isinstance(after, Broken):
            return after
        head = after
    return Broken(head.seq + 1, "", "the entry is missing") if head.seq < high else None


def _named(broken: Broken) -> str:
    return f"#{broken.seq} {broken.entry_id}".rstrip()
