"""Payments follow the log, in whatever order the chain's words and the sender's come."""

from __future__ import annotations

import os
import threading
from typing import Any

import psycopg
import pytest

from requests_app.models.reviews import ReasonCode
from requests_app.states import IntentActor, IntentState
from requests_app.store import consumers, envelopes, intents
from requests_app.store.ledger import balances
from requests_app.store.session import connect
from requests_app.transitions import observing
from requests_app.transitions.intents import Change, authorize, cancel, move
from tests.listen.world import SOURCE
from tests.payments import shown
from tests.payments.shown import AMOUNT, STRANGER, TO, case, entries, observed, record, show, stands, used, way
from tests.payments.terms import add_intent, authorization
from tests.waiting import wait_until

S, A = IntentState, IntentActor
Connection = psycopg.Connection[Any]
OTHER = b"\xee" * 32


def test_the_log_brings_a_payment_to_confirming(log: Connection) -> None:
    """TX2 was lost: the log alone knows that the transaction is on chain."""
    ((one, tx_hash),) = shown.settling(log)
    show(log, 1, 3, used(one, (3, 4), tx_hash))
    assert stands(log, one) == (S.CONFIRMING, 4, tx_hash)
    assert way(log, one)[-1] == ("confirming", "listener")
    assert log.execute("SELECT state, block_number, receipt_status FROM tx_attempt").fetchall() == [("mined", 3, 1)]
    assert log.execute("SELECT state, winner_hash FROM nonce_slot").fetchall() == [("mined", tx_hash)]
    assert log.execute("SELECT count(*) FROM gateway_ref").fetchone() == (0,)
    row = log.execute("SELECT position, payee, amount, canceled, tx_hash FROM payment_observation").fetchone()
    assert row == (3 << 20 | 4, TO, AMOUNT, False, tx_hash)


def test_nobody_pays_for_the_events_of_a_payment(log: Connection) -> None:
    """Design 5.4.6: the payer of an envelope is set on request events only; usage grows by nothing."""
    ((one, tx_hash),) = shown.settling(log)
    show(log, 1, 1, used(one, (1, 0), tx_hash))
    rows = log.execute("SELECT kind, ref, payer FROM envelope_meta ORDER BY position").fetchall()
    assert rows == [(9, one.ref, None), (11, one.ref, None)]
    assert log.execute("SELECT count(*) FROM usage_unsettled").fetchone() == (0,)


def test_everything_twice_backwards_and_in_pages_of_one(log: Connection) -> None:
    """The pair may be read in two pages, and any number of times: it is one observation, and one transition."""
    ((one, tx_hash),) = shown.settling(log)
    page = used(one, (1, 0), tx_hash)
    record(log, 1, 1, page)
    work = shown.applier(page=1)
    work.catch_up(log)
    before = stands(log, one)
    assert before == (S.CONFIRMING, 4, tx_hash)
    for again in (page, page[::-1], page[:1], page[1:]):
        shown.applier().apply_now(log, again)
    assert stands(log, one) == before
    assert observed(log) == [(1, TO)]


def test_money_alone_waits_for_its_authorization(log: Connection) -> None:
    """Half a pair decides nothing: used, but the transfer is not read yet."""
    ((one, tx_hash),) = shown.settling(log)
    authorization_used, transfer = used(one, (1, 0), tx_hash)
    record(log, 1, 1, [authorization_used, transfer])
    shown.applier().apply_now(log, [authorization_used])
    assert (stands(log, one)[0], observed(log)) == (S.SETTLING, [(1, None)])
    shown.applier().apply_now(log, [transfer])
    assert (stands(log, one)[0], observed(log)) == (S.CONFIRMING, [(1, TO)])


def test_a_confirming_payment_stays_as_it_is(log: Connection) -> None:
    ((one, tx_hash),) = shown.confirming(log)
    show(log, 1, 1, used(one, (1, 0), tx_hash))
    assert stands(log, one) == (S.CONFIRMING, 4, tx_hash)


def test_somebody_else_executes_what_nobody_here_has_signed_yet(log: Connection) -> None:
    """The payer's authorization is public once it is out: whoever executes it, the merchant has the money. Held before it confirms."""
    (one,) = shown.authorized(log)
    show(log, 1, 1, used(one, (1, 0), OTHER))
    assert stands(log, one) == (S.CONFIRMING, 4, OTHER)
    assert way(log, one)[2:] == [("settling", "relayer"), ("confirming", "listener")]
    assert entries(log, one) == ["hold"]
    assert {(one.account, one.pending) for one in balances(log)} == {
        (f"payer:{one.payer}", -AMOUNT),
        (f"merchant:{one.merchant}", AMOUNT),
    }


