"""The desk in a real browser: every page in three forms without an error, a foreign request or sideways scrolling."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.db import connection
from playwright.sync_api import Dialog, sync_playwright

from requests_app import models, overview
from tests.browser.screenshots import FLAGS, FORMS, LISTS, PAGES, Finding, chromium, contexts, log_in, visit
from tests.desk.scene import Scene
from tests.desk.surroundings import HOSTILE
from tests.waiting import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.timeout(500)]
PASSWORD = "a-Long-passw0rd"


@pytest.fixture
def site(live_server: object, settings: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A full database behind a live server, and its address."""
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")  # playwright's loop runs in this thread; nothing here is async
    overview.forget()
    empty_log()
    Scene().build(each=2)
    User.objects.create_superuser("admin", password=PASSWORD)
    yield str(live_server)
    overview.forget()
    wait_until(alone, 60, "the server's threads let their sessions go")
    empty_log()


def empty_log() -> None:
    """Django empties the tables it manages after a test; the partitioned log is not one of them."""
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE envelope_meta, envelope_blob")


def alone() -> bool:
    """Whether no thread of the live server has a session any more: the database cannot be dropped before."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'"
        )
        return bool(cursor.fetchone() == (0,))


@pytest.mark.parametrize("form", sorted(FORMS))
def test_every_page(form: str, site: str, tmp_path: Path) -> None:
    """PAGES_OUT says where the pictures stay."""
    out = os.environ.get("PAGES_OUT", str(tmp_path))
    arguments = argparse.Namespace(url=site, user="admin", password=PASSWORD, out=out, only="")
    finding = Finding()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        done = visit(contexts(browser)[form], arguments, form, finding)
        browser.close()
    assert not finding.problems, "\n".join(finding.problems)
    assert done == len(LISTS) + len(PAGES)


def heard(dialog: Dialog, alerts: list[str]) -> None:
    """Note what a page opened, and close it."""
    alerts.append(f"{dialog.type}: {dialog.message}")
    dialog.dismiss()


def test_hostile_text_runs_nowhere_and_the_page_renews_itself(site: str) -> None:
    models.EnvelopeSource.objects.update(halted=HOSTILE)
    case = models.ReviewCase.objects.first()
    assert case is not None
    alerts: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.on("dialog", lambda dialog: heard(dialog, alerts))
        log_in(page, site, "admin", PASSWORD)
        before = page.locator("#relayer-overview .rl-foot time").get_attribute("datetime")
        page.wait_for_function(
            "was => document.querySelector('#relayer-overview .rl-foot time').dateTime !== was",
            arg=before,
            timeout=15_000,
        )
        assert page.locator("time[data-local]").count() > 0
        page.goto(f"{site}/admin/requests_app/reviewcase/{case.pk}/change/")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.tagName") in ("A", "BUTTON", "INPUT")
        page.locator(".rl-copy").first.click()
        browser.close()
    assert [text for text in alerts if text.startswith("alert")] == []
