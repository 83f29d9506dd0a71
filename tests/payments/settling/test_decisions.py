"""A reviewer's decisions about payments, as the commands that carry them out (reference queue_settle 4.9)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from requests_app.models.commands import CommandKind
from requests_app.states import Kind, Status
from requests_app.store import commands as store
from requests_app.store.commands import NewCommand
from requests_app.store.intents import Intent
from requests_app.store.turns import Board
from tests.payments.settling.conftest import Shop, Token, Worker, outcomes
from tests.payments.settling.test_ends import finalize, look, slot
from tests.payments.terms import MERCHANT, PAYER, TERMS, USDC
from tests.send.node import Fault, Node, parse
from workers import commands
from workers.chain.keccak import topic
from workers.chain.payment_events import TRANSFER, USED

pytestmark = pytest.mark.django_db(transaction=True)
Start = Callable[[], Worker]
_numbers = itertools.count(1)


class Desk:
    """A payment in review, its worker, and the decisions about it."""

    def __init__(self, shop: Shop, node: Node, token: Token, process: Worker, payment: Intent) -> None:
        self.shop, self.node, self.token, self.process, self.payment = shop, node, token, process, payment

    def decide(self, action: str, **payload: Any) -> tuple[str, dict[str, Any]]:
        """Outcome and result of the command."""
        name = f"review:payment:{next(_numbers)}"
        conn = self.process.context.conn
        with conn.transaction():
            store.enqueue(
                conn,
                NewCommand(
                    name, CommandKind.HITL, Kind.PAYMENT, self.payment.id, self.process.lane.fence.resource, "rita",
                    {"action": action, "reason": "because", **payload}, Status.NEEDS_REVIEW,
                ),
            )  # fmt: skip
        self.process.lane.commands_at = 0.0
        commands.serve_lane(self.process.context, self.process.lane, Board())  # type: ignore[arg-type]
        row = conn.execute("SELECT outcome, result FROM command WHERE command_id = %s", (name,)).fetchone()
        assert row is not None
        return str(row[0]), row[1]

    @property
    def state(self) -> str:
        return self.shop.states(self.payment)[0]

    @property
    def entries(self) -> list[str]:
        return self.shop.entries(self.payment)

    def kill_nonce(self) -> None:
        """The nonce is proven dead (R5 is the business of its own tests)."""
        self.shop.conn.execute("UPDATE nonce_slot SET state = 'dead'")
        self.shop.conn.execute("UPDATE tx_attempt SET state = 'dropped'")

    def show(self, *, amount: int = TERMS.amount, payer: str = PAYER) -> str:
        """A mined transaction of somebody that carries the payment, or almost; its hash."""
        self.node.mine()
        tx_hash, block = "0x" + "5a" * 32, self.node.block

        def log(index: int, topics: list[str], data: str) -> dict[str, Any]:
            return {
                "address": USDC.lower(), "topics": topics, "data": data, "blockNumber": hex(block), "logIndex": hex(index),
                "transactionHash": tx_hash, "blockHash": "0x" + block.to_bytes(32, "big").hex(), "removed": False,
            }  # fmt: skip

        def word(address: str) -> str:
            return "0x" + "00" * 12 + address[2:].lower()

        logs = [
            log(0, ["0x" + topic(USED).hex(), word(payer), "0x" + self.payment.ref.hex()], "0x"),
            log(
                1, ["0x" + topic(TRANSFER).hex(), word(payer), word(MERCHANT)], "0x" + amount.to_bytes(32, "big").hex()
            ),
        ]
        receipt = {
            "transactionHash": tx_hash, "blockNumber": hex(block), "blockHash": "0x" + block.to_bytes(32, "big").hex(),
            "status": "0x1", "from": "0x" + "99" * 20, "to": USDC.lower(), "gasUsed": "0x5208", "logs": logs,
        }  # fmt: skip
        own = self.node.eth_getTransactionReceipt
        self.node.eth_getTransactionReceipt = lambda asked: receipt if asked == tx_hash else own(asked)  # type: ignore[method-assign]
        self.token.use(self.payment.ref, bytes.fromhex(tx_hash[2:]))
        return tx_hash


@pytest.fixture
def desk(shop: Shop, node: Node, token: Token, worker: Start) -> Desk:
    """A payment that went to a person after ten minutes without a receipt; its nonce is open."""
    (payment,) = shop.pay()
    process = worker()

    def refuse(tx: Any) -> None:
        raise Fault("the moon is in the wrong phase")

    node.on_send = refuse
    process.work()
    shop.age(payment, 601)
    shop.visible()
    assert outcomes(process.work()) == ["needs_review"]
    node.on_send = None
    return Desk(shop, node, token, process, payment)


def test_the_same_bytes_again(desk: Desk) -> None:
    assert desk.decide("resume")[0] == "applied"
    assert desk.state == "settling"
    assert desk.shop.jobs() == 1
    assert outcomes(desk.process.work()) == ["rebroadcast"]
    assert desk.state == "confirming"
    assert len(set(desk.node.raws)) == 1
    assert desk.shop.reason(desk.payment) == "none"
    assert desk.entries == ["hold"]


def test_a_higher_fee_at_the_same_nonce(desk: Desk) -> None:
    assert desk.decide("replace")[0] == "applied"
    # The offer was taken at once: the payment followed it out of review.
    assert desk.state in ("settling", "confirming")
    (taken,) = desk.node.known.values()
    first = parse(desk.node.raws[0])
    assert (taken.nonce, taken.data) == (first.nonce, first.data)
    assert taken.hash != first.hash
    desk.node.mine()
    look(desk.process, desk.shop)
    assert desk.state == "confirming"
    assert desk.shop.now(desk.payment)[0].tx_hash == taken.hash


def test_spending_the_nonce_ends_the_payment_only_when_the_no_op_is_final(desk: Desk) -> None:
    assert desk.decide("cancel_nonce")[0] == "applied"
    assert desk.state == "needs_review"
    desk.node.mine()
    look(desk.process, desk.shop)
    assert desk.state == "needs_review"
    desk.node.finalize()
    finalize(desk.process)
    assert slot(desk.shop, desk.payment) == "dead"
    assert desk.state == "failed"
    assert desk.entries == ["hold", "void"]


def test_a_new_nonce_only_where_the_old_one_is_dead_and_the_ref_unused(desk: Desk) -> None:
    outcome, result = desk.decide("resend")
    assert (outcome, desk.state) == ("rejected", "needs_review")
    assert "cancel it first" in result["reason"]
    desk.kill_nonce()
    desk.token.use(desk.payment.ref, b"\x01" * 32)
    assert desk.decide("resend")[0] == "rejected"
    desk.token.over.clear()
    assert desk.decide("resend")[0] == "applied"
    assert desk.state == "settling"
    assert outcomes(desk.process.work()) == ["sent"]
    assert desk.state == "confirming"
    assert desk.entries == ["hold"]
    nonces = [parse(raw).nonce for raw in dict.fromkeys(desk.node.raws)]
    assert nonces == [0, 1]


def test_a_final_revert_may_be_sent_anew(shop: Shop, node: Node, token: Token, worker: Start) -> None:
    (payment,) = shop.pay()
    process = worker()
    process.work()
    node.mine(status=0)
    node.finalize()
    look(process, shop)
    desk = Desk(shop, node, token, process, payment)
    assert desk.decide("resend")[0] == "rejected", "its nonce is mined, but not final yet"
    finalize(process)
    assert slot(shop, payment) == "final"
    assert desk.decide("resend")[0] == "applied"
    assert outcomes(process.work()) == ["sent"]
    node.mine()
    look(process, shop)
    assert desk.state == "confirming"


def test_failing_needs_proof_that_nothing_can_move(desk: Desk) -> None:
    assert desk.decide("fail")[0] == "rejected"
    desk.kill_nonce()
    desk.token.use(desk.payment.ref, b"\x01" * 32)
    assert desk.decide("fail")[0] == "rejected"
    desk.token.over.clear()
    assert desk.decide("fail")[0] == "applied"
    assert desk.state == "failed"
    assert desk.entries == ["hold", "void"]
    assert desk.decide("fail")[0] == "superseded"


def test_naming_the_transaction(desk: Desk) -> None:
    assert desk.decide("mark_sent", tx_hash="0x12")[0] == "rejected"
    assert desk.decide("mark_sent", tx_hash="0x" + "12" * 32)[0] == "rejected"
    tx_hash = desk.show()
    assert desk.decide("mark_sent", tx_hash=tx_hash)[0] == "applied"
    (now,) = desk.shop.now(desk.payment)
    assert (now.state.value, now.tx_hash) == ("confirming", bytes.fromhex(tx_hash[2:]))


@pytest.mark.parametrize("wrong", [{"amount": 1}, {"payer": "0x" + "77" * 20}])
def test_a_transaction_that_pays_something_else_is_not_the_payments(desk: Desk, wrong: dict[str, Any]) -> None:
    tx_hash = desk.show(**wrong)
    assert desk.decide("mark_sent", tx_hash=tx_hash)[0] == "rejected"
    desk.node.finalize()
    assert desk.decide("settle", tx_hash=tx_hash)[0] == "rejected"
    assert desk.state == "needs_review"


def test_settling_by_hand_takes_a_final_transaction(desk: Desk) -> None:
    tx_hash = desk.show()
    assert desk.decide("settle")[0] == "rejected"
    assert desk.decide("settle", tx_hash=tx_hash)[0] == "rejected"
    desk.node.finalize()
    assert desk.decide("settle", tx_hash=tx_hash)[0] == "applied"
    (now,) = desk.shop.now(desk.payment)
    assert (now.state.value, now.tx_hash) == ("settled", bytes.fromhex(tx_hash[2:]))
    assert desk.entries == ["hold", "post"]


def test_settling_what_was_paid_another_way_takes_a_dead_nonce(desk: Desk) -> None:
    paid = {"tx_hash": "0x" + "31" * 32, "off_chain": True}
    assert desk.decide("settle", **paid)[0] == "rejected"
    desk.kill_nonce()
    assert desk.decide("settle", **paid)[0] == "applied"
    assert desk.state == "settled"
    assert desk.entries == ["hold", "post"]


@pytest.mark.parametrize(
    "spent",
    [
        {"canceled": True, "payee": None, "amount": None},
        {"canceled": False, "payee": bytes.fromhex(MERCHANT[2:]), "amount": TERMS.amount - 1},
        {"canceled": False, "payee": b"\x42" * 20, "amount": TERMS.amount},
        {"canceled": False, "payee": None, "amount": None},
    ],
)
@pytest.mark.parametrize(("action", "end"), [("fail", "void"), ("settle", "post")])
def test_an_authorization_that_is_used_up_otherwise_does_not_keep_the_payment_in_review_for_ever(
    desk: Desk, spent: dict[str, Any], action: str, end: str
) -> None:
    """Canceled, or used for another amount or party: nothing can move the money as asked, which is as good as unused."""
    desk.kill_nonce()
    desk.token.use(desk.payment.ref, b"\x01" * 32)
    paid = {"tx_hash": "0x" + "31" * 32, "off_chain": True}
    observe(desk, **spent)
    assert desk.decide(action, **paid)[0] == "rejected"  # not final yet
    desk.node.finalize()
    assert desk.decide("resend")[0] == "rejected"
    assert desk.decide(action, **paid)[0] == "applied"
    assert desk.entries == ["hold", end]


def test_an_authorization_that_was_used_as_asked_is_no_failure(desk: Desk) -> None:
    desk.kill_nonce()
    desk.token.use(desk.payment.ref, b"\x01" * 32)
    desk.node.finalize()
    assert desk.decide("fail")[0] == "rejected"  # nothing shows by whom
    observe(desk, canceled=False, payee=bytes.fromhex(MERCHANT[2:]), amount=TERMS.amount)
    assert desk.decide("fail")[0] == "rejected"
    assert desk.state == "needs_review"


def observe(desk: Desk, *, canceled: bool, payee: bytes | None, amount: int | None) -> None:
    """The log shows what became of the authorization."""
    desk.shop.conn.execute(
        "INSERT INTO payment_observation (source_id, position, ref, token, authorizer, payee, amount, canceled, tx_hash, block_hash,"
        " observed_at) VALUES (1, %s, %s, %s, %s, %s, %s, %s, %s, %s, clock_timestamp())",
        (
            desk.node.block << 20, desk.payment.ref, bytes.fromhex(USDC[2:]), bytes.fromhex(PAYER[2:]), payee, amount, canceled,
            b"\x01" * 32, b"\x02" * 32,
        ),
    )  # fmt: skip


def test_a_silent_chain_leaves_the_command_open(desk: Desk) -> None:
    from tests.send.node import Drop

    def silent(methods: list[str]) -> None:
        raise Drop

    desk.node.on_batch = silent
    outcome, _ = desk.decide("fail")
    assert outcome == "None"
    assert desk.state == "needs_review"
