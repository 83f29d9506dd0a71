"""No payment waits for ever: what is in no block long after it was signed goes to a person, with what the chain says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from requests_app.finality import Chain
from requests_app.models.reviews import ReasonCode
from requests_app.states import IntentActor, IntentState
from requests_app.transitions.intents import Change, move
from tests.listen.stub_chain import NO_ANSWER, StubChain
from tests.payments import shown
from tests.payments.shown import Context, case, entries, show, stands, used
from workers.duties import confirm

S, A = IntentState, IntentActor
Connection = psycopg.Connection[Any]


@pytest.fixture
def chain() -> StubChain:
    made = StubChain()
    made.head = 200
    return made


@pytest.fixture
def context(log: Connection, chain: StubChain, settings: Any) -> Iterator[Context]:
    with shown.chain_behind(log, chain, settings) as found:
        yield found


def run(context: Context) -> int:
    return confirm.Confirmation().look(context, shown.DUTY, Chain(200, 198), 200)  # type: ignore[arg-type]


def long_ago(conn: Connection, minutes: int = 31) -> None:
    """Everything happened so many minutes earlier."""
    conn.execute("ALTER TABLE payment_intent DISABLE TRIGGER USER; ALTER TABLE intent_transition DISABLE TRIGGER USER")
    conn.execute("UPDATE payment_intent SET created_at = created_at - make_interval(mins => %s)", (minutes,))
    conn.execute("UPDATE payment_intent SET updated_at = updated_at - make_interval(mins => %s)", (minutes,))
    conn.execute("UPDATE intent_transition SET at = at - make_interval(mins => %s)", (minutes,))
    conn.execute("ALTER TABLE payment_intent ENABLE TRIGGER USER; ALTER TABLE intent_transition ENABLE TRIGGER USER")


@pytest.mark.parametrize("start", ["settling", "confirming"])
def test_signed_long_ago_and_in_no_block(log: Connection, context: Context, start: str) -> None:
    ((one, tx_hash),) = getattr(shown, start)(log)
    long_ago(log, 31)
    assert run(context) == 1
    assert stands(log, one)[0] is S.NEEDS_REVIEW
    assert case(log, one)[0] == "outcome_unknown"
    assert [found["tx_hash"] for found in case(log, one)[1]["attempts"]] == [f"0x{tx_hash.hex()}"]
    assert (shown.now(log, one).state_reason or "").startswith(f"{start} for 31m")
    assert entries(log, one) == ["hold"]
    assert run(context) == 0


def test_until_then_it_is_sent_again(log: Connection, context: Context) -> None:
    """Half an hour is not over: what waits for the log is in no block, and goes out again; what is settling goes on."""
    ((lost, _),), ((waiting, _),) = shown.confirming(log), shown.settling(log)
    long_ago(log, 29)
    assert run(context) == 1
    assert [stands(log, one)[0] for one in (lost, waiting)] == [S.SETTLING, S.SETTLING]


def test_going_to_and_fro_is_no_way_out(log: Connection, context: Context) -> None:
    """Lost and sent again every five minutes: the time is counted from the signature."""
    ((one, _),) = shown.confirming(log)
    long_ago(log)
    with log.transaction():
        move(log, S.SETTLING, [Change.of(one, reason="not in any block for 5m0s")], A.LISTENER)
    assert run(context) == 1
    assert stands(log, one)[0] is S.NEEDS_REVIEW


def test_whom_a_person_sent_on_is_given_the_time_again(log: Connection, context: Context) -> None:
    ((one, _),) = shown.settling(log)
    with log.transaction():
        (held,) = move(log, S.NEEDS_REVIEW, [Change.of(one, reason="?")], A.RELAYER, review=ReasonCode.OUTCOME_UNKNOWN)
    long_ago(log)
    with log.transaction():
        move(log, S.SETTLING, [Change.of(held.intent, reason="again")], A.OPERATOR)
    assert run(context) == 0
    assert stands(log, one)[0] is S.SETTLING


def test_a_window_that_is_closed_on_the_finalized_chain_has_its_own_words(
    log: Connection, chain: StubChain, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    ((one, _),) = shown.settling(log)
    long_ago(log)
    header = chain.eth_getBlockByNumber
    monkeypatch.setattr(chain, "eth_getBlockByNumber", lambda *a: {**header(*a), "timestamp": hex(4_000_000_000)})
    assert run(context) == 1
    assert case(log, one)[0] == "authorization_window_closed"


def test_a_chain_without_a_marker_has_final_blocks_too(
    log: Connection, chain: StubChain, context: Context, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked for the finalized block its node only has an error: such a payment never came to a person."""
    settings.PAYMENT_REQUIRE_FINALIZED, settings.PAYMENT_CONFIRMATIONS = False, 2
    ((one, _),) = shown.settling(log)
    long_ago(log)
    header = chain.eth_getBlockByNumber

    monkeypatch.setattr(
        chain, "eth_getBlockByNumber", lambda tag, full: None if tag == "finalized" else header(tag, full)
    )
    confirm.Confirmation().look(context, shown.DUTY, Chain(200, None), 200)  # type: ignore[arg-type]
    assert stands(log, one)[0] is S.NEEDS_REVIEW


def test_what_the_chain_knows_after_all_is_applied(log: Connection, chain: StubChain, context: Context) -> None:
    ((one, tx_hash),) = shown.settling(log)
    show(log, 1, 100, [])
    long_ago(log)
    chain.mine(tx_hash, *used(one, (50, 0), tx_hash))
    assert run(context) == 0
    assert stands(log, one)[::2] == (S.CONFIRMING, tx_hash)


@pytest.mark.parametrize("fault", ["eth_getTransactionReceipt", "eth_getBlockByNumber"])
def test_without_an_answer_nothing_is_judged(log: Connection, chain: StubChain, context: Context, fault: str) -> None:
    ((one, _),) = shown.settling(log)
    long_ago(log)
    chain.faults[fault] = NO_ANSWER
    assert run(context) == 0
    assert stands(log, one)[0] is S.SETTLING


def test_a_revert_is_left_to_its_judge(log: Connection, chain: StubChain, context: Context) -> None:
    ((one, tx_hash),) = shown.settling(log)
    long_ago(log)
    chain.mine(tx_hash, status=0)
    assert run(context) == 0
    assert stands(log, one)[0] is S.SETTLING
