"""Cases driven into review on the running stack, decided in the browser by two people, each ending as the page said.

The relayer's way to the gateway leads through a fault proxy that refuses every submission; what is refused long enough goes to a person.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.contrib.auth.hashers import make_password
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.browser.screenshots import FLAGS, chromium, log_in
from tests.faults.rules import Fault, Rule
from tests.stack.harness import ROOT, ChainProxies, Stack
from tests.waiting import wait_until
from workers.devnet.accounts import wallet
from workers.devnet.sending import Call, Sender
from workers.devnet.traffic import Form, Traffic

pytestmark = [pytest.mark.browser, pytest.mark.full, pytest.mark.stack, pytest.mark.timeout(600)]
VAR = Path(os.environ.get("RELAYER_STACK_VAR", ROOT / "var" / "stack")).with_name("desk-stack")
PASSWORD = "a-Long-passw0rd"
REFUSED = Rule(Fault.ERROR, "eth_sendRawTransaction", options={"code": -32603, "message": "Internal error"})
PEOPLE = {"ada": "operator", "bob": "approver", "vera": "viewer"}
WAIT_MS = 60_000


@dataclass
class Desk:
    """The stack with its people, each in a browser profile of their own."""

    stack: Stack
    proxies: ChainProxies
    traffic: Traffic
    pages: dict[str, Page]

    def park(self, form: Form = "input_proof") -> tuple[str, int]:
        """A request that cannot be sent, until it waits for a person: its job id and its case."""
        self.proxies.gateway.add(REFUSED)
        (job_id,) = self.stack.post_all(self.traffic.build([form]))

        def case() -> Any:
            with self.stack.database() as conn:
                return conn.execute(
                    "SELECT c.id FROM review_case c JOIN input_proof_req r ON r.id = c.subject_id AND c.kind = 3"
                    " WHERE r.ext_job_id = %s AND c.status = 'open'",
                    (job_id,),
                ).fetchone()

        found = wait_until(case, 120, "the case of a request that could not be sent")
        assert found is not None
        return job_id, int(found[0])

    def open(self, who: str, case: int) -> Page:
        """The case in somebody's browser."""
        page = self.pages[who]
        page.goto(f"{self.stack.url}/admin/requests_app/reviewcase/{case}/change/")
        return page

    def decide(self, who: str, case: int, title: str, button: str, reason: str, **inputs: str) -> Page:
        """Take the case and decide it."""
        page = self.open(who, case)
        if page.get_by_role("button", name="Assign to me").count():
            page.get_by_role("button", name="Assign to me").click()
        deed = page.locator("details.rl-deed", has=page.locator("summary", has_text=title))
        deed.locator("summary").click()
        for name, value in inputs.items():
            deed.locator(f"[name={name}]").fill(value)
        deed.locator("[name=reason]").fill(reason)
        deed.get_by_role("button", name=button).click()
        return page

    def outcome(self, page: Page, word: str) -> None:
        """Wait until the page itself, without being touched, shows what became of the decision."""
        expect(page.locator("#case-progress .rl-badge", has_text=word).first).to_be_visible(timeout=WAIT_MS)

    def ends(self, job_id: str, *statuses: str) -> Any:
        """The row once the faults are gone."""
        self.proxies.clear()
        (row,) = self.stack.wait_final([job_id], 120)
        wait_until(lambda: self.row(job_id).status in statuses, 120, f"{statuses}, not {row.status}")
        return self.row(job_id)

    def row(self, job_id: str) -> Any:
        with self.stack.database() as conn:
            return self.stack.rows(conn, [job_id])[0]


def hire(conn: psycopg.Connection[Any]) -> None:
    """Ada, Bob and Vera with their roles."""
    for name, role in PEOPLE.items():
        conn.execute(
            "WITH u AS (INSERT INTO auth_user (username, password, is_staff, is_active, is_superuser, first_name, last_name, email, date_joined)"
            " VALUES (%s, %s, true, true, false, '', '', '', now()) RETURNING id)"
            " INSERT INTO auth_user_groups (user_id, group_id) SELECT u.id, g.id FROM u, auth_group g WHERE g.name = %s",
            (name, make_password(PASSWORD), role),
        )


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    proxies = ChainProxies.make(seed=7)
    stack = Stack(VAR, through=proxies, environment={"IN_FLIGHT_DEADLINE_SECONDS": "5"})
    try:
        with stack.database() as conn:
            hire(conn)
        with closing(Traffic(stack.deployment, operator=1)) as traffic, sync_playwright() as playwright:
            browser: Browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
            pages = {name: browser.new_context(viewport={"width": 1280, "height": 900}).new_page() for name in PEOPLE}
            for name, page in pages.items():
                log_in(page, stack.url, name, PASSWORD)
            yield Desk(stack, proxies, traffic, pages)
            browser.close()
    finally:
        stack.stop()
        proxies.close()


