"""Payments as lists and numbers, for the API. Single intents are read by `store.intents`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from psycopg import Connection

from requests_app import sql
from requests_app.states import INTENT_FINAL
from requests_app.store.intents import Intent, read_intents
from requests_app.store.session import fetch_all, fetch_one, fetch_only

LARGEST_PAGE: Final = 1000
SCAN: Final = 10_000
NEWEST: Final = 2**63 - 1


class Filter(NamedTuple):
    """Which intents a list shows; empty and None choose all. Parties are the spellings that count as equal."""

    states: Sequence[str] = ()
    payers: Sequence[str] = ()
    merchants: Sequence[str] = ()
    ref: bytes | None = None
    since: datetime | None = None
    until: datetime | None = None


class Page(NamedTuple):
    """Intents, newest first. `before` is where the next page begins; None when there is nothing further."""

    intents: list[Intent]
    before: int | None


def settle_depth(conn: Connection[Any], limit: int) -> int:
    """How many jobs the settle queue holds, counted up to `limit`."""
    return int(fetch_only(conn, "payments", "settle_depth", {"limit": limit}).n)


def active_payments(conn: Connection[Any], ids: Sequence[int]) -> set[int]:
    """Those of the intents that have not ended."""
    parameters = {"ids": list(ids), "final": sorted(state.value for state in INTENT_FINAL)}
    return {row.id for row in fetch_all(conn, "payments", "active_payments", parameters)}


def page_payments(conn: Connection[Any], account_id: int, chosen: Filter, before: int, limit: int) -> Page:
    """At most `limit` intents of the account with ids below `before`.

    Looks at SCAN intents at most (an intent is found by its ref however old it is), so a page may hold fewer and yet be followed by
    another.
    """
    place = {"account": account_id, "before": before, "scan": SCAN}
    parameters = {
        **place,
        "ref": chosen.ref,
        "states": list(chosen.states),
        "payers": list(chosen.payers),
        "merchants": list(chosen.merchants),
        "since": chosen.since,
        "until": chosen.until,
        "limit": limit + 1,
    }
    looked_at = sql.statement("payments", "newest" if chosen.ref is None else "of_ref")
    ids = [row.id for row in fetch_all(conn, "payments", "page_payments", parameters, looked_at=looked_at)]
    following: int | None = None
    if len(ids) > limit:
        ids = ids[:limit]
        following = ids[-1]
    elif chosen.ref is None:
        end = fetch_one(conn, "payments", "scan_end", place)
        following = end.id if end else None
    return Page(read_intents(conn, ids)[::-1], following)
