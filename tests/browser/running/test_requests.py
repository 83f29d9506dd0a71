"""Requests driven into review on the running stack, decided in the browser, each ending as the page said: a test for each reason code."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from requests_app.states import Kind
from tests.browser.running.conftest import MARKS
from tests.browser.running.desk import REFUSED, SECONDS, UNDERPRICED, Desk, refusing
from tests.faults.rules import Fault, Rule
from tests.waiting import wait_until
from workers.devnet.contracts import contract
from workers.devnet.sending import Call, Sender
from workers.replace import call_of

pytestmark = list(MARKS)
DEAR_WEI = 400 * 10**9  # the relayer then offers its ceiling of 500 gwei, and may offer no more


def test_outcome_unknown_broadcast_again_completes_it(desk: Desk) -> None:
    job_id, case = desk.park()
    page = desk.open("vera", case)
    assert page.get_by_role("button", name="Assign to me").count() == 0
    page = desk.decide("ada", case, "Broadcast the same bytes again", "Broadcast again", "the node refused everybody")
    desk.outcome(page)
    assert desk.ends(job_id, "completed").gw_reference_id is not None
    page.reload()
    expect(page.get_by_text("the node refused everybody").first).to_be_visible()


def test_fee_ceiling_the_nodes_are_asked_and_a_higher_fee_completes_it(desk: Desk) -> None:
    desk.add(UNDERPRICED)
    asked = lambda: desk.stack.rpc.call("anvil_setNextBlockBaseFeePerGas", hex(DEAR_WEI))  # noqa: E731
    asked()
    job_id, request = desk.post()
    desk.patient(request)
    case, reason = desk.case_of(Kind.INPUT_PROOF, request, meanwhile=asked)
    assert reason == "fee_ceiling"
    page = desk.open("ada", case)
    page.get_by_role("button", name="Ask every node now").click()
    expect(page.get_by_role("heading", name="What the nodes say")).to_be_visible()
    expect(page.locator(".rl-badge", has_text="unknown").first).to_be_visible()
    desk.decide("ada", case, "Replace with a higher fee", "Offer more", "fees rose", ceiling_gwei="900")
    desk.outcome(page)
    desk.ends(job_id, "completed")
    with desk.stack.database() as conn:
        kinds = conn.execute(
            "SELECT t.kind FROM tx_attempt t JOIN nonce_slot n USING (signer_id, nonce) JOIN input_proof_req r ON r.id = n.subject_id"
            " WHERE r.ext_job_id = %s AND n.kind = 3 ORDER BY t.seq",
            (job_id,),
        ).fetchall()
    assert ("replace",) in kinds


def test_refused_after_signing_is_sent_anew_when_another_person_confirms(desk: Desk) -> None:
    """The node refuses the bytes for good, so the nonce is spent on nothing: nothing can be mined at it, and a new one is allowed."""
    job_id, case = desk.park(refusing("invalid sender", -32000, times=1), "refused_after_signing")
    desk.clear()
    found = desk.nonce_of(job_id)
    assert found is not None
    desk.dead_nonce(found[0], found[1])
    desk.decide("ada", case, "Send anew on a new nonce", "Propose a new nonce", "the node has been mended")
    desk.confirm(case)
    desk.ends(job_id, "completed")
    assert desk.nonce_of(job_id) != found


def test_foreign_nonce_fails_when_another_person_confirms(desk: Desk) -> None:
    """The signer's key is used elsewhere: its nonce is gone, which two endpoints show twice, a minute apart."""
    before = len(desk.stack.request_events())
    desk.add(refusing())
    job_id, request = desk.post()
    signer_id, nonce, address = wait_until(lambda: desk.nonce_of(job_id), SECONDS, "the nonce")  # type: ignore[misc]
    desk.patient(request)
    assert desk.stack.rpc.nonce(address) == nonce
    desk.use_key(address, 2)
    case, reason = desk.case_of(Kind.INPUT_PROOF, request)
    assert reason == "foreign_nonce"
    desk.dead_nonce(signer_id, nonce)
    desk.decide("ada", case, "Close it as failed", "Close as failed", "the client asked elsewhere")
    desk.confirm(case)
    assert "the client asked elsewhere" in desk.ends(job_id, "failure").fail_detail
    desk.resume_signer(signer_id)
    assert len(desk.stack.request_events()) == before


