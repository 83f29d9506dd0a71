"""Payments come to their end: only by what is final, exact and still the chain's, and with their books in the same transaction."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any

import psycopg
import pytest

from requests_app.errors import ConfigurationError, StaleEpoch
from requests_app.finality import Chain, Policy, in_words, judge
from requests_app.ledger import hold_of
from requests_app.models.reviews import ReasonCode
from requests_app.states import IntentActor, IntentState
from requests_app.store import intents, ledger
from requests_app.store.signing import Fence
from requests_app.transitions.intents import Change, authorize, move
from tests.listen.stub_chain import NO_ANSWER, StubChain
from tests.payments import shown
from tests.payments.journal import entries_of
from tests.payments.shown import AMOUNT, DUTY, STRANGER, Context, case, entries, show, stands, used, way
from tests.payments.terms import add_intent, authorization
from workers.duties import confirm

S, A = IntentState, IntentActor
Connection = psycopg.Connection[Any]
OTHER = b"\xee" * 32
GOLDEN = Path(__file__).parent / "golden" / "finality.md"
FINAL = Chain(head=164, finalized=100)


@pytest.fixture
def chain() -> StubChain:
    made = StubChain()
    made.head = 164
    return made


@pytest.fixture
def context(log: Connection, chain: StubChain, settings: Any) -> Iterator[Context]:
    with shown.chain_behind(log, chain, settings) as found:
        yield found


def look(context: Context, chain: Chain = FINAL, sealed: int = 164) -> int:
    return confirm.Confirmation().look(context, DUTY, chain, sealed)  # type: ignore[arg-type]


def table() -> list[str]:
    """The verdict for every combination that a policy can tell apart."""
    policies = {
        "marker": Policy(True, 0, 300),
        "64 confirmations": Policy(False, 64, 300),
        "marker and 12": Policy(True, 12, 300),
    }
    rows = ["| policy | block | head | marker | receipt | waited | verdict |", "|---|---|---|---|---|---|---|"]
    blocks, heads, markers = (None, 100), (99, 100, 111, 112, 163, 164), (None, 99, 100)
    for (name, policy), block, head, marker in itertools.product(policies.items(), blocks, heads, markers):
        if block is None and (head, marker) != (164, 100):
            continue
        for success, waited in itertools.product((True, False), (0, 299, 300)):
            if (block is None and not success) or (block is not None and waited != 0):
                continue
            verdict = judge(
                included=block is not None, block=block, success=success, chain=Chain(head, marker), waited_seconds=waited, policy=policy
            )  # fmt: skip
            receipt = "none" if block is None else "ok" if success else "reverted"
            rows.append(f"| {name} | {block} | {head} | {marker} | {receipt} | {waited} s | {verdict} |")
    return rows


def test_the_verdicts_are_the_golden_ones() -> None:
    text = "\n".join(table()) + "\n"
    if os.environ.get("GOLDEN") == "write":
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text(), "run with GOLDEN=write when the change is meant"


def test_a_policy_that_finds_the_newest_block_final_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        Policy(require_marker=False, confirmations=0)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (30.9, "30s"), (300, "5m0s"), (330, "5m30s"), (3605, "1h0m5s")]
)
def test_durations_as_the_reference_writes_them(seconds: float, text: str) -> None:
    assert in_words(seconds) == text


def test_confirm_three_ways(log: Connection, chain: StubChain, context: Context) -> None:
    """Port of Example_confirmThreeWays (reference 4.7): included at 100, a clock and a head that the test tells."""
    clock = shown.Clock(log, datetime(2026, 1, 1, tzinfo=UTC))
    (paid, paid_hash), (lost, lost_hash), (reverted, reverted_hash) = shown.confirming(log, 3)
    chain.head = 100
    chain.mine(reverted_hash, status=0)
    show(log, 1, 100, used(paid, (100, 0), paid_hash))
    assert look(context, Chain(100, 36), 100) == 0
    assert [stands(log, one)[:2] for one in (paid, lost, reverted)] == [(S.CONFIRMING, 4)] * 3

    clock.forward(300)
    chain.head = 164
    assert look(context) == 3
    assert stands(log, paid) == (S.SETTLED, 5, paid_hash)
    assert stands(log, lost) == (S.SETTLING, 5, None)
    assert shown.now(log, lost).state_reason == "not in any block for 5m0s"
    assert stands(log, reverted) == (S.NEEDS_REVIEW, 5, reverted_hash)
    assert case(log, reverted)[0] == "reverted_final"

    before = [stands(log, one) for one in (paid, lost, reverted)]
    assert look(context) == 0
    assert [stands(log, one) for one in (paid, lost, reverted)] == before
    (merchant,) = ledger.balances(log, f"merchant:{paid.merchant}")
    assert (merchant.pending, merchant.posted) == (200_000_000, 100_000_000)
    assert lost_hash in {row[0] for row in log.execute("SELECT tx_hash FROM tx_attempt WHERE state='accepted'")}


def test_settled_with_its_post_at_the_same_moment(log: Connection, context: Context) -> None:
    ((one, tx_hash),) = shown.confirming(log)
    show(log, 1, 100, used(one, (100, 0), tx_hash))
    assert look(context) == 1
    settled = shown.now(log, one)
    assert way(log, one)[-1] == ("settled", "listener")
    post = entries_of(log, one.ref)[-1].entry
    assert (post.kind.value, post.at, post.tx_hash, post.by) == ("post", settled.updated_at, tx_hash, A.LISTENER)


def test_hundreds_in_one_transaction_a_batch(log: Connection, context: Context) -> None:
    pairs = shown.confirming(log, 300)
    page = [found for n, (one, tx_hash) in enumerate(pairs) for found in used(one, (90 + n % 5, 2 * n), tx_hash)]
    show(log, 1, 100, sorted(page, key=lambda one: one.position))
    started = monotonic()
    assert look(context) == 300
    print(f"\n300 payments settled and posted in {1000 * (monotonic() - started):.0f} ms")
    assert log.execute("SELECT state, count(*) FROM payment_intent GROUP BY 1").fetchall() == [("settled", 300)]
    assert log.execute("SELECT kind, count(*) FROM ledger_entry GROUP BY 1 ORDER BY 1").fetchall() == [
        ("hold", 300),
        ("post", 300),
    ]
    moments = log.execute("SELECT count(DISTINCT xmin::text) FROM payment_intent").fetchone()
    assert moments == (1,)


@pytest.mark.parametrize(
    ("chain_is", "sealed"),
    [(Chain(164, 99), 164), (Chain(164, None), 164), (Chain(99, 100), 164), (FINAL, 99)],
    ids=["not final", "no marker", "head below", "not sealed"],
)
def test_what_is_not_final_waits(log: Connection, context: Context, chain_is: Chain, sealed: int) -> None:
    ((one, tx_hash),) = shown.confirming(log)
    show(log, 1, 100, used(one, (100, 0), tx_hash))
    assert look(context, chain_is, sealed) == 0
    assert stands(log, one)[0] is S.CONFIRMING


def test_b48_a_block_that_is_not_the_chains_any_more_settles_nothing(
    log: Connection, chain: StubChain, context: Context
) -> None:
    """B48: the hash stored with the receipt is compared with the chain's at that height; a person hears of it when nobody mends it."""
    ((one, tx_hash),) = shown.confirming(log)
    show(log, 1, 100, used(one, (100, 0), tx_hash))
    chain.forks[100] = 1
    assert look(context) == 0
    assert stands(log, one)[0] is S.CONFIRMING
    log.execute("UPDATE payment_intent SET updated_at = clock_timestamp() - interval '1 day'")
    assert look(context) == 1
    assert stands(log, one)[0] is S.NEEDS_REVIEW
    assert case(log, one)[0] == "receipt_vanished"


