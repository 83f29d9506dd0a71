"""Payments driven into review on the running stack by the chain itself, decided in the browser, each ending as the page said."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.running.conftest import MARKS
from tests.browser.running.desk import AMOUNT, REFUSED, SECONDS, Desk, Payment
from tests.faults.rules import Fault, Rule
from tests.waiting import wait_until
from workers.devnet.accounts import labelled

pytestmark = list(MARKS)
NO_LOGS = Rule(Fault.ERROR, "eth_getLogs", options={"code": -32000, "message": "the index is being rebuilt"})
RESUME = ("Broadcast the same bytes again", "Broadcast again")
CANCEL = ("Cancel the nonce", "Cancel this nonce")
RESEND = ("Send anew on a new nonce", "Propose a new nonce")
MARK_SENT = ("Name the transaction that carries it", "Mark as sent")
SETTLE = ("Settle it by hand", "Propose to settle")
FAIL = ("Close it as failed", "Close as failed")
NOTE = ("Take note and close the case", "Close the case")


def test_outcome_unknown_broadcast_again_settles_it(desk: Desk) -> None:
    payment, case = desk.park_payment()
    assert desk.entries(payment) == ["hold"]
    page = desk.decide("ada", case, *RESUME, "the node refused everybody")
    desk.outcome(page)
    desk.clear()
    desk.until(payment, "settled")
    assert desk.entries(payment) == ["hold", "post"]


def test_outcome_unknown_a_named_transaction_settles_it(desk: Desk) -> None:
    """Somebody else executes it while the nodes answer for no log: only the person who names the transaction knows."""
    payment, case = desk.park_payment(lasts=3600)
    desk.add(NO_LOGS)
    sent = desk.as_somebody(desk.transfer(payment))
    page = desk.decide("ada", case, *MARK_SENT, "the merchant has it", tx_hash="0x" + "ab" * 32)
    desk.outcome(page, "rejected")
    page = desk.decide("ada", case, *MARK_SENT, "the merchant has it", tx_hash=sent)
    desk.outcome(page)
    desk.clear()
    desk.until(payment, "settled")
    assert desk.stack.api.get(f"/v1/payment-intents/{payment.intent_id}").body["tx_hash"] == sent
    assert desk.entries(payment) == ["hold", "post"]


def test_authorization_window_closed_a_canceled_nonce_ends_it_as_failed(desk: Desk) -> None:
    """The node takes it and forgets it, and takes nothing more until the payer's window is over."""
    with desk.no_blocks():
        payment = desk.pay(lasts=27)
        desk.until(payment, "confirming")
        desk.add(REFUSED)
        desk.stack.rpc.call("anvil_dropAllTransactions")
    case = desk.payment_case(payment, "authorization_window_closed")
    page = desk.take("ada", case)
    expect(page.get_by_text("the call would revert").first).to_be_visible()
    # Only then: the relayer offers to spend the nonce on nothing itself, and what the node took first would have ended it.
    decided = desk.decide("ada", case, *CANCEL, "nobody can carry it out any more")
    desk.clear()
    desk.outcome(decided)
    desk.until(payment, "failed")
    assert desk.entries(payment) == ["hold", "void"]


def spent_otherwise(desk: Desk, *, amount: int = AMOUNT, merchant: str = "merchant") -> Payment:
    """The payer signs a second authorization with the same ref; somebody executes it in the same block, just before ours."""
    to = labelled(merchant).address
    with desk.no_blocks():
        payment = desk.pay()
        desk.until(payment, "confirming")
        other = desk.signed(payment.payer, to, amount, payment.ref)
        call = desk.transfer(payment, other, amount=amount, merchant=to)
        desk.first_in_block(desk.stack.deployment.users[5], call)
    return payment


def test_amount_mismatch_is_settled_by_hand_by_two_persons(desk: Desk) -> None:
    payment = spent_otherwise(desk, amount=AMOUNT - 1)
    case = desk.payment_case(payment, "amount_mismatch")
    desk.nonce_is_final(payment)
    what = {"tx_hash": "0x" + "cd" * 32, "evidence": "off_chain"}
    desk.decide("ada", case, *SETTLE, "the merchant takes one unit less", **what)
    desk.confirm(case)
    desk.until(payment, "settled")
    assert desk.entries(payment) == ["hold", "post"]
    # The books name a transaction that the chain does not show.
    desk.outcome(desk.decide("ada", desk.payment_case(payment, "receipt_vanished"), *NOTE, "as agreed"))


def test_wrong_party_is_closed_as_failed_by_two_persons(desk: Desk) -> None:
    payment = spent_otherwise(desk, merchant="another merchant")
    case = desk.payment_case(payment, "wrong_party")
    desk.nonce_is_final(payment)
    desk.decide("ada", case, *FAIL, "somebody else was paid")
    desk.confirm(case)
    desk.until(payment, "failed")
    assert desk.entries(payment) == ["hold", "void"]


def reverted(desk: Desk) -> Payment:
    """The token refuses the payer in the very block, and no longer."""
    with desk.no_blocks():
        payment = desk.pay(payer=3)
        desk.until(payment, "confirming")
        refuse = desk.as_owner_first("setBlacklisted", payment.payer.address, True)
    assert desk.stack.rpc.receipts([refuse])[0]["status"] == "0x1"
    return payment


def test_reverted_final_is_sent_anew_by_two_persons(desk: Desk) -> None:
    payment = reverted(desk)
    case = desk.payment_case(payment, "reverted_final")
    desk.nonce_is_final(payment)
    desk.as_owner("setBlacklisted", payment.payer.address, False)
    desk.decide("ada", case, *RESEND, "the token takes the payer again")
    desk.confirm(case)
    desk.until(payment, "settled")
    assert desk.entries(payment) == ["hold", "post"]


def test_reverted_final_settled_by_documents_then_receipt_vanished_then_paid_twice(desk: Desk) -> None:
    """Paid outside the chain; the books then name a transaction that the chain does not show; later the payer's authorization is used."""
    payment = reverted(desk)
    case = desk.payment_case(payment, "reverted_final")
    desk.nonce_is_final(payment)
    what = {"tx_hash": "0x" + "ef" * 32, "evidence": "off_chain"}
    desk.decide("ada", case, *SETTLE, "paid by wire, statement 118", **what)
    desk.confirm(case)
    desk.until(payment, "settled")
    taken_note_of(desk, payment, "receipt_vanished")
    desk.as_owner("setBlacklisted", payment.payer.address, False)
    desk.as_somebody(desk.transfer(payment))
    taken_note_of(desk, payment, "paid_twice")
    assert desk.state(payment) == "settled"
    assert desk.entries(payment) == ["hold", "post"]


def taken_note_of(desk: Desk, payment: Payment, reason: str) -> None:
    """A case about a payment that has ended: the only deed is to close it, and the payment stays."""
    case = desk.payment_case(payment, reason)
    page = desk.decide("ada", case, *NOTE, "seen and written down")
    desk.outcome(page)
    wait_until(
        lambda: desk.one("SELECT status FROM review_case WHERE id = %s", case) == ("closed",), SECONDS, "it is closed"
    )


def test_unexpected_payment_is_taken_note_of(desk: Desk) -> None:
    """Canceled by its client, and executed all the same by somebody who has the payer's signature."""
    payment = desk.create(payer=4)
    answer = desk.stack.api.post(f"/v1/payment-intents/{payment.intent_id}/cancel", {})
    assert answer.status == 200, answer
    desk.as_somebody(desk.transfer(payment))
    taken_note_of(desk, payment, "unexpected_payment")
    assert desk.state(payment) == "canceled"
    assert desk.entries(payment) == []