def test_b50_a_third_party_executes_first_and_our_transaction_reverts(log: Connection) -> None:
    """B50 (EIP-3010): AuthorizationUsed with the right amount and payee is the payment's success although our own transaction reverted.

    Its state has both hashes in its history; the slot stays the sender's, who sees the revert there.
    """
    ((one, ours),) = shown.confirming(log)
    show(log, 1, 2, used(one, (2, 0), OTHER))
    assert stands(log, one) == (S.CONFIRMING, 6, OTHER)
    history = [(row.to_state.value, row.tx_hash, row.reason) for row in intents.history(log, one.id)][3:]
    assert history == [
        ("confirming", ours, None), ("settling", None, observing.ANOTHER), ("confirming", OTHER, observing.SHOWN),
    ]  # fmt: skip
    assert log.execute("SELECT state FROM nonce_slot").fetchall() == [("live",)]
    assert entries(log, one) == ["hold"]


@pytest.mark.parametrize("reason", list(ReasonCode))
def test_the_log_decides_a_review_of_what_was_only_unproven(log: Connection, reason: ReasonCode) -> None:
    ((one, tx_hash),) = shown.settling(log)
    with log.transaction():
        move(log, S.NEEDS_REVIEW, [Change.of(one, reason="stuck")], A.RELAYER, review=reason)
    show(log, 1, 1, used(one, (1, 0), tx_hash))
    if reason in observing.UNPROVEN:
        assert stands(log, one) == (S.CONFIRMING, 5, tx_hash)
        assert case(log, one) is None
    else:
        assert stands(log, one)[0] is S.NEEDS_REVIEW
        assert case(log, one)[0] == reason.value


@pytest.mark.parametrize("end", [S.FAILED, S.CANCELED])
def test_final_payments_never_change(log: Connection, end: IntentState) -> None:
    """I4: what the chain shows afterwards is kept, and found by reconciliation."""
    if end is S.CANCELED:
        (one,) = shown.authorized(log)
        cancel(log, one.public_id, "no longer wanted", account_id=one.account_id)
    else:
        ((one, _),) = shown.settling(log)
        with log.transaction():
            move(log, S.FAILED, [Change.of(one, reason="proven")], A.RELAYER)
    before = stands(log, one)
    show(log, 1, 1, used(one, (1, 0), OTHER))
    assert stands(log, one) == before
    assert observed(log) == [(1, TO)]


@pytest.mark.parametrize(
    "odd",
    [
        {"authorizer": STRANGER},  # anybody may use our ref as a nonce of their own
        {"payee": STRANGER},
        {"amount": AMOUNT - 1},
        {"payee": None},
    ],
)
def test_what_is_not_exact_moves_nothing_yet(log: Connection, odd: dict[str, Any]) -> None:
    """A negative verdict waits until its block is final (B47): the confirm duty gives it."""
    ((one, tx_hash),) = shown.settling(log)
    show(log, 1, 1, used(one, (1, 0), OTHER, **odd))
    assert stands(log, one) == (S.SETTLING, 3, None)
    assert case(log, one) is None
    show(log, 2, 2, used(one, (2, 0), tx_hash))
    assert stands(log, one)[0] is S.CONFIRMING


def test_foreign_authorizations_leave_nothing_but_their_envelopes(log: Connection) -> None:
    (one,) = shown.authorized(log)
    foreign = one._replace(ref=os.urandom(32))
    show(log, 1, 1, used(foreign, (1, 0), OTHER))
    assert observed(log) == []
    ((_, tx_hash),) = shown.settling(log)
    show(log, 2, 2, used(foreign, (2, 0), tx_hash))
    assert observed(log) == [(2, TO)]  # a signer of ours carried it: reconciliation must see it


def test_a_cancellation_is_kept_and_moves_nothing(log: Connection) -> None:
    (one,) = shown.authorized(log)
    show(log, 1, 1, [shown.canceled(one, (1, 0), OTHER)])
    assert stands(log, one)[0] is S.AUTHORIZED
    assert log.execute("SELECT canceled FROM payment_observation").fetchall() == [(True,)]


def test_a_token_that_is_not_configured_is_parked_and_hides_nothing(log: Connection) -> None:
    ((one, tx_hash),) = shown.settling(log)
    page = [*used(one, (1, 0), OTHER, token=STRANGER), *used(one, (1, 5), tx_hash)]
    show(log, 1, 1, page)
    assert stands(log, one) == (S.CONFIRMING, 4, tx_hash)
    assert log.execute("SELECT error_class FROM dead_envelope").fetchall() == [("WrongContract",)] * 2