def test_a_node_that_does_not_say_settles_nothing(log: Connection, chain: StubChain, context: Context) -> None:
    ((one, tx_hash),) = shown.confirming(log)
    show(log, 1, 100, used(one, (100, 0), tx_hash))
    chain.faults["eth_getBlockByNumber"] = NO_ANSWER
    assert look(context) == 0
    assert confirm.Confirmation().run(context, shown.Lease()) == 0  # type: ignore[arg-type]
    assert stands(log, one)[0] is S.CONFIRMING


MISMATCHES = [
    ({"amount": AMOUNT - 1}, "amount_mismatch", "final, but 99999999 moved instead of 100000000"),
    ({"payee": STRANGER}, "wrong_party", f"final, but 0x{STRANGER.hex()} was paid instead of"),
    ({"payee": None}, "amount_mismatch", "final, but the payer's money did not move"),
]


@pytest.mark.parametrize(("odd", "code", "text"), MISMATCHES)
@pytest.mark.parametrize("start", ["authorized", "settling", "confirming"])
def test_a_final_use_that_is_not_what_was_asked_goes_to_a_person(
    log: Connection, context: Context, start: str, odd: dict[str, Any], code: str, text: str
) -> None:
    """From wherever it stands; what moved is on record, held, and never posted."""
    tx_hash = OTHER
    if start == "authorized":
        (one,) = shown.authorized(log)
    else:
        ((one, tx_hash),) = getattr(shown, start)(log)
    show(log, 1, 100, used(one, (100, 0), tx_hash, **odd))
    assert look(context, Chain(100, 99)) == 0
    assert case(log, one) is None
    assert look(context) == 1
    assert stands(log, one) == (S.NEEDS_REVIEW, 5, tx_hash)
    assert case(log, one)[0] == code
    assert case(log, one)[1]["block"] == 100
    assert (shown.now(log, one).state_reason or "").startswith(text)
    assert entries(log, one) == ["hold"]
    assert look(context) == 0


