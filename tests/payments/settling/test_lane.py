"""Payments through a lane: one hold, one nonce, one transaction each, whatever the node says first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from requests_app.store import intents
from requests_app.store.queue import NORMAL, lease_jobs
from requests_app.store.session import connect
from tests.payments.settling.conftest import Shop, Worker, letters, outcomes, sent_payments
from tests.payments.terms import MERCHANT, PAYER, TERMS
from tests.send.node import Drop, Fault, Node, parse
from workers.settling import Outcome, least_patience

pytestmark = pytest.mark.django_db(transaction=True)
Start = Callable[[], Worker]


def test_a_batch_is_held_signed_sent_and_confirming(shop: Shop, node: Node, worker: Start) -> None:
    payments = shop.pay(5)
    handled = worker().work()
    assert outcomes(handled) == ["sent"] * 5
    assert [one.job_key for one in handled] == [f"{one.public_id}/settle" for one in payments]
    assert shop.states(*payments) == ["confirming"] * 5
    assert [one.version for one in shop.now(*payments)] == [4] * 5
    assert [shop.entries(one) for one in payments] == [["hold"]] * 5
    assert shop.jobs() == 0
    assert sent_payments(node) == [one.ref for one in payments]
    call = parse(node.raws[0])
    assert call.to == bytes.fromhex(TERMS.token[2:])
    assert call.data[4:36] == bytes(12) + bytes.fromhex(PAYER[2:])
    assert call.data[36:68] == bytes(12) + bytes.fromhex(MERCHANT[2:])
    assert int.from_bytes(call.data[68:100], "big") == TERMS.amount
    assert {one.tx_hash for one in shop.now(*payments)} == {parse(raw).hash for raw in node.raws}


def test_a_lost_answer_is_looked_up_and_not_sent_again(shop: Shop, node: Node, worker: Start) -> None:
    """The first send reached the node, the answer was lost: known by its hash, or mined meanwhile."""

    def lose(tx: Any) -> None:
        raise Drop

    process = worker()
    for mined in (False, True):
        (payment,) = shop.pay()
        node.after_send = lose
        assert outcomes(process.work()) == ["retry"]
        assert shop.states(payment) == ["settling"]
        node.after_send = None
        if mined:
            node.mine()
        before = len(node.raws)
        shop.visible()
        assert outcomes(process.work()) == ["sent"]
        assert len(node.raws) == before
        assert shop.states(payment) == ["confirming"]
        assert shop.jobs() == 0
    assert len(sent_payments(node)) == 2


def test_a_refused_connection_is_sent_again_with_the_same_bytes(shop: Shop, node: Node, worker: Start) -> None:
    """A2 of the reference, with a node that is down at first."""
    (payment,) = shop.pay()
    process = worker()

    def down(methods: list[str]) -> None:
        if "eth_sendRawTransaction" in methods:
            raise Drop

    node.on_batch = down
    (first,) = process.work()
    assert first.outcome is Outcome.RETRY
    assert first.detail.startswith("send: ")
    assert shop.entries(payment) == ["hold"]
    stored = shop.conn.execute("SELECT raw_tx, state FROM tx_attempt").fetchall()
    assert [state for _, state in stored] == ["unknown"]
    node.on_batch = None
    shop.visible()
    (second,) = process.work()
    assert second.outcome is Outcome.REBROADCAST
    assert node.raws == [bytes(raw) for raw, _ in stored]
    (now,) = shop.now(payment)
    assert (now.state.value, now.version, second.detail) == ("confirming", 4, f"tx 0x{now.tx_hash.hex()}")
    assert shop.jobs() == 0
    assert shop.reason(payment) == "none"


def test_deliveries_of_other_states(shop: Shop, worker: Start) -> None:
    created = intents.find_intent(shop.conn, _create(shop))
    assert created is not None
    (paid,) = shop.pay()
    process = worker()
    process.work()
    intents.enqueue_settle(shop.conn, [created.id, paid.id], NORMAL)
    handled = {one.job_key: one for one in process.work()}
    assert handled[f"{created.public_id}/settle"].line.endswith("retry        (not authorized yet)")
    assert handled[f"{paid.public_id}/settle"].line.endswith("#1  no-op        (already confirming)")
    assert shop.jobs() == 1
    shop.conn.execute("UPDATE queue_job SET attempt = 9")
    shop.visible()
    assert outcomes(process.work()) == ["poison"]
    assert shop.states(created) == ["created"]
    assert letters(shop) == [("parked", "created", 10)]


def test_a_job_for_no_payment_is_dropped(shop: Shop, worker: Start) -> None:
    shop.conn.execute(
        "INSERT INTO queue_job (queue, job_key, kind, subject_id, tenant_id) VALUES ('settle', 'pi_gone/settle', 4, 999999, 1)"
    )
    assert outcomes(worker().work()) == ["no-op"]
    assert shop.jobs() == 0


def test_a_disabled_account_is_not_paid_for(shop: Shop, node: Node, worker: Start) -> None:
    (payment,) = shop.pay()
    shop.conn.execute("UPDATE client_account SET status = 'disabled'")
    process = worker()
    shop.conn.execute("UPDATE queue_job SET attempt = 50")
    (handled,) = process.work()
    assert (handled.outcome, handled.detail) == (Outcome.RETRY, "account disabled")
    assert shop.states(payment) == ["authorized"]
    assert not node.raws


def test_an_account_disabled_after_the_read_is_not_paid_for(shop: Shop, node: Node, worker: Start) -> None:
    """I11: between the read and TX1."""
    (payment,) = shop.pay()
    process = worker()

    def disable(call: dict[str, Any]) -> int:
        with connect("worker") as other:
            other.execute("UPDATE client_account SET status = 'disabled'")
        return 60_000

    node.on_estimate = disable
    assert outcomes(process.work()) == ["retry"]
    assert shop.states(payment) == ["authorized"]
    assert shop.entries(payment) == []
    assert not node.raws


def test_one_poisoned_member_does_not_hold_up_the_batch(shop: Shop, node: Node, worker: Start) -> None:
    payments = shop.pay(4)
    # A hold of this name with another content: the journal refuses the whole of what it comes with.
    bad = payments[2]
    _spoil(shop, bad)
    handled = worker().work()
    assert sorted(outcomes(handled)) == ["retry", "sent", "sent", "sent"]
    assert shop.states(*payments) == ["confirming", "confirming", "authorized", "confirming"]
    nonces = [parse(raw).nonce for raw in node.raws]
    assert nonces == list(range(nonces[0], nonces[0] + 3))


def test_a_payment_the_node_refuses_for_good_goes_to_a_person(shop: Shop, node: Node, worker: Start) -> None:
    (payment,) = shop.pay()

    def refuse(tx: Any) -> None:
        raise Fault("intrinsic gas too low")

    node.on_send = refuse
    assert outcomes(worker().work()) == ["needs_review"]
    assert shop.states(payment) == ["needs_review"]
    assert shop.reason(payment) == "refused_after_signing"
    assert shop.entries(payment) == ["hold"]


def test_without_a_receipt_a_person_looks_after_ten_minutes(shop: Shop, node: Node, worker: Start) -> None:
    (payment,) = shop.pay()
    process = worker()

    def refuse(tx: Any) -> None:
        raise Fault("the moon is in the wrong phase")

    node.on_send = refuse
    assert outcomes(process.work()) == ["retry"]
    shop.age(payment, 599)
    shop.visible()
    assert outcomes(process.work()) == ["retry"]
    shop.age(payment, 2)
    shop.visible()
    assert outcomes(process.work()) == ["needs_review"]
    assert shop.reason(payment) == "outcome_unknown"
    assert shop.jobs() == 0
    assert len(set(node.raws)) == 1


def test_a_late_delivery_of_a_dead_process_changes_nothing(shop: Shop, node: Node, worker: Start) -> None:
    (payment,) = shop.pay()
    process = worker()
    late = lease_jobs(shop.conn, "settle", 1, "dead", 30)
    shop.visible()
    process.work()
    assert shop.states(payment) == ["confirming"]
    from workers.payments import LaneSender
    from workers.settle_routes import make_settler

    settler = make_settler(process.context.conn, LaneSender(process.context, process.lane), "dead")  # type: ignore[arg-type]
    assert outcomes(settler.handle(late)) == ["no-op"]
    assert len(node.raws) == 1
    assert shop.entries(payment) == ["hold"]


def _create(shop: Shop) -> str:
    from requests_app.transitions.intents import create
    from tests.payments.settling.conftest import CHAIN

    return create(shop.conn, shop.account, TERMS._replace(chain=CHAIN)).public_id


def _spoil(shop: Shop, payment: Any) -> None:
    """A hold of the payment's name with another content stands in the journal."""
    shop.spoiled = True
    from requests_app.ledger import hold_of
    from requests_app.store import ledger

    with shop.conn.transaction():
        ledger.append(shop.conn, [hold_of(payment)])


