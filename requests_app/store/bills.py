"""Usage that a payment pays for: it moves in the transaction that ends the payment, for all ended payments at once.

A bill's reference is the payment's API id. Its rows belong to whoever holds the payment's row lock, so the account needs no lock here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from psycopg import Connection

from requests_app.store.session import fetch_all, run


class OpenBill(NamedTuple):
    """A bill that is not paid yet: its payment's id and state, picodollars, rows."""

    payer: int
    reference: str
    state: str
    spend: int
    rows: int


def settle_bills(conn: Connection[Any], references: Sequence[str]) -> int:
    """The usage of paid bills is settled, in the caller's transaction: how many rows. References that are no bills have none."""
    return run(conn, "bills", "settle_bills", {"references": list(references)}) if references else 0


def release_bills(conn: Connection[Any], references: Sequence[str]) -> int:
    """The usage of bills that nobody will pay waits for another bill, in the caller's transaction: how many rows."""
    return run(conn, "bills", "release_bills", {"references": list(references)}) if references else 0


def open_bills(conn: Connection[Any], payer: int | None = None) -> list[OpenBill]:
    """The bills that are not paid yet, of one account or of all, oldest first."""
    rows = fetch_all(conn, "bills", "open_bills", {"payer": payer})
    return [OpenBill(*row)._replace(spend=int(row.spend)) for row in rows]


class Client(NamedTuple):
    """A client account as a bill sees it."""

    name: str
    active: bool


def accounts_of(conn: Connection[Any], ids: Sequence[int]) -> dict[int, Client]:
    """The accounts with these ids."""
    rows = fetch_all(conn, "bills", "accounts_of", {"ids": list(ids)})
    return {row.id: Client(row.name, row.active) for row in rows}