@pytest.fixture(autouse=True)
def _no_faults(desk: Desk) -> Iterator[None]:
    yield
    desk.proxies.clear()


def test_broadcast_again_completes_it(desk: Desk) -> None:
    job_id, case = desk.park()
    page = desk.open("vera", case)
    assert page.get_by_role("button", name="Assign to me").count() == 0
    page = desk.decide("ada", case, "Broadcast the same bytes again", "Broadcast again", "the node refused everybody")
    desk.outcome(page, "applied")
    assert desk.ends(job_id, "completed").gw_reference_id is not None
    page.reload()
    expect(page.get_by_text("the node refused everybody").first).to_be_visible()


def test_the_nodes_are_asked_and_a_higher_fee_completes_it(desk: Desk) -> None:
    job_id, case = desk.park()
    page = desk.open("ada", case)
    page.get_by_role("button", name="Ask every node now").click()
    expect(page.get_by_role("heading", name="What the nodes say")).to_be_visible()
    expect(page.locator(".rl-badge", has_text="unknown").first).to_be_visible()
    desk.decide("ada", case, "Replace with a higher fee", "Offer more", "fees rose", ceiling_gwei="500")
    desk.outcome(page, "applied")
    desk.ends(job_id, "completed")
    with desk.stack.database() as conn:
        kinds = conn.execute(
            "SELECT t.kind FROM tx_attempt t JOIN nonce_slot n USING (signer_id, nonce) JOIN input_proof_req r ON r.id = n.subject_id"
            " WHERE r.ext_job_id = %s AND n.kind = 3 ORDER BY t.seq",
            (job_id,),
        ).fetchall()
    assert ("replace",) in kinds


def test_a_canceled_nonce_ends_the_request_unless_ours_was_first(desk: Desk) -> None:
    job_id, case = desk.park()
    before = len(desk.stack.request_events())
    page = desk.decide("ada", case, "Cancel the nonce", "Cancel this nonce", "the client gave up")
    desk.outcome(page, "applied")
    row = desk.ends(job_id, "failure", "completed")
    assert len(desk.stack.request_events()) - before == (1 if row.status == "completed" else 0)


def test_a_wrong_transaction_is_rejected_and_the_page_says_so(desk: Desk) -> None:
    job_id, case = desk.park()
    page = desk.decide(
        "ada", case, "Name the transaction", "Attach this transaction", "support said so", tx_hash="0x" + "ab" * 32
    )
    desk.outcome(page, "rejected")
    expect(page.get_by_text("no successful transaction").first).to_be_visible()
    desk.decide("ada", case, "Broadcast the same bytes again", "Broadcast again", "that was the wrong one")
    desk.outcome(page, "applied")
    desk.ends(job_id, "completed")


def test_two_browsers_at_once_give_one_effect_and_a_disabled_reviewer_none(desk: Desk) -> None:
    job_id, case = desk.park()
    ada, bob = desk.open("ada", case), desk.open("bob", case)
    ada.get_by_role("button", name="Assign to me").click()
    bob.get_by_role("button", name="Assign to me").click()
    expect(bob.get_by_text("ada works on this case").first).to_be_visible()
    assert bob.locator("details.rl-deed").count() == 0
    deed = ada.locator("details.rl-deed", has=ada.locator("summary", has_text="Broadcast the same bytes again"))
    deed.locator("summary").click()
    deed.locator("[name=reason]").fill("late")
    with desk.stack.database() as conn:
        conn.execute("UPDATE auth_user SET is_active = false WHERE username = 'ada'")
    deed.get_by_role("button", name="Broadcast again").click()
    ada.wait_for_url("**/login/**")
    with desk.stack.database() as conn:
        assert conn.execute("SELECT count(*) FROM review_decision WHERE case_id = %s", (case,)).fetchone() == (0,)
        conn.execute("UPDATE auth_user SET is_active = true WHERE username = 'ada'")
    page = desk.decide("ada", case, "Broadcast the same bytes again", "Broadcast again", "enabled again")
    desk.outcome(page, "applied")
    desk.ends(job_id, "completed")