def test_deliveries_of_a_signed_payment_are_used_up_too(shop: Shop, node: Node, worker: Start) -> None:
    """Reference 2.7: nobody can prove that no node has the bytes, so a person looks, and the job is a dead letter."""
    (payment,) = shop.pay()
    process = worker()

    def refuse(tx: Any) -> None:
        raise Fault("the moon is in the wrong phase")

    node.on_send = refuse
    process.work()
    shop.conn.execute("UPDATE queue_job SET attempt = 9")
    shop.visible()
    assert outcomes(process.work()) == ["retry"]  # ten deliveries in a moment: most of them cannot have been tried
    shop.conn.execute("UPDATE queue_job SET attempt = 9")
    shop.visible()
    shop.age(payment, least_patience())
    (handled,) = process.work()
    assert (handled.outcome, handled.detail) == (
        Outcome.POISON,
        "send: the moon is in the wrong phase; attempts used up",
    )
    assert shop.states(payment) == ["needs_review"]
    assert shop.reason(payment) == "outcome_unknown"
    assert shop.entries(payment) == ["hold"]
    assert letters(shop) == [("parked", "needs_review", 10)]


def test_busy_books_cost_a_second_and_no_payment(shop: Shop, node: Node, worker: Start) -> None:
    """Somebody holds the journal for longer than the lock may be waited for."""
    from requests_app.store.ledger import LOCK

    (payment,) = shop.pay()
    process = worker()
    process.context.conn.execute("SET lock_timeout = '100ms'")
    with connect("worker") as other, other.transaction():
        other.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        (handled,) = process.work()
    assert (handled.outcome, handled.detail) == (Outcome.RETRY, "the books are busy")
    assert shop.states(payment) == ["authorized"]
    assert not node.raws
    shop.visible()
    assert outcomes(process.work()) == ["sent"]
