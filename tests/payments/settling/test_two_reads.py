"""Decisions that end a payment for good: what they rest on must still be so, and be of one block of one chain, when they are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from requests_app.store import observations as store
from requests_app.store.queue import lease_jobs
from requests_app.transitions import payment_ends, settling
from requests_app.transitions.settling import Hopeless
from tests.payments.settling.conftest import SELECTORS, Shop, Token, Worker, outcomes, refusing
from tests.payments.settling.test_decisions import Desk, desk
from tests.payments.settling.test_ends import finalize, look, slot
from tests.payments.terms import PAYER, USDC
from tests.send.node import Drop, Node
from workers import signers
from workers.chain.payments import Refusal
from workers.listener import GATEWAY

__all__ = ["desk"]
pytestmark = pytest.mark.django_db(transaction=True)
Start = Callable[[], Worker]
ANOTHER = b"\x55" * 32


def test_who_lost_the_job_gives_up_nothing(shop: Shop, node: Node, worker: Start) -> None:
    """A worker read a payment that was never signed, and stopped for longer than its lease; another one signed it since."""
    (payment,) = shop.pay()
    settling.hold_unlogged(shop.conn, [payment])
    (stale,) = lease_jobs(shop.conn, "settle", 1, "stopped", 30)
    (read,) = shop.now(payment)
    shop.visible()
    process = worker()
    node.on_send = _silence
    assert outcomes(process.work()) == ["retry"]
    assert shop.now(payment)[0].version == read.version, "signing anew moves no version that the other one could miss"
    assert settling.give_up(shop.conn, [Hopeless(read, stale.receipt, "it was refused", signed=False)]) == []
    assert shop.states(payment) == ["settling"]
    assert shop.entries(payment) == ["hold"]
    assert shop.jobs() == 1


def test_a_window_and_its_use_are_read_of_one_block(shop: Shop, node: Node, token: Token, worker: Start) -> None:
    """The finalized block moves between two calls: carried out in the last block of its window, which was not final at the first."""
    (payment,) = shop.pay()
    settling.hold_unlogged(shop.conn, [payment])
    _close_window(shop, payment.id, "1000")
    node.finalize()
    node.eth_getBlockByNumber = _aging(node, last_inside=node.block + 1)  # type: ignore[method-assign]
    node.on_estimate = refusing(SELECTORS[Refusal.EXPIRED])
    asked = []

    def call(call: dict[str, Any], tag: str) -> str:
        said = token.call(call, tag)
        if not asked:
            node.mine()
            token.use(payment.ref, ANOTHER)
            node.mine()
            node.finalize()
        asked.append(tag)
        return said

    node.on_call = call
    shop.visible()
    worker().work()
    assert asked
    assert shop.states(payment) != ["failed"], "its money has moved"


def test_a_nonce_spent_on_nothing_fails_no_payment_that_somebody_carried_out(desk: Desk) -> None:
    """The log is behind: it does not show yet what the chain calls used."""
    assert desk.decide("cancel_nonce")[0] == "applied"
    desk.node.mine()
    desk.token.use(desk.payment.ref, ANOTHER)
    look(desk.process, desk.shop)
    desk.node.finalize()
    finalize(desk.process)
    assert desk.state == "needs_review"
    assert desk.entries == ["hold"]
    assert desk.shop.reason(desk.payment) != "none"


def test_a_nonce_spent_on_nothing_waits_for_what_the_chain_says(desk: Desk) -> None:
    assert desk.decide("cancel_nonce")[0] == "applied"
    desk.node.mine()
    look(desk.process, desk.shop)
    desk.node.finalize()
    said, desk.node.on_call = desk.node.on_call, None
    finalize(desk.process)
    assert desk.state == "needs_review"
    desk.node.on_call = said
    finalize(desk.process)
    assert desk.state == "failed"


def test_a_cancellation_of_a_block_that_gave_way_ends_nothing(
    shop: Shop, node: Node, token: Token, worker: Start
) -> None:
    """The listener stands still: its log shows the payer cancel, in a block that is no more. The chain shows it carried out instead."""
    (payment,) = shop.pay()
    store.observe(shop.conn, GATEWAY, [
        store.Seen(payment.ref, 1 << 20, bytes.fromhex(USDC[2:]), bytes.fromhex(PAYER[2:]), b"\x09" * 32, b"\x0a" * 32, canceled=True)
    ], [])  # fmt: skip
    token.use(payment.ref, ANOTHER)
    node.finalize()
    node.on_estimate = refusing(SELECTORS[Refusal.USED])
    assert outcomes(worker().work()) == ["sent"]
    (now,) = shop.now(payment)
    assert (now.state.value, now.tx_hash) == ("confirming", ANOTHER)


def test_what_becomes_of_our_nonce_says_nothing_of_a_payment_that_somebody_carried_out(
    shop: Shop, node: Node, worker: Start
) -> None:
    """Both at once: somebody executed the authorization, and somebody used the nonce. It went to a person, back, and to a person again."""
    (payment,) = shop.pay()
    process = worker()
    node.on_send = _silence
    assert outcomes(process.work()) == ["retry"]
    with shop.conn.transaction():
        payment_ends.confirm_other(shop.conn, {payment.id: ANOTHER})
    node.use_elsewhere(process.lane.address, 2)
    process.lane.sync_at = 0.0
    signers.sync(process.context, process.lane)  # type: ignore[arg-type]
    look(process, shop)
    assert slot(shop, payment) != "none"
    assert shop.states(payment) == ["confirming"]
    assert shop.reason(payment) == "none"


def test_a_settlement_by_hand_names_a_transaction_of_the_final_chain(desk: Desk) -> None:
    """The receipt comes from a node on another fork than the one that says what is final."""
    tx_hash = desk.show()
    desk.node.finalize()
    own = desk.node.eth_getTransactionReceipt
    desk.node.eth_getTransactionReceipt = lambda asked: {**(own(asked) or {}), "blockHash": "0x" + "0f" * 32}  # type: ignore[method-assign]
    assert desk.decide("settle", tx_hash=tx_hash)[0] == "rejected"
    assert desk.state == "needs_review"
    desk.node.eth_getTransactionReceipt = own  # type: ignore[method-assign]
    assert desk.decide("settle", tx_hash=tx_hash)[0] == "applied"


def _silence(tx: Any) -> None:
    raise Drop


def _close_window(shop: Shop, payment: int, valid_before: str) -> None:
    shop.conn.execute(
        """UPDATE payment_intent SET "authorization" = "authorization" || jsonb_build_object('valid_before', %s::text) WHERE id = %s""",
        (valid_before, payment),
    )


def _aging(node: Node, last_inside: int) -> Callable[[str, bool], dict[str, str] | None]:
    """Blocks up to `last_inside` are of second 999, those behind of second 1000."""
    plain = node.eth_getBlockByNumber

    def block(tag: str, full: bool) -> dict[str, str] | None:
        found = plain(tag, full)
        return found and {**found, "timestamp": hex(999 if int(found["number"], 16) <= last_inside else 1000)}

    return block
