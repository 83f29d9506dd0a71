"""What a token and a node refuse before anything is signed: waited for, given up, or followed to whoever was faster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from requests_app.config import config
from tests.payments.settling.conftest import SELECTORS, Shop, Token, Worker, letters, outcomes, refusing
from tests.send.node import Drop, Fault, Node
from workers.chain.payments import Refusal
from workers.settling import FIRST_DELAY_SECONDS, Outcome, least_patience

pytestmark = pytest.mark.django_db(transaction=True)
Start = Callable[[], Worker]


@pytest.mark.parametrize("refusal", [Refusal.INSUFFICIENT_BALANCE, Refusal.PAUSED])
def test_what_time_heals_is_tried_until_the_deliveries_are_used_up(
    shop: Shop, node: Node, worker: Start, refusal: Refusal
) -> None:
    (payment,) = shop.pay()
    process = worker()
    node.on_estimate = refusing(SELECTORS[refusal])
    (handled,) = process.work()
    assert handled.outcome is Outcome.RETRY
    assert refusal.value in handled.detail
    shop.conn.execute("UPDATE queue_job SET attempt = 9")
    shop.visible()
    # Deliveries that ended with their workers or in silence are no proof: ten of them in a moment end nothing.
    assert outcomes(process.work()) == ["retry"]
    shop.conn.execute("UPDATE queue_job SET attempt = 9")
    shop.visible()
    shop.age(payment, least_patience())
    assert outcomes(process.work()) == ["poison"]
    assert shop.states(payment) == ["authorized"]
    assert letters(shop) == [("parked", "authorized", 10)]
    assert shop.entries(payment) == []
    assert not node.raws


@pytest.mark.parametrize("refusal", [Refusal.BAD_SIGNATURE, Refusal.BLACKLISTED])
def test_what_nothing_heals_is_poison_when_heard_twice(shop: Shop, node: Node, worker: Start, refusal: Refusal) -> None:
    (payment,) = shop.pay()
    process = worker()
    node.on_estimate = refusing(SELECTORS[refusal])
    assert outcomes(process.work()) == ["retry"]
    shop.visible()
    (handled,) = process.work()
    assert handled.outcome is Outcome.POISON
    assert "unknown" not in handled.detail, "a person reads the name of the error"
    assert shop.states(payment) == ["authorized"]
    assert letters(shop) == [("parked", "authorized", 2)]


def test_a_silent_node_uses_no_delivery_up(shop: Shop, node: Node, worker: Start) -> None:
    (payment,) = shop.pay()
    process = worker()
    shop.conn.execute("UPDATE queue_job SET attempt = 40")

    def silent(methods: list[str]) -> None:
        raise Drop

    node.on_batch = silent
    shop.age(payment, 2 * least_patience())
    assert outcomes(process.work()) == ["retry"]
    assert shop.states(payment) == ["authorized"]
    assert letters(shop) == []
    assert _waits(shop) <= FIRST_DELAY_SECONDS


def test_an_error_of_the_node_uses_no_delivery_up(shop: Shop, node: Node, worker: Start) -> None:
    """Found by `make chaos-payments`: a payment whose deliveries had died with their workers was given up at a node's first stumble."""
    (payment,) = shop.pay()
    process = worker()
    shop.conn.execute("UPDATE queue_job SET attempt = 40")
    shop.age(payment, 2 * least_patience())

    def stumble(call: Any) -> int:
        raise Fault("Internal error", -32603)

    node.on_estimate = stumble
    (handled,) = process.work()
    assert (handled.outcome, handled.detail) == (Outcome.RETRY, "simulation: Internal error")
    assert letters(shop) == []
    assert _waits(shop) <= FIRST_DELAY_SECONDS


def _waits(shop: Shop) -> float:
    """Seconds until the job is due."""
    row = shop.conn.execute("SELECT extract(epoch FROM visible_at - clock_timestamp()) FROM queue_job").fetchone()
    assert row is not None
    return float(row[0])