def lose_nonce(desk: Desk, job_id: str) -> int:
    """The key is used elsewhere, so the nonce is gone; what rule R5 needs two nodes and a minute for is written here by hand."""
    with desk.stack.database() as conn:
        found = conn.execute(
            "SELECT n.signer_id, n.nonce, s.address FROM nonce_slot n JOIN signer s ON s.id = n.signer_id"
            " JOIN input_proof_req r ON r.id = n.subject_id WHERE n.kind = 3 AND r.ext_job_id = %s",
            (job_id,),
        ).fetchone()
    assert found is not None
    signer_id, nonce, address = found
    keys = (bytes.fromhex(key.removeprefix("0x")) for key in desk.stack.deployment.raw["relayer_signer_keys"])
    account = next(one for one in map(wallet, keys) if one.address.lower() == f"0x{bytes(address).hex()}")
    assert desk.stack.rpc.nonce(account.address) == nonce
    Sender(desk.stack.rpc, account, desk.stack.rpc.chain_id()).run([Call(account.address, b"", 21_000)])
    with desk.stack.database() as conn:
        conn.execute("UPDATE nonce_slot SET state = 'dead' WHERE signer_id = %s AND nonce = %s", (signer_id, nonce))
        conn.execute("UPDATE tx_attempt SET state = 'dropped' WHERE signer_id = %s AND nonce = %s", (signer_id, nonce))
    return int(signer_id)


def confirm(desk: Desk, case: int) -> None:
    """Ada cannot, Bob does."""
    page = desk.pages["ada"]
    expect(page.get_by_text("waits for a second person").first).to_be_visible()
    assert page.get_by_role("button", name="Confirm").count() == 0
    bob = desk.open("bob", case)
    bob.get_by_role("button", name="Confirm").click()
    desk.outcome(bob, "applied")


def resume(desk: Desk, signer_id: int) -> None:
    """Bob explains the other use of the key, if the relayer blocked it."""
    page = desk.pages["bob"]
    page.goto(f"{desk.stack.url}/admin/requests_app/signer/{signer_id}/change/")
    if page.locator("summary", has_text="Resume the signer").count():
        page.locator("summary", has_text="Resume the signer").click()
        page.locator("details[open] [name=reason]").fill("the other use is explained")
        page.get_by_role("button", name="Resume").click()
        desk.outcome(page, "applied")


def test_a_lost_nonce_is_sent_anew_when_another_person_confirms(desk: Desk) -> None:
    job_id, case = desk.park()
    signer_id = lose_nonce(desk, job_id)
    desk.decide("ada", case, "Send anew on a new nonce", "Propose a new nonce", "the nonce is gone for good")
    confirm(desk, case)
    resume(desk, signer_id)
    desk.ends(job_id, "completed")


def test_a_lost_request_fails_when_another_person_confirms(desk: Desk) -> None:
    job_id, case = desk.park()
    before = len(desk.stack.request_events())
    signer_id = lose_nonce(desk, job_id)
    desk.decide("ada", case, "Close it as failed", "Close as failed", "the client asked elsewhere")
    confirm(desk, case)
    assert "the client asked elsewhere" in desk.ends(job_id, "failure").fail_detail
    resume(desk, signer_id)
    assert len(desk.stack.request_events()) == before


def test_a_signer_is_paused_and_resumed(desk: Desk) -> None:
    page = desk.pages["ada"]
    with desk.stack.database() as conn:
        found = conn.execute("SELECT id FROM signer WHERE status = 'active' ORDER BY id LIMIT 1").fetchone()
    assert found is not None
    page.goto(f"{desk.stack.url}/admin/requests_app/signer/{found[0]}/change/")
    for title, button, status in (("Pause the signer", "Pause", "paused"), ("Resume the signer", "Resume", "active")):
        page.locator("summary", has_text=title).click()
        page.locator("details[open] [name=reason]").fill("maintenance")
        page.get_by_role("button", name=button, exact=True).click()
        expect(page.locator(".rl-fact .rl-badge", has_text=status).first).to_be_visible(timeout=WAIT_MS)
