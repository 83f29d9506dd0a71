"""Several people at once on the running stack: who may, who was first, whose word counts, and what clients write is only text."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.running.conftest import MARKS
from tests.browser.running.desk import PASSWORD, Desk
from tests.browser.screenshots import log_in
from tests.browser.test_desk import heard
from tests.desk.surroundings import HOSTILE

pytestmark = list(MARKS)
RESUME = ("Broadcast the same bytes again", "Broadcast again")
SETTLE = ("Settle it by hand", "Propose to settle")
WORDS = {"tx_hash": "0x" + "cd" * 32, "evidence": "off_chain"}


def decisions(desk: Desk, case: int) -> list[tuple[str, str]]:
    """(state, by) of the case's decisions."""
    with desk.stack.database() as conn:
        query = "SELECT state, decided_by FROM review_decision WHERE case_id = %s ORDER BY seq"
        return [(str(state), str(by)) for state, by in conn.execute(query, (case,))]


def test_of_two_browsers_that_decide_at_once_one_has_an_effect(desk: Desk) -> None:
    """The same person in two browsers: both forms are filled in from the same version of the case, both are sent off."""
    payment, case = desk.park_payment()
    deed = desk.fill("ada", case, *RESUME[:1], "first")
    twin = desk.pages["ada"].context.new_page()
    twin.goto(desk.pages["ada"].url)
    other = desk.deed(twin, "Cancel the nonce")
    other.locator("[name=reason]").fill("second")
    deed.get_by_role("button", name=RESUME[1]).click()
    other.get_by_role("button", name="Cancel this nonce").click()
    expect(twin.get_by_text("Nothing was done").first).to_be_visible()
    twin.close()
    assert [by for _, by in decisions(desk, case)] == ["ada"]
    desk.outcome(desk.open("ada", case))
    desk.clear()
    desk.until(payment, "settled")
    assert desk.entries(payment) == ["hold", "post"]


def test_a_proposal_is_confirmed_by_another_approver_refused_by_a_second_person_and_void_for_a_disabled_one(
    desk: Desk,
) -> None:
    payment, case = desk.park_payment()
    # Bob may approve, but not what he proposed himself.
    desk.decide("bob", case, *SETTLE, "statement 7", **WORDS)
    bob = desk.pages["bob"]
    expect(bob.get_by_text("An approver other than you must confirm it").first).to_be_visible()
    assert bob.get_by_role("button", name="Confirm").count() == 0
    # An operator and a viewer see it and cannot say a word.
    for who in ("ada", "vera"):
        page = desk.open(who, case)
        expect(page.get_by_text("An approver must confirm it").first).to_be_visible()
        assert (
            page.get_by_role("button", name="Confirm").count() + page.get_by_role("button", name="Refuse").count() == 0
        )
    # Bob withdraws it, which nobody else is offered; Cara refuses the next one. The case stays open for another decision.
    for who, title, button, word in (
        ("bob", "Withdraw your proposal", "Withdraw", "withdrawn"),
        ("cara", "Refuse it", "Refuse", "refused"),
    ):
        if who == "cara":
            desk.decide("bob", case, *SETTLE, "statement 7 again", **WORDS)
        page = desk.open(who, case)
        other = "Refuse it" if who == "bob" else "Withdraw your proposal"
        assert page.locator("summary", has_text=other).count() == 0
        deed = desk.deed(page, title)
        deed.locator("[name=reason]").fill(f"{word} because of page 3")
        deed.get_by_role("button", name=button, exact=True).click()
        expect(page.locator("#case-progress").get_by_text(f"{word} because of page 3").first).to_be_visible()
    assert decisions(desk, case) == [("withdrawn", "bob")] * 2
    # A second proposal; Cara is disabled with the page open, so that her word does not count.
    desk.decide("bob", case, *SETTLE, "statement 8", **WORDS)
    cara = desk.open("cara", case)
    desk.do("UPDATE auth_user SET is_active = false WHERE username = 'cara'")
    try:
        cara.get_by_role("button", name="Confirm").click()
        cara.wait_for_url("**/login/**")
    finally:
        desk.do("UPDATE auth_user SET is_active = true WHERE username = 'cara'")
    assert decisions(desk, case)[-1] == ("awaiting_second", "bob")
    # Enabled again she confirms; the chain refuses it, because something may still be mined.
    cara = desk.open("cara", case)
    cara.get_by_role("button", name="Confirm").click()
    desk.outcome(cara, "rejected")
    assert desk.entries(payment) == ["hold"]
    desk.outcome(desk.decide("bob", case, *RESUME, "on with it"))
    desk.clear()
    desk.until(payment, "settled")