def test_signer_blocked_a_canceled_nonce_ends_it_unless_ours_was_first(desk: Desk) -> None:
    """The nodes answer another hash than that of the bytes: whatever they took, nobody can say."""
    before = len(desk.stack.request_events())
    job_id, case = desk.park(Rule(Fault.OTHER_HASH), "signer_blocked")
    signer_id, _, _ = desk.nonce_of(job_id) or (0, 0, "")
    page = desk.open("ada", case)
    expect(page.get_by_text("Its signer may not send").first).to_be_visible()
    expect(page.get_by_text("hash_mismatch").first).to_be_visible()
    page = desk.decide("ada", case, "Cancel the nonce", "Cancel this nonce", "the client gave up")
    desk.outcome(page)
    row = desk.ends(job_id, "failure", "completed")
    assert len(desk.stack.request_events()) - before == (1 if row.status == "completed" else 0)
    assert desk.one("SELECT status, status_reason FROM signer WHERE id = %s", signer_id) == ("blocked", "hash_mismatch")
    desk.resume_signer(signer_id)
    assert desk.one("SELECT status FROM signer WHERE id = %s", signer_id) == ("active",)


def test_signer_blocked_by_a_chain_that_waits_at_a_nonce_of_nobody(desk: Desk) -> None:
    """The chain forgets a transaction of the signer. Whoever holds the key fills the nonce: everything behind goes on by itself."""
    desk.add(REFUSED)
    job_id, request = desk.post()
    signer_id, nonce, address = wait_until(lambda: desk.nonce_of(job_id), SECONDS, "the nonce")  # type: ignore[misc]
    desk.patient(request)
    earlier = "SELECT 1 FROM nonce_slot WHERE signer_id = %s AND nonce < %s AND state NOT IN ('final', 'dead')"
    wait_until(lambda: desk.one(earlier, signer_id, nonce) is None, SECONDS, "what was mined before is final")
    desk.stack.rpc.call("anvil_setNonce", address, hex(nonce - 1))
    desk.clear()
    case, reason = desk.case_of(Kind.INPUT_PROOF, request)
    assert reason == "signer_blocked"
    expect(desk.open("ada", case).get_by_text("nonce_gap").first).to_be_visible()
    desk.use_key(address, 1)
    desk.ends(job_id, "completed")
    assert desk.one("SELECT status, outcome FROM review_case WHERE id = %s", case) == ("closed", "record_receipt")
    desk.resume_signer(signer_id)


def test_envelope_conflict_goes_on_when_the_halt_is_lifted(desk: Desk) -> None:
    """A node shows two events at one position. Without it, the true one is read and takes the request on."""
    desk.add(Rule(Fault.TWO_EVENTS))
    job_id, request = desk.post()
    case, reason = desk.case_of(Kind.INPUT_PROOF, request)
    assert reason == "envelope_conflict"
    page = desk.open("ada", case)
    expect(page.get_by_text("The chain contradicts itself").first).to_be_visible()
    assert desk.row(job_id).status == "needs_review"
    page.goto(f"{desk.stack.url}/admin/requests_app/envelopesource/1/change/")
    expect(page.get_by_text("stored events differ from what the chain shows now").first).to_be_visible()
    desk.clear()
    page.locator("summary", has_text="Lift the halt").click()
    page.locator("details[open] [name=reason]").fill("the node was taken away")
    page.get_by_role("button", name="Lift the halt").click()
    desk.outcome(page)
    desk.ends(job_id, "completed")
    assert desk.one("SELECT status, outcome FROM review_case WHERE id = %s", case) == ("closed", "record_receipt")


