"""The chain against the books, over final windows: each finding once, its case once, and nothing else decided."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from requests_app.errors import StaleEpoch
from requests_app.finality import Chain
from requests_app.models.payments import FindingKind
from requests_app.models.reviews import ReasonCode
from requests_app.states import IntentActor, IntentState
from requests_app.store import recon as store
from requests_app.store.conflicts import Conflict
from requests_app.store.signing import Fence
from requests_app.transitions import observing
from requests_app.transitions.intents import Change, authorize, cancel, move
from requests_app.transitions.reconciling import reconcile
from tests.listen.stub_chain import NO_ANSWER, StubChain
from tests.listen.world import SOURCE
from tests.payments import shown
from tests.payments.shown import AMOUNT, DUTY, STRANGER, Context, case, record, show, stands, used
from tests.payments.terms import add_intent, authorization
from workers.duties import confirm
from workers.duties.recon import Reconciliation

S, A = IntentState, IntentActor
Connection = psycopg.Connection[Any]
OTHER, THIRD = b"\xee" * 32, b"\xcc" * 32


@pytest.fixture
def chain() -> StubChain:
    made = StubChain()
    made.head = 200
    return made


@pytest.fixture
def context(log: Connection, chain: StubChain, settings: Any) -> Iterator[Context]:
    with shown.chain_behind(log, chain, settings) as found:
        yield found


def window(conn: Connection, lo: int = 1, hi: int = 100) -> Any:
    store.open_cursor(conn, SOURCE)
    return reconcile(conn, SOURCE, DUTY, lo, hi)


def findings(conn: Connection) -> list[tuple[str, int]]:
    return [
        (row[0], row[1] >> 20)
        for row in conn.execute("SELECT kind, position FROM recon_finding ORDER BY position, kind")
    ]


def settled(conn: Connection, context: Context, at: int = 50) -> Any:
    """A payment that went its whole way."""
    ((one, tx_hash),) = shown.confirming(conn)
    show(conn, 1, 100, used(one, (at, 0), tx_hash))
    assert confirm.Confirmation().look(context, DUTY, Chain(200, 100), 100) == 1  # type: ignore[arg-type]
    return one, tx_hash


def test_books_that_agree_give_nothing(log: Connection, context: Context) -> None:
    settled(log, context)
    ((waiting, tx_hash),) = shown.confirming(log)
    record(log, 101, 101, used(waiting, (101, 0), tx_hash))
    shown.applier().catch_up(log)
    done = window(log, 1, 101)
    assert (done.findings, done.cases, done.filled) == ([], 0, 0)
    assert store.open_cursor(log, SOURCE) == 101


def test_paid_twice(log: Connection, context: Context) -> None:
    """A token that accepts a nonce twice: the books keep the transaction on record, the second one is a person's."""
    one, _ = settled(log, context)
    show(log, 101, 101, used(one, (101, 0), OTHER))
    before = stands(log, one)
    (found,) = window(log, 1, 101).findings
    assert (found.kind, found.position >> 20, found.intent_id) == (FindingKind.PAID_TWICE, 101, one.id)
    assert case(log, one)[0] == "paid_twice"
    assert case(log, one)[1]["amount"] == str(AMOUNT)
    assert stands(log, one) == before


def test_paid_before_the_transaction_on_record_is_paid_twice_too(log: Connection, context: Context) -> None:
    one, _ = settled(log, context, at=60)
    shown.applier().apply_now(log, [])
    record_below(log, used(one, (40, 0), OTHER))
    assert [found.position >> 20 for found in window(log).findings] == [40]
    assert case(log, one)[0] == "paid_twice"


def record_below(conn: Connection, found: list[Any]) -> None:
    """Events that a node had withheld when their block was sealed."""
    from requests_app.store import envelopes
    from workers.chain.events import REQUEST_KINDS

    envelopes.insert_below_seal(conn, SOURCE, found, request_kinds=REQUEST_KINDS)
    shown.applier().apply_now(conn, found)


@pytest.mark.parametrize("state", ["created", "canceled", "failed"])
def test_money_that_the_books_do_not_expect(log: Connection, state: str) -> None:
    owner = shown.account(log)
    if state == "created":
        one = add_intent(log, owner, terms=shown.TERMS_HERE)
    elif state == "canceled":
        one = cancel(log, shown.authorized(log)[0].public_id, "no", account_id=owner)
    else:
        ((one, _),) = shown.settling(log)
        with log.transaction():
            ((one, _, _),) = move(log, S.FAILED, [Change.of(one, reason="proven")], A.RELAYER)
    show(log, 1, 100, used(one, (50, 0), OTHER))
    assert [found.kind for found in window(log).findings] == [FindingKind.UNEXPECTED]
    assert case(log, one)[0] == "unexpected_payment"
    assert case(log, one)[1]["state"] == state
    assert stands(log, one)[0] == state