def no_script_runs(page: Page, url: str) -> list[str]:
    """The dialogs that a page opened."""
    alerts: list[str] = []
    page.on("dialog", lambda dialog: heard(dialog, alerts))
    page.goto(url)
    page.wait_for_load_state("networkidle")
    return [text for text in alerts if text.startswith("alert")]


def test_what_clients_and_people_write_is_shown_as_text(desk: Desk) -> None:
    """The API takes only addresses, numbers and hashes of a payment: texts come as reasons, names, and through the token's own words."""
    payment, case = desk.park_payment()
    desk.decide("ada", case, "Name the transaction that carries it", "Mark as sent", HOSTILE, tx_hash="0x" + "aa" * 32)
    desk.outcome(desk.pages["ada"], "rejected")
    number = desk.number(payment)
    account, name = desk.one(
        "SELECT a.id, a.name FROM client_account a JOIN payment_intent i ON i.account_id = a.id WHERE i.id = %s", number
    )
    # What no client can write today, written by hand: terms of another chain, a reason, a name.
    desk.do("UPDATE client_account SET name = %s WHERE id = %s", HOSTILE, account)
    letter = park_letter(desk, number, HOSTILE)
    base = f"{desk.stack.url}/admin/requests_app"
    page = desk.browser.new_context().new_page()
    log_in(page, desk.stack.url, "vera", PASSWORD)
    for path in (
        f"reviewcase/{case}/change/", "reviewcase/", f"paymentintent/{number}/change/", "paymentintent/", "account/",
        f"deadletter/{letter}/change/", "deadletter/",
    ):  # fmt: skip
        assert no_script_runs(page, f"{base}/{path}") == [], path
        assert page.locator("img[onerror], script:not([src]):not([type])", has_text="alert(").count() == 0, path
    assert HOSTILE in page.inner_text("body")
    page.context.close()
    desk.do("UPDATE client_account SET name = %s WHERE id = %s", name, account)
    desk.do(
        "UPDATE dead_letter SET status = 'dropped', resolved_by = 'test', resolved_at = now() WHERE id = %s", letter
    )
    desk.clear()


def park_letter(desk: Desk, number: int, reason: str) -> int:
    """A job of the payment that was given up, as the settle worker would have parked it."""
    found = desk.one(
        "INSERT INTO dead_letter (queue, job_key, kind, subject_id, tenant_id, priority, attempts, cycles, reason, subject_state, parked_at)"
        " SELECT 'settle', public_id || '/settle', 4, id, account_id, 0, 8, 1, %s, state, now() FROM payment_intent WHERE id = %s RETURNING id",
        reason,
        number,
    )
    return int(found[0])


@pytest.mark.parametrize(("first", "then"), [("Redrive", "Drop"), ("Drop", "Redrive")])
def test_of_two_browsers_one_moves_a_dead_letter(desk: Desk, first: str, then: str) -> None:
    payment = desk.create()
    letter = park_letter(desk, desk.number(payment), "the token refuses it")
    path = f"{desk.stack.url}/admin/requests_app/deadletter/{letter}/change/"
    ada, bob = desk.pages["ada"], desk.pages["bob"]
    for page, deed in ((ada, first), (bob, then)):
        page.goto(path)
        page.locator("summary", has_text=deed).click()
    vera = desk.pages["vera"]
    vera.goto(path)
    assert vera.locator("summary", has_text=first).count() == 0
    ada.locator("details[open]").get_by_role("button", name=first, exact=True).click()
    expect(ada.get_by_text("Back in its queue" if first == "Redrive" else "Dropped").first).to_be_visible()
    bob.locator("details[open]").get_by_role("button", name=then, exact=True).click()
    expect(bob.get_by_text("A colleague was first").first).to_be_visible()
    row = desk.one("SELECT status, resolved_by FROM dead_letter WHERE id = %s", letter)
    assert row == ("redriven" if first == "Redrive" else "dropped", "ada")
