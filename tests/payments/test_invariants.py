"""Each invariant has a world that breaks it (with the database's own guards off), and is the one that names the row."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from django.core.management import call_command

from requests_app import metrics
from requests_app.ledger import hold_of, post_of, void_of
from requests_app.management.commands.relayer_check_invariants import looks
from requests_app.store import invariants, ledger
from requests_app.store.invariants import INVARIANTS, Over
from tests.payments.terms import MERCHANT, PAYER, USDC, add_account, add_authorized, add_intent
from tests.payments.test_bills import bill, used
from tests.payments.test_intents import HASH, A, S, moved
from workers.duties import books

Conn = psycopg.Connection[Any]


def settling(conn: Conn, account: int) -> Any:
    """Held and signed, as TX1 leaves it."""
    intent = moved(conn, add_authorized(conn, account), S.SETTLING, A.RELAYER)
    with conn.transaction():
        ledger.append(conn, [hold_of(intent)])
    nonce = conn.execute("UPDATE signer SET next_nonce = next_nonce + 1 RETURNING id, next_nonce - 1").fetchone()
    assert nonce is not None
    conn.execute(
        "INSERT INTO nonce_slot (signer_id, nonce, kind, subject_id, state, opened_epoch) VALUES (%s, %s, 4, %s, 'signed', 1)",
        (*nonce, intent.id),
    )
    return intent


@pytest.fixture
def world(conn: Conn) -> Conn:
    """Payments in every state, a bill, a signer whose first nonces are gone: nothing is wrong."""
    account = add_account(conn)
    conn.execute("INSERT INTO signer (chain_id, address, next_nonce, chain_nonce_latest) VALUES (31337, '\\xaa', 5, 5)")
    add_intent(conn, account)
    add_authorized(conn, account)
    settling(conn, account)
    done = moved(conn, settling(conn, account), S.CONFIRMING, A.RELAYER, tx_hash=HASH)
    with conn.transaction():
        from requests_app.transitions import intents

        (one,) = intents.move(conn, S.SETTLED, [intents.Change.of(done, tx_hash=HASH)], A.LISTENER)
        ledger.append(conn, [post_of(one.intent)])
    failed = moved(conn, settling(conn, account), S.FAILED, A.RELAYER, reason="closed")
    with conn.transaction():
        ledger.append(conn, [void_of(failed, A.RELAYER, memo="closed")])
    moved(conn, settling(conn, account), S.NEEDS_REVIEW, A.RELAYER, reason="unclear")
    used(conn, account, 5, 10**6)
    bill(conn, account)
    return conn


def tamper(conn: Conn, *statements: str) -> None:
    conn.execute("BEGIN; SET LOCAL session_replication_role = replica; " + "; ".join(statements) + "; COMMIT")


def report(*words: str) -> dict[str, list[str]]:
    """Whom the command names, by invariant; its exit code agrees."""
    out = io.StringIO()
    try:
        call_command("relayer_check_invariants", "--json", *words, stdout=out)
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    found = json.loads(out.getvalue())
    assert code == (0 if found["ok"] else 1)
    rows = {one["name"]: [row["subject"] for row in one["violations"]] for one in found["invariants"]}
    return {name: subjects for name, subjects in rows.items() if subjects}


def test_a_whole_world_holds(world: Conn) -> None:
    assert report() == {}
    assert report("--window", "1") == {}
    out = io.StringIO()
    call_command("relayer_check_invariants", stdout=out)
    assert out.getvalue().count("holds ") == len(INVARIANTS)


SETTLED = "(SELECT id FROM payment_intent WHERE state = 'settled')"
HELD = "(SELECT id FROM payment_intent WHERE state = 'settling')"
# what is done to the world: (the invariant that must name it, statements)
BROKEN: dict[str, tuple[str, tuple[str, ...]]] = {
    "a leg is larger": ("entries_balance", ("UPDATE ledger_leg SET amount = amount + 1 WHERE entry_seq = 1 AND ord = 1",)),
    "a leg is gone": ("entries_balance", ("DELETE FROM ledger_leg WHERE entry_seq = 1 AND ord = 1",)),
    "a leg of nothing": ("entries_balance", ("DELETE FROM ledger_entry WHERE seq = 6",)),
    "a void with legs": ("entries_balance", (
        "INSERT INTO ledger_leg SELECT seq, 1, 'payer:x', -1 FROM ledger_entry WHERE kind = 'void'",
        "INSERT INTO ledger_leg SELECT seq, 2, 'merchant:x', 1 FROM ledger_entry WHERE kind = 'void'")),
    "an asset has more than nothing": ("assets_balance", ("UPDATE ledger_balance SET posted = posted + 5 WHERE account LIKE 'merchant%'",)),
    "a post of no hold": ("holds_resolved_once", ("UPDATE ledger_entry SET holds = 'pi_x/hold' WHERE kind = 'post'",)),
    "a post of another's hold": ("holds_resolved_once", (
        "UPDATE ledger_entry SET holds = (SELECT public_id || '/hold' FROM payment_intent WHERE state = 'needs_review') WHERE kind = 'post'",)),
    "a void after the post": ("holds_resolved_once", (
        "UPDATE ledger_entry SET ref = (SELECT ref FROM ledger_entry WHERE kind = 'post') WHERE kind = 'void'",)),
    "a balance is not the fold": ("balances_fold", (
        "UPDATE ledger_balance SET pending = pending + 7 WHERE account LIKE 'merchant%'",
        "UPDATE ledger_balance SET pending = pending - 7 WHERE account LIKE 'payer%'")),
    "a balance is missing": ("balances_missing", ("DELETE FROM ledger_balance",)),
    "an entry's time": ("chain", ("UPDATE ledger_entry SET at = at + interval '1 s' WHERE seq = 2",)),
    "an entry's number": ("chain", ("UPDATE ledger_entry SET seq = 99 WHERE seq = 4", "UPDATE ledger_leg SET entry_seq = 99 WHERE entry_seq = 4")),
    "settled without a post": ("states_and_entries", (
        "DELETE FROM ledger_leg WHERE entry_seq = (SELECT seq FROM ledger_entry WHERE kind = 'post')", "DELETE FROM ledger_entry WHERE kind = 'post'")),
    "settled by another transaction": ("states_and_entries", (f"UPDATE payment_intent SET tx_hash = '\\x01' WHERE id = {SETTLED}",)),
    "failed with an open hold": ("states_and_entries", ("DELETE FROM ledger_entry WHERE kind = 'void'",)),
    "settling without a hold": ("states_and_entries", (f"UPDATE ledger_entry SET ref = '\\x07' WHERE ref = (SELECT ref FROM payment_intent WHERE id = {HELD})",)),
    "a hold of another amount": ("states_and_entries", (
        f"UPDATE ledger_leg SET amount = amount * 2 WHERE entry_seq = (SELECT seq FROM ledger_entry WHERE ref = (SELECT ref FROM payment_intent WHERE id = {HELD}))",)),
    "a hold for another merchant": ("states_and_entries", (
        f"UPDATE ledger_leg SET account = 'merchant:x' WHERE ord = 2 AND entry_seq = (SELECT seq FROM ledger_entry WHERE ref = (SELECT ref FROM payment_intent WHERE id = {HELD}))",)),
    "a post of another amount": ("states_and_entries", (
        "UPDATE ledger_leg SET amount = amount * 2 WHERE entry_seq = (SELECT seq FROM ledger_entry WHERE kind = 'post')",)),
    "an entry that cannot be read": ("chain", ("UPDATE ledger_entry SET at = 'infinity' WHERE seq = 2",)),
    "an entry before the first": ("chain", (
        "UPDATE ledger_entry SET seq = 0 WHERE seq = (SELECT max(seq) FROM ledger_entry)",
        "UPDATE ledger_leg SET entry_seq = 0 WHERE entry_seq > (SELECT max(seq) FROM ledger_entry)")),
    "a transition is missing": ("versions", (f"DELETE FROM intent_transition WHERE intent_id = {SETTLED} AND version = 2",)),
    "a version too many": ("versions", (f"UPDATE payment_intent SET version = version + 1 WHERE id = {SETTLED}",)),
    "a step that the table does not know": ("versions", (f"UPDATE intent_transition SET actor = 'api' WHERE intent_id = {SETTLED} AND version = 5",)),
    "a state that history does not lead to": ("versions", (f"UPDATE payment_intent SET state = 'confirming', tx_hash = '\\x01' WHERE id = {HELD}",)),
    "a step from elsewhere": ("versions", (f"UPDATE intent_transition SET from_state = 'created' WHERE intent_id = {SETTLED} AND version = 4",)),
    "terms that were changed": ("refs", (f"UPDATE payment_intent SET merchant = 'x' WHERE id = {SETTLED}",)),
    "a foreign ref": ("refs", ("UPDATE payment_intent SET ref = '\\x09' WHERE state = 'created' AND authorization IS NULL AND id = (SELECT min(id) FROM payment_intent)".replace("authorization IS", '"authorization" IS'),)),
    "signed before it was held": ("held_before_sent", ("INSERT INTO nonce_slot (signer_id, nonce, kind, subject_id, state, opened_epoch) SELECT 9, 9, 4, id, 'dead', 1 FROM payment_intent WHERE state = 'authorized'",)),
    "two live nonces": ("one_live_nonce", (
        "DROP INDEX nonce_slot_one_live", f"INSERT INTO nonce_slot (signer_id, nonce, kind, subject_id, state, opened_epoch) SELECT 9, 9, 4, {HELD}, 'live', 1")),
    "a gap in the nonces": ("nonces_dense", ("DELETE FROM nonce_slot WHERE nonce = 6",)),
    "a nonce that is given out again": ("nonces_dense", ("UPDATE signer SET next_nonce = 7",)),
    "a nonce that nobody has": ("nonces_dense", ("UPDATE signer SET next_nonce = 12",)),
    "a bill of an ended payment": ("bills_follow_payments", ("UPDATE usage_billed SET reference = (SELECT public_id FROM payment_intent WHERE state = 'failed')",)),
}  # fmt: skip


def test_each_violation_is_named(world: Conn, subtests: pytest.Subtests) -> None:
    for what, (name, statements) in BROKEN.items():
        with subtests.test(what), world.transaction(force_rollback=True):
            world.execute("SET LOCAL session_replication_role = replica; " + "; ".join(statements))
            found = [one for look in looks(world, list(INVARIANTS), 2) for one in invariants.check(world, *look)]
            assert name in {one.name for one in found}, found


def test_every_invariant_has_its_violation() -> None:
    assert {name for name, _ in BROKEN.values()} == {one.name for one in INVARIANTS}
    assert {one.number for one in INVARIANTS} == set(range(1, 13))


def test_who_is_named(world: Conn) -> None:
    row = world.execute("SELECT public_id FROM payment_intent WHERE state = 'settled'").fetchone()
    assert row is not None
    tamper(world, f"UPDATE payment_intent SET merchant = 'x' WHERE id = {SETTLED}")
    assert report("--only", "refs") == {"refs": [row[0]]}
    tamper(world, "UPDATE ledger_balance SET posted = posted + 1 WHERE account LIKE 'payer%'")
    assert report("--only", "balances_fold") == {"balances_fold": [f"payer:{PAYER} {USDC}"]}
    assert MERCHANT


def test_long_terms_have_the_same_ref_in_the_database(conn: Conn) -> None:
    """A text of 128 bytes or more has a length of two bytes in front."""
    from tests.payments.terms import TERMS

    account = add_account(conn)
    for size in (100, 127, 128, 129, 300, 16_383):
        add_intent(conn, account, terms=TERMS._replace(merchant="ä" * (size // 2) + "x" * (size % 2), amount=size))
    assert report("--only", "refs") == {}


def test_the_duty_names_counts_and_publishes(
    world: Conn, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(books, "_published", {})
    context: Any = SimpleNamespace(conn=world, stopping=lambda: False)
    lease: Any = None
    with caplog.at_level(logging.INFO, "relayer.books"):
        assert books.run(context, lease) == 0
        books.run(context, lease)
    head = ledger.head(world)
    said = [(record.action, record.seq, record.hash) for record in caplog.records if hasattr(record, "hash")]
    assert said == [("ledger_head", head.seq, head.hash.hex())]  # once, not at each run
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    counted = metrics.invariant_violations.labels("refs")._value.get()
    tamper(world, f"UPDATE payment_intent SET merchant = 'x' WHERE id = {SETTLED}")
    books.run(context, lease)
    assert metrics.invariant_violations.labels("refs")._value.get() == counted + 1
    assert "invariant violated" in caplog.text


def test_windows_come_round() -> None:
    width = books.WINDOW
    first, last = 7, 7 + 2 * width + 5
    seen = [books.window(turn, first, last) for turn in range(4)]
    assert seen == [(7, 7 + width), (7 + width, 7 + 2 * width), (7 + 2 * width, last), (7, 7 + width)]
    assert books.window(7, 3, 10) == (3, 10)
    assert books.window(7, 0, 0) == (0, 0)


def test_windows_begin_with_the_first_payment_that_is_left(world: Conn) -> None:
    """Retention takes old payments away; ids that nobody has any more are not looked at."""
    first, last = invariants.spans(world)[Over.INTENTS]
    row = world.execute("SELECT min(id) - 1, max(id) FROM payment_intent").fetchone()
    assert row == (first, last)


def test_looks_are_short_and_the_limit_is_lifted_again(conn: Conn) -> None:
    with pytest.raises(psycopg.errors.QueryCanceled), invariants.patience(conn, 0.05):
        conn.execute("SELECT pg_sleep(5)")
    assert conn.execute("SHOW statement_timeout").fetchone() == ("10s",)


def test_a_slow_look_is_left_out(
    world: Conn, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*_: object) -> list[Any]:
        raise psycopg.errors.QueryCanceled

    monkeypatch.setattr(invariants, "check", slow)
    context: Any = SimpleNamespace(conn=world, stopping=lambda: False)
    act: Callable[..., int] = books.run
    assert act(context, None) == 0
    assert caplog.text.count("invariant not judged") == len(INVARIANTS)
