"""Usage of the envelope log: billed, settled by payments, shown to its payer. Amounts are integer picodollars, minutes since 1970."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from psycopg import Connection

from requests_app.crash_points import crash_point
from requests_app.errors import RelayerError
from requests_app.store.bands import OutOfRange
from requests_app.store.session import fetch_all, fetch_one, fetch_only, run, transaction

LARGEST_MINUTE = 2**53


class Covered(NamedTuple):
    """What a bill covers: rows (payer, originator, minute), picodollars, envelopes."""

    rows: int
    spend: int
    messages: int

    @classmethod
    def of(cls, row: Any) -> Covered:
        """From a row whose sum has left the range of a bigint to us."""
        return cls(row.rows, int(row.spend), row.messages)


class Billable(NamedTuple):
    """A payer's usage that no bill has claimed: the last whole minute with usage, picodollars, envelopes."""

    payer: int
    upto_minute: int
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


def billable(conn: Connection[Any], least: int = 1) -> list[Billable]:
    """Payers whose whole minutes without a bill cost at least `least` picodollars, ordered by account."""
    rows = fetch_all(conn, "usage", "billable", {"least": least})
    return [Billable(row.payer, row.upto, int(row.spend), row.messages) for row in rows]


def bill_usage(conn: Connection[Any], payer: int, upto_minute: int, reference: str) -> Covered:
    """Claim a payer's usage up to a minute (inclusive; never the running one) for the bill `reference`: what it has to pay.

    Atomic; in the caller's transaction (the one that makes the payment intent) or in one of its own. What is claimed does not grow
    and no other bill can claim it; what commits later belongs to the next bill. A bill of 0 rows claims nothing and needs no
    payment. The same reference a second time claims nothing and answers the same. `store.bills` ends it in the transaction that ends the
    payment. Locks the account, hence call it before signers, rows and jobs are locked.
    Raises RelayerError for an unknown payer, OutOfRange for a minute outside 0..2**53, ValueError for an empty reference.
    """
    parameters = _checked(payer, upto_minute, reference)
    with transaction(conn):
        settled, billed = _covered(conn, parameters)
        if settled.rows or billed.rows:
            return settled if settled.rows else billed
        claimed = Covered.of(fetch_only(conn, "usage", "bill_usage", parameters))
        crash_point("before_bill_usage_commit")
    crash_point("after_bill_usage_commit")
    return claimed


def _checked(payer: int, upto_minute: int, reference: str) -> dict[str, Any]:
    if not reference:
        raise ValueError("a bill needs a reference")
    if not 0 <= upto_minute <= LARGEST_MINUTE:
        raise OutOfRange(f"minute {upto_minute} is outside the range")
    return {"payer": payer, "upto": upto_minute, "reference": reference}


def _covered(conn: Connection[Any], parameters: dict[str, Any]) -> tuple[Covered, Covered]:
    """Lock the payer; what the reference covers, settled and billed. Bills of a payer take turns here."""
    if fetch_one(conn, "usage", "lock_payer", parameters) is None:
        raise RelayerError(f"account {parameters['payer']} does not exist")
    found = {row.place: Covered.of(row) for row in fetch_all(conn, "usage", "covered_by", parameters)}
    return found["settled"], found["billed"]


def unsettled_page(conn: Connection[Any], payer: int, after: tuple[int, int], limit: int) -> list[UsageRow]:
    """Unsettled usage, billed or not, after (minute, originator), in that order."""
    parameters = {"payer": payer, "minute": after[0], "source": after[1], "limit": limit}
    return [
        UsageRow(*row)._replace(spend=int(row.spend)) for row in fetch_all(conn, "usage", "unsettled_page", parameters)
    ]


def settled_page(conn: Connection[Any], payer: int, after: int, limit: int) -> list[UsageRow]:
    """Settled usage after the row with id `after`, in the order of settlement."""
    parameters = {"payer": payer, "after": after, "limit": limit}
    return [UsageRow(*row) for row in fetch_all(conn, "usage", "settled_page", parameters)]


def totals(conn: Connection[Any], payer: int) -> tuple[int, int]:
    """(unsettled, settled) spend of a payer; what is billed is unsettled."""
    row = fetch_only(conn, "usage", "totals", {"payer": payer})
    return int(row.unsettled), int(row.settled)


def purge_congestion(conn: Connection[Any]) -> int:
    """Forget minutes older than an hour: how many rows."""
    return run(conn, "usage", "purge_congestion")