@pytest.mark.parametrize("by_that_transaction", [True, False])
def test_the_case_of_a_payment_that_was_paid_before_it_was_authorized_closes_when_it_settles_by_that(
    log: Connection, by_that_transaction: bool
) -> None:
    """Somebody executed the authorization while the client's own POST of it was on its way (found by make chaos-payments)."""
    one = add_intent(log, shown.account(log), terms=shown.TERMS_HERE)
    show(log, 1, 100, used(one, (50, 0), OTHER))
    assert [found.kind for found in window(log).findings] == [FindingKind.UNEXPECTED]
    authorize(log, shown.account(log), one.public_id, authorization(one))
    with log.transaction():
        for state, tx_hash in (
            (S.SETTLING, None),
            (S.CONFIRMING, OTHER if by_that_transaction else THIRD),
            (S.SETTLED, OTHER if by_that_transaction else THIRD),
        ):
            assert case(log, one) is not None
            actor = A.LISTENER if state is S.SETTLED else A.RELAYER
            move(log, state, [Change.of(shown.now(log, one), tx_hash=tx_hash)], actor)
    assert (case(log, one) is None) is by_that_transaction


@pytest.mark.parametrize(
    ("odd", "reason"),
    [({"amount": 1}, "amount_mismatch"), ({"payee": STRANGER}, "wrong_party"), ({"payee": None}, "amount_mismatch")],
)
def test_mismatches(log: Connection, odd: dict[str, Any], reason: str) -> None:
    ((one, tx_hash),) = shown.settling(log)
    show(log, 1, 100, used(one, (50, 0), tx_hash, **odd))
    assert [found.kind for found in window(log).findings] == [FindingKind.MISMATCH]
    assert case(log, one)[0] == reason
    assert stands(log, one)[0] is S.SETTLING, "reconciliation never says how a payment ends"


def test_another_token_of_the_same_payer_is_a_mismatch(log: Connection) -> None:
    """The payer spent the ref in another configured token: our authorization stands, and a person hears of it."""
    second = b"\x77" * 20
    ((one, _),) = shown.settling(log)
    record(log, 1, 100, used(one, (50, 0), OTHER, token=second))
    contracts = shown.CONTRACTS
    both = type(contracts)(contracts.decryption, contracts.input_verification, contracts.tokens | {second})
    shown.applier(contracts=both).catch_up(log)
    assert [found.kind for found in window(log).findings] == [FindingKind.MISMATCH]
    assert case(log, one)[1]["token"] == f"0x{second.hex()}"


def test_a_strangers_nonce_is_no_finding(log: Connection) -> None:
    ((one, _),) = shown.settling(log)
    show(log, 1, 100, used(one, (50, 0), OTHER, authorizer=STRANGER))
    assert window(log).findings == []


def test_a_ref_that_no_payment_has_in_a_transaction_of_ours(log: Connection) -> None:
    """One of our signers carried it: the case is that of the payment whose nonce it was."""
    ((one, tx_hash),) = shown.settling(log)
    show(log, 1, 100, used(one._replace(ref=os.urandom(32)), (50, 0), tx_hash))
    assert [found.kind for found in window(log).findings] == [FindingKind.UNKNOWN_REF]
    assert case(log, one)[0] == "unexpected_payment"


def test_settled_by_hand_with_a_transaction_that_the_log_does_not_show(log: Connection) -> None:
    ((one, _),) = shown.settling(log)
    with log.transaction():
        (held,) = move(log, S.NEEDS_REVIEW, [Change.of(one, reason="?")], A.RELAYER, review=ReasonCode.OUTCOME_UNKNOWN)
        move(
            log, S.SETTLED, [Change.of(held.intent, tx_hash=THIRD, reason="seen elsewhere", by_user="ann")], A.OPERATOR
        )
    show(log, 1, 100, [])
    (found,) = window(log, 1, 50).findings
    assert (found.kind, found.position) == (FindingKind.UNREFERENCED, -one.id)
    assert case(log, one)[0] == "receipt_vanished"
    assert window(log, 51, 100).findings == []


def test_a_window_again_finds_nothing_new(log: Connection, context: Context) -> None:
    """Replay is a no-op: also after the case was closed, and with the cursor set back by hand."""
    one, _ = settled(log, context)
    show(log, 101, 101, used(one, (101, 0), OTHER))
    assert len(window(log, 1, 101).findings) == 1
    assert window(log, 1, 101) is None
    log.execute("UPDATE review_case SET status = 'closed', closed_at = clock_timestamp()")
    log.execute("UPDATE recon_cursor SET block = 0")
    again = window(log, 1, 101)
    assert (again.findings, again.cases) == ([], 0)
    assert case(log, one) is None
    assert findings(log) == [("paid_twice", 101)]


def test_cursor_and_findings_move_together(log: Connection, context: Context) -> None:
    one, _ = settled(log, context)
    show(log, 101, 101, used(one, (101, 0), OTHER))
    store.open_cursor(log, SOURCE)
    with pytest.raises(StaleEpoch):
        reconcile(log, SOURCE, Fence("singleton:duty", "test", 6), 1, 101)
    assert (store.open_cursor(log, SOURCE), findings(log)) == (0, [])


