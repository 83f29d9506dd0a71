"""What becomes of payments whose transaction reverts, stays out, loses its nonce, or whose window closes meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from requests_app.models.signing import SignerStatus
from requests_app.store.intents import Intent
from tests.payments.settling.conftest import SELECTORS, Shop, Token, Worker, outcomes, refusing
from tests.send.node import Drop, Node, parse
from workers import broadcast, receipts, replace, signers, verdicts, windows
from workers.chain.payments import Refusal
from workers.payment_reverts import OUT_OF_GAS

pytestmark = pytest.mark.django_db(transaction=True)
Start = Callable[[], Worker]


def look(process: Worker, shop: Shop) -> None:
    """The lane looks at its open attempts, as if they had been out for a minute."""
    shop.conn.execute("UPDATE tx_attempt SET first_sent_at = clock_timestamp() - interval '1 minute'")
    process.lane.look_at.clear()
    receipts.look_up(process.context, process.lane)  # type: ignore[arg-type]


def finalize(process: Worker) -> None:
    verdicts.finalize(process.context, process.lane)  # type: ignore[arg-type]


def slot(shop: Shop, payment: Intent) -> str:
    row = shop.conn.execute("SELECT state FROM nonce_slot WHERE kind = 4 AND subject_id = %s", (payment.id,)).fetchone()
    return str(row[0]) if row else "none"


@pytest.fixture
def mined(shop: Shop, node: Node, worker: Start) -> Callable[..., tuple[Worker, Intent]]:
    """A payment that a node has, mined with a status."""

    def make(*, status: int) -> tuple[Worker, Intent]:
        (payment,) = shop.pay()
        process = worker()
        assert outcomes(process.work()) == ["sent"]
        node.mine(status=status)
        return process, payment

    return make


def test_a_revert_decides_nothing_before_it_is_final(shop: Shop, node: Node, mined: Any) -> None:
    """R6: the same transaction may succeed after a reorganisation (B47)."""
    process, payment = mined(status=0)
    look(process, shop)
    assert shop.states(payment) == ["confirming"]
    assert slot(shop, payment) == "live"
    node.finalize()
    look(process, shop)
    assert shop.states(payment) == ["needs_review"]
    assert shop.reason(payment) == "reverted_final"
    assert slot(shop, payment) == "mined"
    assert shop.entries(payment) == ["hold"]


def test_a_final_revert_of_a_used_authorization_confirms_who_used_it(
    shop: Shop, node: Node, token: Token, mined: Any
) -> None:
    """B50: somebody was faster, our call reverted, the merchant has the money."""
    process, payment = mined(status=0)
    token.use(payment.ref, b"\x66" * 32)
    node.finalize()
    look(process, shop)
    (now,) = shop.now(payment)
    assert (now.state.value, now.tx_hash) == ("confirming", b"\x66" * 32)
    assert slot(shop, payment) == "mined"


def test_what_used_all_its_gas_says_so(shop: Shop, node: Node, mined: Any) -> None:
    process, payment = mined(status=0)
    shop.conn.execute("UPDATE tx_attempt SET gas_limit = %s", (21_000,))
    node.finalize()
    look(process, shop)
    (evidence,) = shop.conn.execute("SELECT evidence FROM review_case").fetchone() or ({},)
    assert (shop.reason(payment), shop.now(payment)[0].state_reason) == ("reverted_final", OUT_OF_GAS)
    assert (evidence["gas_used"], evidence["gas_limit"]) == (21_000, 21_000)


def test_a_use_after_the_revert_is_not_the_reason_of_it(shop: Shop, node: Node, token: Token, mined: Any) -> None:
    """The state is asked at the block of the revert, not now."""
    process, payment = mined(status=0)
    node.mine()
    token.use(payment.ref, b"\x66" * 32)
    node.finalize()
    look(process, shop)
    assert shop.states(payment) == ["needs_review"]


def test_the_log_is_not_needed_to_confirm(shop: Shop, node: Node, worker: Start) -> None:
    """An answer was lost, the transaction was mined: its receipt brings the payment to confirming."""
    (payment,) = shop.pay()
    process = worker()

    def lose(tx: Any) -> None:
        raise Drop

    node.after_send = lose
    process.work()
    assert shop.states(payment) == ["settling"]
    node.mine()
    look(process, shop)
    assert shop.states(payment) == ["confirming"]
    assert slot(shop, payment) == "mined"


def test_the_mined_offer_is_the_one_on_record(shop: Shop, node: Node, worker: Start) -> None:
    """Two offers for one nonce: the payment confirms whichever was mined."""
    (payment,) = shop.pay()
    process = worker()
    process.work()
    (first,) = node.known.values()
    del node.known[first.hash]
    _replace(process, shop)
    (second,) = node.known.values()
    assert second.nonce == first.nonce
    assert second.hash != first.hash
    node.mine()
    look(process, shop)
    (now,) = shop.now(payment)
    assert (now.state.value, now.tx_hash) == ("confirming", second.hash)


def test_a_payment_that_never_gets_mined_goes_to_a_person_and_its_nonce_to_nothing(
    shop: Shop, node: Node, worker: Start
) -> None:
    (payment,) = shop.pay()
    process = worker()
    process.work()
    for _ in range(replace.MOST_OFFERS):
        node.known.clear()
        _replace(process, shop)
    assert shop.states(payment) == ["needs_review"]
    assert shop.reason(payment) == "fee_ceiling"
    (last,) = node.known.values()
    assert last.to == process.lane.address
    node.mine()
    node.finalize()
    look(process, shop)
    finalize(process)
    # The system spent the nonce; a person still decides about the payment.
    assert slot(shop, payment) == "dead"
    assert shop.states(payment) == ["needs_review"]
    assert shop.entries(payment) == ["hold"]


def test_a_taken_no_op_confirms_no_payment(shop: Shop, node: Node, worker: Start) -> None:
    """The node takes the no-op at the nonce of a payment: that is no news of the payment."""
    process, payment = _pending_unsent(shop, node, worker)
    shop.conn.execute("UPDATE tx_attempt SET kind = 'cancel'")
    node.on_send = None
    broadcast.resend(process.context, process.lane)  # type: ignore[arg-type]
    assert len(node.known) == 1
    assert shop.states(payment) == ["settling"]
    node.mine()
    look(process, shop)
    assert shop.states(payment) == ["settling"]


def test_a_window_that_closes_while_pending_fails_the_payment_only_when_that_is_final(
    shop: Shop, node: Node, worker: Start
) -> None:
    process, payment = _pending_unsent(shop, node, worker)
    shop.conn.execute(
        """UPDATE payment_intent SET "authorization" = "authorization" || '{"valid_before": "1"}' WHERE id = %s""",
        (payment.id,),
    )
    node.on_send = None
    offered = len(node.raws)
    assert windows.close(process.context, process.lane) == 1  # type: ignore[arg-type]
    noop = parse(node.raws[-1])
    assert (noop.to, noop.data, len(node.raws)) == (process.lane.address, b"", offered + 1)
    assert windows.close(process.context, process.lane) == 0  # type: ignore[arg-type]
    node.on_estimate = refusing(SELECTORS[Refusal.EXPIRED])
    shop.visible()
    assert outcomes(process.work()) == ["retry"]
    node.mine()
    look(process, shop)
    shop.visible()
    assert outcomes(process.work()) == ["retry"]
    node.finalize()
    finalize(process)
    assert slot(shop, payment) == "dead"
    shop.visible()
    assert outcomes(process.work()) == ["no-op"]
    (now,) = shop.now(payment)
    assert (now.state.value, now.state_reason) == (
        "failed",
        "the payer's authorization ended before it was carried out",
    )
    assert shop.entries(payment) == ["hold", "void"]
    assert shop.jobs() == 0
    calls = {raw for raw in node.raws if len(parse(raw).data) > 4}
    assert len(calls) == 1


def test_a_payment_about_to_end_gets_no_nonce(shop: Shop, node: Node, worker: Start) -> None:
    row = shop.conn.execute("SELECT extract(epoch FROM clock_timestamp())::bigint + 10").fetchone()
    assert row is not None
    (payment,) = shop.pay(valid_before=str(row[0]))
    assert outcomes(worker().work()) == ["retry"]
    assert shop.states(payment) == ["authorized"]
    assert not node.raws


def test_a_closed_window_past_the_deadline_is_a_case_of_its_own(shop: Shop, node: Node, worker: Start) -> None:
    process, payment = _pending_unsent(shop, node, worker)
    shop.conn.execute(
        """UPDATE payment_intent SET "authorization" = "authorization" || '{"valid_before": "1"}' WHERE id = %s""",
        (payment.id,),
    )
    shop.age(payment, 700)
    shop.visible()
    offered = len(node.raws)
    assert outcomes(process.work()) == ["needs_review"]
    assert shop.reason(payment) == "authorization_window_closed"
    assert len(node.raws) == offered, "an authorization that has ended is not sent again"


def test_a_nonce_used_elsewhere_brings_its_payment_to_a_person(shop: Shop, node: Node, worker: Start) -> None:
    process, payment = _pending_unsent(shop, node, worker)
    node.use_elsewhere(process.lane.address, 2)
    process.lane.sync_at = 0.0
    signers.sync(process.context, process.lane)  # type: ignore[arg-type]
    assert process.lane.state is not None
    assert process.lane.state.status is SignerStatus.BLOCKED
    look(process, shop)
    assert shop.states(payment) == ["needs_review"]
    assert shop.reason(payment) == "foreign_nonce"


def test_jobs_used_up_before_anything_was_signed_and_after(shop: Shop, node: Node, worker: Start) -> None:
    """The three endings of the reference: authorized untouched, settling unsigned failed, settling signed to a person."""
    from requests_app.transitions import settling

    process, signed = _pending_unsent(shop, node, worker)
    fresh, unsigned = shop.pay(2)
    settling.hold_unlogged(shop.conn, [unsigned])
    shop.visible()
    items = {one.case.intent.id: one for one in _items(process)}
    from workers.payments import LaneSender
    from workers.settle_routes import make_settler

    settler = make_settler(process.context.conn, LaneSender(process.context, process.lane), "x")  # type: ignore[arg-type]
    settler.give_up([(items[one.id], "enough") for one in (fresh, unsigned, signed)])
    assert [shop.states(one)[0] for one in (fresh, unsigned, signed)] == ["authorized", "failed", "needs_review"]
    assert [shop.entries(one) for one in (fresh, unsigned, signed)] == [[], ["hold", "void"], ["hold"]]
    assert shop.jobs() == 0
    found = shop.conn.execute("SELECT subject_id, subject_state FROM dead_letter WHERE status = 'parked'").fetchall()
    assert dict(found) == {fresh.id: "authorized", unsigned.id: "failed", signed.id: "needs_review"}


def _items(process: Worker) -> list[Any]:
    """Everything in the queue, leased and read."""
    from requests_app.store import settling as store
    from requests_app.store.queue import lease_jobs
    from workers.settling import Item

    leased = lease_jobs(process.context.conn, "settle", 10, "x", 30)
    cases = store.read_cases(process.context.conn, [one.subject.id for one in leased])
    return [Item(one.receipt, cases[one.subject.id]) for one in leased]


def _replace(process: Worker, shop: Shop) -> None:
    """The ladder's next step, as if the offer had been out for long."""
    shop.conn.execute(
        "UPDATE tx_attempt SET first_sent_at = clock_timestamp() - interval '1 hour', error_class = 'underpriced'"
    )
    process.lane.replace_at = 0.0
    assert replace.replace(process.context, process.lane) == 1  # type: ignore[arg-type]


def _pending_unsent(shop: Shop, node: Node, worker: Start) -> tuple[Worker, Intent]:
    """A payment past TX1 whose bytes no node has taken."""
    (payment,) = shop.pay()
    process = worker()

    def drop(tx: Any) -> None:
        raise Drop

    node.on_send = drop
    assert outcomes(process.work()) == ["retry"]
    assert shop.states(payment) == ["settling"]
    return process, payment
