"""The pictures of docs/reviewer-guide.md, taken from a database that is the same every time. GUIDE_OUT says where they go."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from playwright.sync_api import Page, sync_playwright

from requests_app import assignments, decisions, models, overview, probing
from requests_app.admin import charts
from requests_app.models.reviews import ReviewAction
from requests_app.probing import NodeReport, Question, Receipt, Sighting
from requests_app.states import IntentState, Kind
from requests_app.store.session import web_connection
from tests.browser.screenshots import FLAGS, chromium, log_in
from tests.browser.test_desk import alone, empty_log
from tests.desk.scene import Scene
from tests.payments.terms import USDC
from tests.waiting import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]
PASSWORD = "a-Long-passw0rd"
LARGEST = 160_000


class TwoNodes:
    """A prober whose nodes disagree."""

    def ask(self, question: Question) -> list[NodeReport]:
        first, *rest = question.hashes
        near = [Sighting(first, Receipt(81_305, 1), known=True, pending=False)]
        far = [Sighting(one, None, known=False, pending=False) for one in question.hashes]
        near += [Sighting(one, None, known=False, pending=False) for one in rest]
        nonces = {"latest": 1_205, "pending": 1_206, "finalized": 1_190}
        done = {"proof verified": False, "proof rejected": False} if question.kind is Kind.INPUT_PROOF else {}
        return [
            NodeReport("rpc.gateway.example", 81_310, 81_274, nonces, 9_871 * 10**15, done, near, 0.042),
            NodeReport(
                "backup.gateway.example", 81_290, 81_274, {**nonces, "latest": 1_190}, 9_871 * 10**15, done, far, 0.118
            ),
            NodeReport("third.gateway.example", error="no answer within 3 s"),
        ]


def history() -> None:
    """An hour of traffic for the charts."""
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    rows = []
    for minute in range(60):
        at = now - timedelta(minutes=minute)
        for bucket, n in ((3, 14 + minute % 7), (5, 9), (8, 2 + minute % 3)):
            rows.append(("completed", "", bucket, n, at))
        if minute % 9 == 4:
            rows.append(("failure", "not_allowed_on_host_acl", 2, 3, at))
            rows.append(("timed_out", "response_timed_out", 30, 1, at))
    for status, label, bucket, n, at in rows:
        for grain in (60, 900, 7200):
            step = datetime.fromtimestamp(at.timestamp() // grain * grain, UTC)
            row, made = models.FinishedFigure.objects.get_or_create(
                grain=grain, at=step, kind=1, status=status, label=label, bucket=bucket, defaults={"n": n}
            )
            if not made:
                models.FinishedFigure.objects.filter(pk=row.pk).update(n=row.n + n)


@pytest.fixture
def scene(live_server: object, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    settings.CHAIN_PROBER = f"{__name__}.TwoNodes"
    settings.PAYMENT_TOKENS = [{"address": USDC, "name": "USD Coin", "version": "2", "symbol": "USDC", "decimals": 6}]
    probing.prober.cache_clear()
    overview.forget()
    charts.forget()
    empty_log()
    made = Scene().build(each=2)
    for case in made.cases:
        models.ReviewCase.objects.filter(pk=case.pk).update(evidence={"asked_endpoints": 2, "latest_nonce": 1201})
    history()
    for name, role in (("ada", "operator"), ("bob", "approver")):
        User.objects.create_user(name, password=PASSWORD, is_staff=True).groups.add(Group.objects.get(name=role))
    yield made
    wait_until(alone, 60, "the server's threads let their sessions go")
    probing.prober.cache_clear()
    overview.forget()
    charts.forget()
    empty_log()


def proposed(case: models.ReviewCase) -> None:
    """Ada has proposed a new nonce."""
    models.NonceSlot.objects.filter(kind=case.kind, subject_id=case.subject_id).update(state="dead")
    hold = assignments.assign(web_connection(), case.pk, User.objects.get(username="ada").pk)
    assert hold is not None
    decisions.decide(
        web_connection(), case_id=case.pk, version=1, action=ReviewAction.RESEND, held=hold.held,
        reason="both nodes: the nonce is final and none of our hashes is known", reviewer_id=User.objects.get(username="ada").pk,
    )  # fmt: skip


class Camera:
    """Takes the pictures and checks each."""

    def __init__(self, page: Page, site: str, out: Path) -> None:
        self.page, self.site, self.out = page, site, out
        self.taken: list[str] = []

    def go(self, path: str) -> Page:
        self.page.goto(f"{self.site}/admin/{path}")
        return self.page

    def take(self, name: str) -> None:
        self.page.wait_for_load_state("networkidle")
        path = self.out / f"{name}.png"
        self.page.screenshot(path=str(path))
        assert path.stat().st_size < LARGEST, (name, path.stat().st_size)
        wider = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wider <= 1, f"{name} scrolls sideways by {wider} px"
        self.taken.append(name)


def test_pictures(scene: Scene, live_server: object, tmp_path: Path) -> None:
    out = Path(os.environ.get("GUIDE_OUT", tmp_path))
    out.mkdir(parents=True, exist_ok=True)
    live = [
        case
        for case in scene.cases
        if models.NonceSlot.objects.filter(kind=case.kind, subject_id=case.subject_id).exists()
    ]
    queue, (first, second, third) = "requests_app/reviewcase/", live[1:4]
    proposed(third)
    paid = models.ReviewCase.objects.get(kind=Kind.PAYMENT, status="open")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 860}, reduced_motion="reduce")
        camera = Camera(page, str(live_server), out)
        log_in(page, str(live_server), "ada", PASSWORD)
        camera.take("overview")
        camera.go(queue)
        camera.take("queue")
        camera.go(f"{queue}{first.pk}/change/").get_by_role("button", name="Assign to me").click()
        page.locator("summary", has_text="Replace with a higher fee").click()
        page.locator("details[open] [name=ceiling_gwei]").fill("25")
        page.locator("details[open] [name=reason]").fill(
            "base fee tripled at 14:02; three requests wait behind this nonce"
        )
        camera.take("case")
        page.locator("details[open]").get_by_role("button", name="Offer more").click()
        camera.take("case-decided")
        models.Command.objects.filter(command_id=f"review:{first.pk}:1").update(
            state="consumed", outcome="applied", consumed_at=datetime.now(UTC), consumer="host-a", consumed_epoch=7,
            result={"tx_hash": "0x" + "5e" * 32, "nonce": 1180},
        )  # fmt: skip
        models.ReviewDecision.objects.filter(case=first).update(state="done")
        page.get_by_text("done as decided").wait_for(timeout=15_000)
        camera.take("case-outcome")
        camera.go(f"{queue}{second.pk}/change/").get_by_role("button", name="Ask every node now").click()
        camera.take("case-nodes")
        camera.go(f"{queue}{paid.pk}/change/").get_by_role("button", name="Assign to me").click()
        page.locator("summary", has_text="Settle it by hand").click()
        camera.take("payment-case")
        camera.go(f"requests_app/paymentintent/{scene.payments[IntentState.SETTLED].id}/change/")
        camera.take("payment")
        camera.go(f"requests_app/deadletter/{models.DeadLetter.objects.get().pk}/change/")
        page.locator("summary", has_text="Redrive").click()
        camera.take("letter")
        camera.go(queue).locator("#action-toggle").check()
        page.locator("select[name=action]").select_option("bulk_resume")
        page.locator("button[name=index]").click()
        camera.take("queue-many")
        camera.go(f"requests_app/signer/{scene.signers[0].pk}/change/").locator("summary", has_text="Pause").click()
        camera.take("signer")
        camera.go("requests_app/account/create/").locator("[name=name]").fill("new-wallet")
        page.locator("[name=reason]").fill("contract 2026-114")
        page.get_by_role("button", name="Make it").click()
        camera.take("client-key")
        page.context.clear_cookies()
        log_in(page, str(live_server), "bob", PASSWORD)
        camera.go(f"{queue}{third.pk}/change/")
        camera.take("case-second")
        page.emulate_media(color_scheme="dark", reduced_motion="reduce")
        camera.go("")
        camera.take("overview-dark")
        page.set_viewport_size({"width": 390, "height": 844})
        page.emulate_media(color_scheme="light", reduced_motion="reduce")
        camera.go(f"{queue}{second.pk}/change/")
        camera.take("case-narrow")
        page.goto("about:blank")  # no refresh of a page is under way when the database goes
        connection.close()  # the one that was used beside the browser's loop: Django keeps another outside of it
        browser.close()
    assert len(camera.taken) == 15