def test_the_payer_spends_the_authorization_otherwise_while_ours_is_on_the_way(
    log: Connection, chain: StubChain, context: Context
) -> None:
    """Another transaction used it for another amount: ours can only revert, and the case names what happened instead of that."""
    ((one, ours),) = shown.confirming(log)
    chain.head = 99
    chain.mine(ours, status=0)
    chain.head = 164
    show(log, 1, 100, used(one, (98, 0), OTHER, amount=7))
    assert look(context) == 1
    assert stands(log, one) == (S.NEEDS_REVIEW, 5, ours)
    assert case(log, one)[0] == "amount_mismatch"
    assert case(log, one)[1]["tx_hash"] == f"0x{OTHER.hex()}"


def test_anybody_may_use_our_ref_as_a_nonce_of_their_own(log: Connection, context: Context) -> None:
    """EIP-3009 nonces belong to their authorizer: a stranger who copies our ref stops nothing, whatever it costs them."""
    ((one, tx_hash),) = shown.confirming(log)
    show(log, 1, 99, used(one, (99, 0), OTHER, authorizer=STRANGER, amount=1))
    assert look(context) == 0
    show(log, 100, 100, used(one, (100, 0), tx_hash))
    assert look(context) == 1
    assert stands(log, one) == (S.SETTLED, 5, tx_hash)


def test_b50_somebody_elses_transaction_settles_although_ours_reverted(
    log: Connection, chain: StubChain, context: Context
) -> None:
    """B50 to its end: our transaction is final with status 0, theirs is final and exact: settled, with theirs in the books."""
    ((one, ours),) = shown.confirming(log)
    chain.head = 100
    chain.mine(ours, status=0)
    chain.head = 164
    show(log, 1, 100, used(one, (99, 0), OTHER))
    assert look(context) == 1
    assert stands(log, one) == (S.SETTLED, 7, OTHER)
    assert entries_of(log, one.ref)[-1].entry.tx_hash == OTHER


def test_b47_a_revert_that_is_not_final_is_no_verdict(log: Connection, chain: StubChain, context: Context) -> None:
    """B47: the block with the revert gives way, and the same transaction succeeds in the next one."""
    ((one, tx_hash),) = shown.confirming(log)
    log.execute("UPDATE payment_intent SET updated_at = clock_timestamp() - interval '4 minutes'")
    chain.head = 120
    chain.mine(tx_hash, status=0)
    chain.head = 164
    assert look(context) == 0
    assert stands(log, one)[0] is S.CONFIRMING
    chain.receipts.clear()
    show(log, 1, 121, used(one, (121, 0), tx_hash))
    assert look(context, Chain(200, 121)) == 1
    assert stands(log, one)[0] is S.SETTLED


def test_a_node_that_does_not_answer_loses_nothing(log: Connection, chain: StubChain, context: Context) -> None:
    """B45: neither an error nor a null is a verdict; only time without any block sends the same bytes again."""
    ((one, _),) = shown.confirming(log)
    log.execute("UPDATE payment_intent SET updated_at = clock_timestamp() - interval '1 hour'")
    chain.faults["eth_getTransactionReceipt"] = NO_ANSWER
    assert look(context) == 0
    del chain.faults["eth_getTransactionReceipt"]
    assert look(context) == 1
    assert stands(log, one) == (S.SETTLING, 5, None)
    assert log.execute("SELECT job_key, priority FROM queue_job").fetchall() == [(f"{one.public_id}/settle", 0)]
    assert log.execute("SELECT state, last_sent_at FROM tx_attempt").fetchall() == [("accepted", None)]