def test_a_named_transaction_is_rejected_when_wrong_and_taken_when_it_carries_the_request(desk: Desk) -> None:
    job_id, case = desk.park()
    name, button = "Name the transaction", "Attach this transaction"
    page = desk.decide("ada", case, name, button, "support said so", tx_hash="0x" + "ab" * 32)
    desk.outcome(page, "rejected")
    expect(page.get_by_text("no successful transaction").first).to_be_visible()
    raw = desk.one(
        "SELECT t.raw_tx FROM tx_attempt t JOIN nonce_slot n USING (signer_id, nonce) JOIN input_proof_req r ON r.id = n.subject_id"
        " WHERE n.kind = 3 AND r.ext_job_id = %s ORDER BY t.seq DESC LIMIT 1",
        job_id,
    )[0]
    other = sent_by_another(desk, bytes(raw))
    page = desk.decide("ada", case, name, button, "another instance sent it", tx_hash=other)
    desk.outcome(page)
    row = desk.ends(job_id, "completed")
    assert "0x" + bytes(row.gw_req_tx_hash).hex() == other


def sent_by_another(desk: Desk, raw: bytes) -> str:
    """The same call from another account, which pays the fee itself: the hash."""
    to, data, gas = call_of(raw)
    gateway = desk.stack.deployment.gateway
    sender = Sender(desk.stack.rpc, desk.stack.deployment.users[7], desk.chain_id)
    approval = contract("ZamaToken").call("approve", gateway["payment"], 10**30)
    sender.run([Call(gateway["fee_token"], approval)])
    (sent,) = sender.send([Call("0x" + to.hex(), data, gas)])
    (receipt,) = desk.stack.rpc.receipts([sent])
    assert receipt["status"] == "0x1"
    return sent


def test_two_browsers_at_once_give_one_effect_and_a_disabled_reviewer_none(desk: Desk) -> None:
    job_id, case = desk.park()
    ada, bob = desk.open("ada", case), desk.open("bob", case)
    ada.get_by_role("button", name="Assign to me").click()
    bob.get_by_role("button", name="Assign to me").click()
    expect(bob.get_by_text("ada works on this case").first).to_be_visible()
    assert bob.locator("details.rl-deed").count() == 0
    deed = desk.deed(ada, "Broadcast the same bytes again")
    deed.locator("[name=reason]").fill("late")
    desk.do("UPDATE auth_user SET is_active = false WHERE username = 'ada'")
    deed.get_by_role("button", name="Broadcast again").click()
    ada.wait_for_url("**/login/**")
    assert desk.one("SELECT count(*) FROM review_decision WHERE case_id = %s", case) == (0,)
    desk.do("UPDATE auth_user SET is_active = true WHERE username = 'ada'")
    page = desk.decide("ada", case, "Broadcast the same bytes again", "Broadcast again", "enabled again")
    desk.outcome(page)
    desk.ends(job_id, "completed")


def test_a_signer_is_paused_and_resumed(desk: Desk) -> None:
    page = desk.pages["ada"]
    found = desk.one("SELECT id FROM signer WHERE status = 'active' ORDER BY id LIMIT 1")
    page.goto(f"{desk.stack.url}/admin/requests_app/signer/{found[0]}/change/")
    for title, button, status in (("Pause the signer", "Pause", "paused"), ("Resume the signer", "Resume", "active")):
        page.locator("summary", has_text=title).click()
        page.locator("details[open] [name=reason]").fill("maintenance")
        page.get_by_role("button", name=button, exact=True).click()
        expect(page.locator(".rl-fact .rl-badge", has_text=status).first).to_be_visible(timeout=60_000)


@pytest.mark.parametrize("who", ["vera"])
def test_a_viewer_sees_no_deed(desk: Desk, who: str) -> None:
    job_id, case = desk.park()
    page = desk.open(who, case)
    assert page.locator("details.rl-deed, form[data-once] button").count() == 0
    desk.ends(job_id, "completed")  # by itself: its nonce is not left open before those of the next tests
