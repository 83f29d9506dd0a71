"""Usage becomes a payment once, and follows its fate in the transaction that ends it."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from requests_app.store import bills as store
from requests_app.store import usage
from requests_app.transitions import intents
from requests_app.transitions.bills import Bill, make_bill, token_units
from requests_app.transitions.intents import Change
from tests.payments.terms import TERMS, add_account, authorization
from tests.payments.test_intents import HASH, A, S, moved

Conn = psycopg.Connection[Any]


def used(conn: Conn, payer: int, minute: int, spend: int, source: int = 1) -> None:
    conn.execute("INSERT INTO usage_unsettled VALUES (%s, %s, %s, %s, 2, 7)", (payer, source, minute, spend))


def bill(conn: Conn, payer: int) -> Bill:
    made = make_bill(conn, payer, 1_000, TERMS, 6, 3600.0)
    assert made is not None
    return made


def rows(conn: Conn) -> dict[str, int]:
    counts = {}
    for place in ("unsettled", "billed", "settled"):
        row = conn.execute(f"SELECT coalesce(sum(spend), 0)::bigint FROM usage_{place}").fetchone()
        assert row is not None
        counts[place] = row[0]
    return counts


@pytest.mark.parametrize(
    ("picodollars", "decimals", "units"),
    [
        (0, 6, 0),
        (1, 6, 1),
        (10**6, 6, 1),
        (10**6 + 1, 6, 2),
        (10**12, 6, 10**6),
        (3, 12, 3),
        (3, 18, 3 * 10**6),
        (5, 0, 1),
    ],
)
def test_amounts_are_rounded_up_to_a_unit(picodollars: int, decimals: int, units: int) -> None:
    assert token_units(picodollars, decimals) == units


def test_a_bill_is_paid_and_its_usage_settled_at_once(conn: Conn) -> None:
    payer = add_account(conn)
    used(conn, payer, 5, 1_500_000)
    used(conn, payer, 6, 1_000_000, source=2)
    made = bill(conn, payer)
    assert (made.intent.amount, made.intent.state, made.covers) == (3, S.CREATED, (2, 2_500_000, 4))
    assert rows(conn) == {"unsettled": 0, "billed": 2_500_000, "settled": 0}
    assert make_bill(conn, payer, 1_000, TERMS, 6, 3600.0) is None  # nothing is left to bill
    assert store.open_bills(conn, payer) == [(payer, made.intent.public_id, "created", 2_500_000, 2)]
    intent = intents.authorize(conn, payer, made.intent.public_id, authorization(made.intent)).intent
    intent = moved(conn, intent, S.SETTLING, A.RELAYER)
    intent = moved(conn, intent, S.CONFIRMING, A.RELAYER, tx_hash=HASH)
    with conn.transaction(force_rollback=True):
        intents.move(conn, S.SETTLED, [Change.of(intent, tx_hash=HASH)], A.LISTENER)
        assert rows(conn) == {"unsettled": 0, "billed": 0, "settled": 2_500_000}
    assert rows(conn)["settled"] == 0  # with the state, or not at all
    moved(conn, intent, S.SETTLED, A.LISTENER, tx_hash=HASH)
    assert rows(conn) == {"unsettled": 0, "billed": 0, "settled": 2_500_000}
    page = usage.settled_page(conn, payer, 0, 10)
    assert {row.reference for row in page} == {made.intent.public_id}


def test_a_bill_that_comes_to_nothing_is_billed_again(conn: Conn) -> None:
    payer, other = add_account(conn), add_account(conn)
    used(conn, payer, 5, 10**6)
    used(conn, other, 5, 10**6)
    first, kept = bill(conn, payer), bill(conn, other)
    used(conn, payer, 5, 2 * 10**6)  # what comes late belongs to the next bill
    second = bill(conn, payer)
    assert second.covers.spend == 2 * 10**6
    for one in (first, second):
        intents.cancel(conn, one.intent.public_id, "too dear", account_id=payer)
    assert rows(conn) == {"unsettled": 3 * 10**6, "billed": 10**6, "settled": 0}
    assert bill(conn, payer).intent.amount == 3
    assert [one.reference for one in store.open_bills(conn, other)] == [kept.intent.public_id]


def test_bills_that_end_together_may_share_a_minute(conn: Conn) -> None:
    """One statement ends many payments: two bills of one minute must not meet the same row twice."""
    payer = add_account(conn)
    for _ in range(2):
        used(conn, payer, 5, 10**6)
        made = bill(conn, payer)
        conn.execute("ALTER TABLE payment_intent DISABLE TRIGGER USER")
        conn.execute("UPDATE payment_intent SET expires_at = created_at WHERE id = %s", (made.intent.id,))
        conn.execute("ALTER TABLE payment_intent ENABLE TRIGGER USER")
    with conn.transaction():
        assert len(intents.expire(conn, 10)) == 2
    assert rows(conn) == {"unsettled": 2 * 10**6, "billed": 0, "settled": 0}


def test_usage_of_nothing_makes_no_bill(conn: Conn) -> None:
    payer = add_account(conn)
    used(conn, payer, 5, 0)
    assert make_bill(conn, payer, 1_000, TERMS, 6, 3600.0) is None
    assert conn.execute("SELECT count(*) FROM payment_intent").fetchone() == (0,)
    assert conn.execute("SELECT count(*) FROM usage_unsettled").fetchone() == (1,)