def test_a_payment_of_another_chain_is_another_payment(log: Connection) -> None:
    ((one, tx_hash),) = shown.settling(log, chain="evm:1")
    show(log, 1, 1, used(one, (1, 0), tx_hash))
    assert stands(log, one)[0] is S.SETTLING


# Races: the observation and the change of the row, in both orders, each waiting for the other.


@pytest.fixture
def pair(log: Connection) -> Any:
    with connect("worker", name="first") as first, connect("worker", name="second") as second:
        yield first, second


def behind(log: Connection, first: Connection, second: Connection, ahead: Any, late: Any) -> None:
    """Run `ahead` on `first` in an open transaction, start `late` on `second` so that it waits for it, then commit."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            late()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    with first.transaction():
        ahead()
        thread.start()
        blocked = "SELECT cardinality(pg_blocking_pids(%s)) > 0"
        wait_until(lambda: log.execute(blocked, (second.info.backend_pid,)).fetchone()[0], 60, "the second one to wait")
    thread.join(timeout=60)
    assert failures == []


def apply(conn: Connection) -> None:
    """Apply what is recorded, as the applier does: one transaction."""
    shown.applier().catch_up(conn)


def apply_within(conn: Connection) -> None:
    """The same inside a transaction that stays open."""
    standing = consumers.read_consumer(conn, SOURCE)
    upto = envelopes.last_position(standing.sealed)
    found = consumers.read_page(conn, SOURCE, standing.position, upto, 100)
    consumers.move_consumer(conn, SOURCE, standing.position, upto)
    decoded, _ = shown.applier()._reader.decode(found)
    observing.observe(conn, SOURCE, shown.applier()._reader.facts(decoded))


def tx1(conn: Connection, one: Any) -> Any:
    with conn.transaction():
        return move(conn, S.SETTLING, [Change.of(one)], A.RELAYER)


def tx2(conn: Connection, one: Any, tx_hash: bytes) -> Any:
    with conn.transaction():
        return move(conn, S.CONFIRMING, [Change.of(one, tx_hash=tx_hash)], A.RELAYER)


@pytest.mark.parametrize("log_first", [True, False])
def test_tx1_and_the_log_at_the_same_moment(log: Connection, pair: Any, log_first: bool) -> None:
    """Somebody executes the authorization while we sign: one of the two sees the other, whoever commits first."""
    (one,) = shown.authorized(log)
    record(log, 1, 1, used(one, (1, 0), OTHER))
    first, second = pair
    if log_first:
        behind(log, first, second, lambda: apply_within(first), lambda: tx1(second, one))
    else:
        behind(log, first, second, lambda: tx1(first, one), lambda: apply(second))
    assert stands(log, one) == (S.CONFIRMING, 4, OTHER)
    assert [row[0] for row in way(log, one)] == ["created", "authorized", "settling", "confirming"]


@pytest.mark.parametrize("log_first", [True, False])
@pytest.mark.parametrize("mine", [True, False])
def test_tx2_and_the_log_at_the_same_moment(log: Connection, pair: Any, log_first: bool, mine: bool) -> None:
    """The node's answer and the log bring the same row to confirming: once, with the hash that the log shows."""
    ((one, ours),) = shown.settling(log)
    seen = ours if mine else OTHER
    record(log, 1, 1, used(one, (1, 0), seen))
    first, second = pair
    if log_first:
        behind(log, first, second, lambda: apply_within(first), lambda: tx2(second, one, ours))
    else:
        behind(log, first, second, lambda: tx2(first, one, ours), lambda: apply(second))
    assert stands(log, one) == (S.CONFIRMING, 4 if mine or log_first else 6, seen)


@pytest.mark.parametrize("log_first", [True, False])
def test_an_authorization_that_comes_after_its_execution_is_looked_at_again(
    log: Connection, pair: Any, log_first: bool
) -> None:
    """The payer executed it alone while the intent was still `created`: whoever authorizes it looks behind the row's lock."""
    owner = shown.account(log)
    one = add_intent(log, owner, terms=shown.TERMS_HERE)
    record(log, 1, 1, used(one, (1, 0), OTHER))
    first, second = pair

    def authorized_here(conn: Connection) -> None:
        with conn.transaction():
            done = authorize(conn, owner, one.public_id, authorization(one))
            observing.look_again(conn, SOURCE, [done.intent.id])

    if log_first:
        behind(log, first, second, lambda: apply_within(first), lambda: authorized_here(second))
    else:
        behind(log, first, second, lambda: authorized_here(first), lambda: apply(second))
    assert stands(log, one) == (S.CONFIRMING, 4, OTHER)