def test_a_receipt_that_the_log_lacks_repairs_the_log(log: Connection, chain: StubChain, context: Context) -> None:
    """The node withheld the events when their block was sealed: they are stored below the seal, applied, and settle the payment."""
    ((one, tx_hash),) = shown.confirming(log)
    log.execute("UPDATE payment_intent SET updated_at = clock_timestamp() - interval '1 minute'")
    show(log, 1, 164, [])
    chain.mine(tx_hash, *used(one, (100, 0), tx_hash))
    look(context)
    assert shown.observed(log) == [(100, shown.TO)]
    assert look(context) == 1
    assert stands(log, one)[0] is S.SETTLED


def test_a_final_receipt_that_shows_nothing_of_it_goes_to_a_person(
    log: Connection, chain: StubChain, context: Context
) -> None:
    ((one, tx_hash),) = shown.confirming(log)
    log.execute("UPDATE payment_intent SET updated_at = clock_timestamp() - interval '1 minute'")
    chain.head = 100
    chain.mine(tx_hash)
    chain.head = 164
    assert look(context) == 1
    assert case(log, one)[0] == "outcome_unknown"


def test_one_that_the_journal_refuses_does_not_keep_the_others(log: Connection, context: Context) -> None:
    """A hold that is missing is a defect of ours: that payment goes to a person, the others are settled."""
    pairs = shown.confirming(log, 4)
    (bare,) = shown.authorized(log)
    with log.transaction():
        (moved,) = move(log, S.SETTLING, [Change.of(bare)], A.RELAYER)
        (moved,) = move(log, S.CONFIRMING, [Change.of(moved.intent, tx_hash=OTHER)], A.RELAYER)
    pairs.insert(2, (moved.intent, OTHER))
    page = [found for n, (one, tx_hash) in enumerate(pairs) for found in used(one, (100, 2 * n), tx_hash)]
    show(log, 1, 100, page)
    assert look(context) == 5
    assert [stands(log, one)[0] for one, _ in pairs] == [S.SETTLED, S.SETTLED, S.NEEDS_REVIEW, S.SETTLED, S.SETTLED]
    assert "the journal refuses" in str(shown.now(log, bare).state_reason)


def test_without_its_lease_the_duty_writes_nothing(log: Connection, context: Context) -> None:
    ((one, tx_hash),) = shown.confirming(log)
    show(log, 1, 100, used(one, (100, 0), tx_hash))
    with pytest.raises(StaleEpoch):
        confirm.Confirmation().look(context, Fence("singleton:duty", "test", 6), FINAL, 164)  # type: ignore[arg-type]
    assert (stands(log, one)[0], entries(log, one)) == (S.CONFIRMING, ["hold"])


def test_whatever_was_not_ready_for_the_log_follows_it_now(log: Connection, context: Context) -> None:
    """A reviewer sent it again although the log had shown it: the duty looks again, and settles it in the same turn."""
    ((one, tx_hash),) = shown.settling(log)
    with log.transaction():
        (held,) = move(log, S.NEEDS_REVIEW, [Change.of(one, reason="?")], A.RELAYER, review=ReasonCode.WRONG_PARTY)
    show(log, 1, 100, used(one, (100, 0), tx_hash))
    assert look(context) == 0
    with log.transaction():
        move(log, S.SETTLING, [Change.of(held.intent, reason="again")], A.OPERATOR)
    assert look(context) == 2  # heeded, and ended
    assert [row.to_state.value for row in intents.history(log, one.id)][-3:] == ["settling", "confirming", "settled"]


def test_run_asks_the_chain_itself(log: Connection, chain: StubChain, context: Context) -> None:
    ((one, tx_hash),) = shown.confirming(log)
    chain.head = 7
    show(log, 1, 7, used(one, (7, 0), tx_hash))
    assert confirm.Confirmation().run(context, shown.Lease()) == 1  # type: ignore[arg-type]
    assert stands(log, one)[0] is S.SETTLED
    asked = len(chain.asked)
    assert confirm.Confirmation().run(context, shown.Lease()) == 0  # type: ignore[arg-type]
    assert len(chain.asked) == asked, "nothing waits: the chain is not asked"