def test_the_executor_of_an_authorization_is_found_before_anything_is_signed(
    shop: Shop, node: Node, token: Token, worker: Start
) -> None:
    (payment,) = shop.pay()
    token.use(payment.ref, b"\x77" * 32)
    node.on_estimate = refusing(SELECTORS[Refusal.USED])
    (handled,) = worker().work()
    assert (handled.outcome, handled.detail) == (Outcome.SENT, "tx 0x" + "77" * 32)
    (now,) = shop.now(payment)
    assert (now.state.value, now.tx_hash) == ("confirming", b"\x77" * 32)
    assert shop.entries(payment) == ["hold"]
    assert shop.jobs() == 0
    assert not node.raws


def test_an_executor_that_nobody_shows_is_a_case_once_it_must_be_shown(
    shop: Shop, node: Node, token: Token, worker: Start
) -> None:
    """Found by `make chaos-payments`: the log of a node three blocks behind did not show an execution yet, and a person was called."""
    (payment,) = shop.pay()
    token.use(payment.ref, b"\x77" * 32)
    token.quiet = True
    node.on_estimate = refusing(SELECTORS[Refusal.USED])
    process = worker()
    for _ in range(2):  # the use is not final: no log has to show it
        assert outcomes(process.work()) == ["retry"]
        shop.visible()
    node.finalize()
    assert outcomes(process.work()) == ["needs_review"]
    assert shop.states(payment) == ["needs_review"]
    assert shop.reason(payment) == "outcome_unknown"
    assert shop.entries(payment) == ["hold"]


def test_a_log_that_was_behind_is_asked_again(shop: Shop, node: Node, token: Token, worker: Start) -> None:
    (payment,) = shop.pay()
    token.use(payment.ref, b"\x77" * 32)
    token.quiet = True
    node.finalize()
    node.on_estimate = refusing(SELECTORS[Refusal.USED])
    process = worker()
    assert outcomes(process.work()) == ["retry"]
    token.quiet = False
    shop.visible()
    assert outcomes(process.work()) == ["sent"]
    assert shop.states(payment) == ["confirming"]


def test_an_authorization_canceled_on_chain_ends_the_payment_once_final(
    shop: Shop, node: Node, token: Token, worker: Start
) -> None:
    (payment,) = shop.pay()
    token.use(payment.ref, b"\x78" * 32, canceled=True)
    node.on_estimate = refusing(SELECTORS[Refusal.USED])
    process = worker()
    assert outcomes(process.work()) == ["retry"]
    assert shop.states(payment) == ["authorized"]
    node.finalize()
    shop.visible()
    assert outcomes(process.work()) == ["no-op"]
    assert shop.states(payment) == ["canceled"]
    assert shop.entries(payment) == []
    assert shop.jobs() == 0


def test_a_window_that_is_not_open_yet_is_waited_for_in_one_piece(shop: Shop, node: Node, worker: Start) -> None:
    shop.pay(valid_after="1000")
    node.on_estimate = refusing(SELECTORS[Refusal.NOT_YET_VALID])
    assert outcomes(worker().work()) == ["retry"]
    row = shop.conn.execute("SELECT extract(epoch FROM visible_at - clock_timestamp()) FROM queue_job").fetchone()
    assert row is not None
    assert 990 < row[0] < 1001  # the stub's blocks are of second 1


def test_a_closed_window_ends_a_payment_that_was_never_signed(shop: Shop, node: Node, worker: Start) -> None:
    (payment,) = shop.pay(valid_before="1000")
    node.on_estimate = refusing(SELECTORS[Refusal.EXPIRED])
    assert outcomes(worker().work()) == ["no-op"]
    (now,) = shop.now(payment)
    assert (now.state.value, now.state_reason) == ("canceled", "expired")
    assert shop.entries(payment) == []


def test_foreign_chains_and_tokens_are_never_signed_for(shop: Shop, node: Node, worker: Start, settings: Any) -> None:
    (payment,) = shop.pay()
    process = worker()
    settings.PAYMENT_TOKENS = []
    config.cache_clear()
    assert outcomes(process.work()) == ["poison"]
    assert shop.states(payment) == ["authorized"]
    assert not node.raws
