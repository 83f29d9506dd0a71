"""What the database itself refuses about the journal and about intents, whoever asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from requests_app.ledger import GENESIS, Entry, Head, Leg, chained
from requests_app.store import intents as store
from requests_app.store import ledger
from requests_app.store.session import fetch_one
from tests.payments.journal import entries_of
from tests.payments.terms import USDT, add_account, add_authorized
from tests.payments.test_ledger import LEGS, NEW_YEAR, add, hold, post, void

Conn = psycopg.Connection[Any]


def force(conn: Conn, *entries: Entry, head: Head | None = None, legs: bool = True, count: int | None = None) -> None:
    """Write entries as they are, past the checks of `append`."""
    with conn.transaction():
        for one in chained(head or ledger.head(conn), entries):
            entry = one.entry
            row = (one.seq, entry.entry_id, entry.ref, entry.kind, entry.holds, entry.chain, entry.token, entry.by, entry.at,
                   entry.memo, len(entry.legs) if count is None else count, one.prev, one.hash)  # fmt: skip
            conn.execute(
                "INSERT INTO ledger_entry (seq, entry_id, ref, kind, holds, chain, token, by_actor, at, memo, leg_count, prev_hash, hash)"
                " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
                row,
            )
            if legs:
                leg(conn, one.seq, *entry.legs)


def leg(conn: Conn, seq: int, *legs: Leg) -> None:
    """Write legs in one statement."""
    values = ", ".join(f"({seq}, {place}, '{one.account}', {one.amount})" for place, one in enumerate(legs, 1))
    if legs:
        conn.execute(f"INSERT INTO ledger_leg (entry_seq, ord, account, amount) VALUES {values}")


UNBALANCED = (LEGS[0], Leg("merchant:x", 99))
OTHER = (Leg("payer:y", -5), Leg("merchant:y", 5))
REFUSED: dict[str, Callable[[Conn], Any]] = {
    "unbalanced": lambda conn: force(conn, hold("pi_0002", legs=UNBALANCED)),
    "no legs": lambda conn: force(conn, hold("pi_0002"), legs=False),
    "fewer legs than announced": lambda conn: force(conn, hold("pi_0002"), count=3),
    "one leg": lambda conn: force(conn, hold("pi_0002", legs=LEGS[:1])),
    "a leg of nothing": lambda conn: force(conn, hold("pi_0002", legs=(*LEGS, Leg("fee:x", 0)))),
    "two legs of one account": lambda conn: force(conn, hold("pi_0002", legs=(*LEGS, LEGS[0]))),
    "late legs": lambda conn: leg(conn, 1, *OTHER),
    "legs of nothing": lambda conn: leg(conn, 99, *OTHER),
    "legs of a void": lambda conn: force(conn, void(legs=LEGS)),
    "an update of an entry": lambda conn: conn.execute("UPDATE ledger_entry SET memo = 'x' WHERE seq = 1"),
    "an update of a leg": lambda conn: conn.execute("UPDATE ledger_leg SET amount = amount * 2"),
    "a delete of an entry": lambda conn: conn.execute("DELETE FROM ledger_entry WHERE seq = 1"),
    "a delete of a leg": lambda conn: conn.execute("DELETE FROM ledger_leg WHERE entry_seq = 1"),
    "a hold that is not there": lambda conn: force(conn, post("pi_0009")),
    "a hold of another payment": lambda conn: force(conn, post("pi_0002", holds="pi_0001/hold")),
    "a hold of another asset": lambda conn: force(conn, post(token=USDT)),
    "a post that is resolved": lambda conn: (add(conn, post()), force(conn, void(holds="pi_0001/post"))),
    "a second resolution": lambda conn: (add(conn, post()), force(conn, void())),
    "a hold that resolves": lambda conn: force(conn, hold("pi_0002", holds="pi_0001/hold")),
    "a post that resolves nothing": lambda conn: force(conn, post(holds=None)),
    "a second hold": lambda conn: force(conn, hold(entry_id="pi_0001/again")),
    "the same id": lambda conn: force(conn, hold()),
    "a gap": lambda conn: force(conn, hold("pi_0002"), head=Head(7, ledger.head(conn).hash)),
    "another past": lambda conn: force(conn, hold("pi_0002"), head=Head(1, GENESIS)),
    "a number from before": lambda conn: force(conn, hold("pi_0002"), head=Head(-1, GENESIS)),
}


@pytest.mark.parametrize("what", list(REFUSED))
def test_the_journal_refuses(conn: Conn, what: str) -> None:
    add(conn, hold())
    with pytest.raises(psycopg.IntegrityError):
        REFUSED[what](conn)
    first = entries_of(conn, hold().ref)[0]
    assert (first.seq, first.entry) == (1, hold())


def test_what_is_right_passes_the_same_way(conn: Conn) -> None:
    """The helper above writes what the journal takes, so that its refusals are about the one thing that is wrong."""
    force(conn, hold(), hold("pi_0002"), post(), void("pi_0002"))
    assert ledger.head(conn).seq == 4


def test_terms_history_and_ends_do_not_change(conn: Conn) -> None:
    account = add_account(conn)
    intent = add_authorized(conn, account)
    for column, value in (
        ("amount", "1"), ("merchant", "'x'"), ("payer", "'x'"), ("token", "'x'"), ("chain", "'x'"), ("public_id", "'x'"),
        ("ref", "'\\x00'"), ("expires_at", "clock_timestamp()"), ("created_at", "clock_timestamp()"),
    ):  # fmt: skip
        with pytest.raises(psycopg.IntegrityError, match="terms"):
            conn.execute(f"UPDATE payment_intent SET {column} = {value} WHERE id = {intent.id}")
    with pytest.raises(psycopg.IntegrityError, match="history"):
        conn.execute("UPDATE intent_transition SET reason = 'x'")
    conn.execute(f"UPDATE payment_intent SET state = 'canceled' WHERE id = {intent.id}")
    with pytest.raises(psycopg.IntegrityError, match="final"):
        conn.execute(f"UPDATE payment_intent SET state = 'created' WHERE id = {intent.id}")
    with pytest.raises(psycopg.IntegrityError):
        conn.execute("INSERT INTO intent_transition SELECT * FROM intent_transition")
    assert store.read_intents(conn, [intent.id])[0].updated_at == intent.updated_at


def test_states_carry_what_they_need(conn: Conn) -> None:
    intent = add_authorized(conn, add_account(conn))
    for change in (
        "state = 'confirming', tx_hash = NULL", "state = 'settled', tx_hash = NULL", "state = 'settling', tx_hash = '\\xaa'",
        '"authorization" = NULL', "state = 'paid'", "version = 0",
    ):  # fmt: skip
        with pytest.raises(psycopg.IntegrityError):
            conn.execute(f"UPDATE payment_intent SET {change} WHERE id = {intent.id}")


def test_the_guards_look_entries_up_by_key(conn: Conn) -> None:
    """A guard that scanned would make each append dearer than the one before."""
    add(conn, *[hold(f"pi_{number:04}", at=NEW_YEAR) for number in range(4000)])
    conn.execute("ANALYZE ledger_entry, ledger_leg")
    conn.execute("SET enable_seqscan = on")
    before = fetch_one(conn, "ledger", "head")
    assert before is not None
    scans = "SELECT sum(seq_tup_read) FROM pg_stat_xact_user_tables WHERE relname LIKE 'ledger\\_%'"
    with conn.transaction():
        ledger.append(conn, [hold("pi_9998"), hold("pi_9999")])
        conn.execute("SET CONSTRAINTS ALL IMMEDIATE")
        row = conn.execute(scans).fetchone()
    assert row == (0,)