def test_what_is_final_ends_in_every_turn_and_the_rest_is_looked_at_now_and_then(
    log: Connection, chain: StubChain, context: Context
) -> None:
    time = [0.0]
    duty = confirm.Confirmation(clock=lambda: time[0])
    chain.head = 200
    turns = []
    for _ in range(3):
        ((ended, ended_hash), (lost, _)) = shown.confirming(log, 2)
        log.execute(
            "UPDATE payment_intent SET updated_at = clock_timestamp() - interval '1 hour' WHERE id = %s", (lost.id,)
        )
        block = 10 + len(turns)
        show(log, 1 if not turns else block, block, used(ended, (block, 0), ended_hash))
        duty.run(context, shown.Lease())  # type: ignore[arg-type]
        turns.append((stands(log, ended)[0], stands(log, lost)[0]))
        time[0] += 2.6
    assert turns == [(S.SETTLED, S.SETTLING), (S.SETTLED, S.CONFIRMING), (S.SETTLED, S.SETTLING)]


def test_one_that_cannot_follow_the_log_does_not_keep_the_others(log: Connection, context: Context) -> None:
    """The journal holds another hold in its place, which is a defect of ours: the others are heeded all the same."""
    owner = shown.account(log)
    made = [add_intent(log, owner, terms=shown.TERMS_HERE) for _ in range(5)]
    show(log, 1, 101, [event for n, one in enumerate(made) for event in used(one, (101, 2 * n), bytes([n + 1]) * 32)])
    for one in made:
        authorize(log, owner, one.public_id, authorization(one))
    with log.transaction():
        ledger.append(log, [hold_of(made[2])])
    assert look(context) == 4
    assert [stands(log, one)[0] for one in made] == [
        S.CONFIRMING,
        S.CONFIRMING,
        S.AUTHORIZED,
        S.CONFIRMING,
        S.CONFIRMING,
    ]


def test_the_log_is_gone_through_in_pages_once(
    log: Connection, chain: StubChain, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Along the log, two observations at a time, foreign and ended ones among them; a place is not looked at twice."""
    monkeypatch.setattr(confirm, "BATCH", 2)
    duty = confirm.Confirmation(clock=lambda: 0.0)
    duty._wide_at = 1.0  # the wide look's turn has not come
    assert duty.look(context, DUTY, Chain(200, 9), 200) == 0  # type: ignore[arg-type]
    pairs = shown.confirming(log, 5)
    page = [event for n, (one, tx_hash) in enumerate(pairs) for event in used(one, (10 + n, 0), tx_hash)]
    page += used(pairs[2][0], (12, 5), OTHER, authorizer=STRANGER)
    show(log, 1, 20, sorted(page, key=lambda one: one.position))
    assert duty.look(context, DUTY, Chain(200, 12), 200) == 3  # type: ignore[arg-type]
    assert duty.look(context, DUTY, Chain(200, 12), 200) == 0  # type: ignore[arg-type]
    assert duty.look(context, DUTY, Chain(200, 30), 200) == 2  # type: ignore[arg-type]
    assert {stands(log, one)[0] for one, _ in pairs} == {S.SETTLED}


def test_the_wide_look_goes_round_in_stretches(
    log: Connection, chain: StubChain, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stretch of two at a time, two stretches a turn: nobody is left out, whatever stays where it is."""
    monkeypatch.setattr(confirm, "BATCH", 2)
    monkeypatch.setattr(confirm, "ROUNDS", 2)
    shown.authorized(log, 5)
    pairs = shown.confirming(log, 5)
    page = [event for n, (one, tx_hash) in enumerate(pairs) for event in used(one, (10 + n, 0), tx_hash)]
    show(log, 1, 20, page)
    duty = confirm.Confirmation()
    ended = []
    for _ in range(5):
        duty._wide_at = 0.0
        ended.append(duty.look(context, DUTY, Chain(200, 100), 200))  # type: ignore[arg-type]
    assert sum(ended) == 5
    assert max(ended) <= 4
    assert {stands(log, one)[0] for one, _ in pairs} == {S.SETTLED}