def test_it_fills_in_a_hash_and_nothing_more(log: Connection) -> None:
    ((one, tx_hash),) = shown.settling(log)
    show(log, 1, 100, used(one, (50, 0), tx_hash))
    confirmed = shown.now(log, one)
    with log.transaction():
        move(log, S.SETTLING, [Change.of(confirmed, reason="lost sight of it")], A.LISTENER)
    assert window(log).filled == 1
    assert stands(log, one)[0] is S.CONFIRMING


def test_the_duty_goes_by_windows_that_the_node_answers_for(
    log: Connection, chain: StubChain, context: Context
) -> None:
    one, _ = settled(log, context)
    show(log, 101, 180, used(one, (150, 0), OTHER))
    chain.range_limit = 20
    duty = Reconciliation()
    assert duty.up_to(context, DUTY, 180) + duty.up_to(context, DUTY, 180) == 1  # type: ignore[arg-type]
    while store.open_cursor(log, SOURCE) < 180:
        assert duty.window <= 20
        duty.up_to(context, DUTY, 180)  # type: ignore[arg-type]
    assert findings(log) == [("paid_twice", 150)]


def test_what_the_log_lacks_is_stored_and_applied_first(log: Connection, chain: StubChain, context: Context) -> None:
    """The node had withheld the events: the second reading of the final window finds them."""
    ((one, tx_hash),) = shown.settling(log)
    show(log, 1, 100, [])
    chain.put(*used(one, (50, 0), tx_hash), head=200)
    assert Reconciliation().up_to(context, DUTY, 100) == 0  # type: ignore[arg-type]
    assert stands(log, one) == (S.CONFIRMING, 4, tx_hash)
    assert log.execute("SELECT count(*) FROM envelope_meta").fetchone() == (2,)


def test_a_false_event_of_the_log_is_a_conflict_with_the_final_chain(
    log: Connection, chain: StubChain, context: Context
) -> None:
    """A node had shown money that moved; the final chain shows another transfer in that place."""
    ((one, tx_hash),) = shown.settling(log)
    show(log, 1, 100, used(one, (50, 0), tx_hash))
    chain.put(*used(one, (50, 0), tx_hash, amount=AMOUNT - 1), head=200)
    with pytest.raises(Conflict):
        Reconciliation().up_to(context, DUTY, 100)  # type: ignore[arg-type]
    (reason, block) = log.execute(
        "SELECT reason_code, evidence ->> 'block' FROM review_case WHERE kind = 101 AND status = 'open'"
    ).fetchone()
    assert (reason, block) == ("envelope_conflict", "50")
    assert store.open_cursor(log, SOURCE) == 0


def test_only_final_sealed_and_applied_blocks_are_reconciled(
    log: Connection, chain: StubChain, context: Context
) -> None:
    ((one, tx_hash),) = shown.settling(log)
    record(log, 1, 100, used(one, (50, 0), tx_hash))  # recorded, not applied
    assert Reconciliation().up_to(context, DUTY, 100) == 0  # type: ignore[arg-type]
    assert store.open_cursor(log, SOURCE) == 0
    shown.applier().catch_up(log)
    chain.faults["eth_getLogs"] = NO_ANSWER
    assert Reconciliation().up_to(context, DUTY, 1) == 0  # type: ignore[arg-type]
    assert store.open_cursor(log, SOURCE) == 0
    del chain.faults["eth_getLogs"]
    chain.head = 60
    assert Reconciliation().run(context, shown.Lease()) == 0  # type: ignore[arg-type]
    assert store.open_cursor(log, SOURCE) == 60


def test_an_applier_that_is_always_behind_the_seal_does_not_stop_it(
    log: Connection, chain: StubChain, context: Context
) -> None:
    record(log, 1, 100, [])
    shown.applier().catch_up(log)
    record(log, 101, 106, [])  # sealed and final, but not applied yet, as at any moment of a fast chain
    chain.head = 106
    assert Reconciliation().run(context, shown.Lease()) == 0  # type: ignore[arg-type]
    assert store.open_cursor(log, SOURCE) == 100


def test_unreferenced_looks_back_no_further_than_the_last_window(log: Connection) -> None:
    ((one, _),) = shown.settling(log)
    with log.transaction():
        (held,) = move(log, S.NEEDS_REVIEW, [Change.of(one, reason="?")], A.RELAYER, review=ReasonCode.OUTCOME_UNKNOWN)
        move(log, S.SETTLED, [Change.of(held.intent, tx_hash=THIRD, reason="by hand")], A.OPERATOR)
    later = shown.now(log, one).updated_at + timedelta(minutes=2)
    with log.transaction():
        assert store.find_unreferenced(log, SOURCE, later) == []


def test_every_unproven_reason_has_words() -> None:
    from requests_app.admin.explain import REASONS

    assert observing.UNPROVEN < set(REASONS) == set(ReasonCode)
