"""Usage of the envelope log: settled by payments, shown to its payer. Amounts are integer picodollars, minutes since 1970."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from psycopg import Connection

from requests_app.crash_points import crash_point
from requests_app.errors import RelayerError
from requests_app.store.bands import OutOfRange
from requests_app.store.session import fetch_all, fetch_one, fetch_only, run, transaction

LARGEST_MINUTE = 2**53


class Settled(NamedTuple):
    """What a payment covers: rows (payer, originator, minute), picodollars, envelopes."""

    rows: int
    spend: int
    messages: int


class UsageRow(NamedTuple):
    """Usage of one originator in one minute; `reference` and `settled_at` only when a payment covers it."""

    source_id: int
    minute: int
    spend: int
    messages: int
    last_position: int
    reference: str | None
    settled_at: datetime | None
    id: int


def settle_usage(conn: Connection[Any], payer: int, upto_minute: int, reference: str) -> Settled:
    """Move a payer's usage up to a minute (inclusive; never the running one) from unsettled to settled, atomically.

    In the caller's transaction, or in one of its own. The same reference a second time moves nothing and answers the same.
    Raises RelayerError for an unknown payer, OutOfRange for a minute outside 0..2**53, ValueError for an empty reference.
    """
    if not reference:
        raise ValueError("a settlement needs a reference")
    if not 0 <= upto_minute <= LARGEST_MINUTE:
        raise OutOfRange(f"minute {upto_minute} is outside the range")
    with transaction(conn):
        if fetch_one(conn, "usage", "lock_payer", {"payer": payer}) is None:
            raise RelayerError(f"account {payer} does not exist")
        before = fetch_only(conn, "usage", "settled_by", {"reference": reference, "payer": payer})
        if before.rows:
            return Settled(*before)
        moved = fetch_only(conn, "usage", "settle_usage", {"payer": payer, "upto": upto_minute, "reference": reference})
        crash_point("before_settle_usage_commit")
    crash_point("after_settle_usage_commit")
    return Settled(*moved)


def unsettled_page(conn: Connection[Any], payer: int, after: tuple[int, int], limit: int) -> list[UsageRow]:
    """Unsettled usage after (minute, originator), in that order."""
    parameters = {"payer": payer, "minute": after[0], "source": after[1], "limit": limit}
    return [UsageRow(*row) for row in fetch_all(conn, "usage", "unsettled_page", parameters)]


def settled_page(conn: Connection[Any], payer: int, after: int, limit: int) -> list[UsageRow]:
    """Settled usage after the row with id `after`, in the order of settlement."""
    parameters = {"payer": payer, "after": after, "limit": limit}
    return [UsageRow(*row) for row in fetch_all(conn, "usage", "settled_page", parameters)]


def totals(conn: Connection[Any], payer: int) -> tuple[int, int]:
    """(unsettled, settled) spend of a payer."""
    row = fetch_only(conn, "usage", "totals", {"payer": payer})
    return row.unsettled, row.settled


def purge_congestion(conn: Connection[Any]) -> int:
    """Forget minutes older than an hour: how many rows."""
    return run(conn, "usage", "purge_congestion")
