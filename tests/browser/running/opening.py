"""The running stack with its people: started, and a browser profile for each of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.running.desk import PASSWORD, WAIT_MS, Desk
from tests.browser.screenshots import FLAGS, chromium, log_in
from tests.faults.proxy import FaultProxy
from tests.stack.harness import ROOT, ChainProxies, Stack
from workers.devnet.traffic import Traffic

VAR = Path(os.environ.get("RELAYER_STACK_VAR", ROOT / "var" / "stack")).with_name("desk-stack")
# Cara is a second approver.
PEOPLE = {"ada": "operator", "bob": "approver", "cara": "approver", "vera": "viewer"}
# Short, so that what waits for time comes within seconds. Blocks of a second: anvil knows no shorter ones once mining was stopped.
SETTINGS = {"IN_FLIGHT_DEADLINE_SECONDS": "8", "PAYMENT_STUCK_SECONDS": "35", "DEVNET_BLOCK_SECONDS": "1"}


class Pages(dict[str, Page]):
    """A page for each person, in a browser profile of their own, logged in when they first come."""

    def __init__(self, browser: Browser, site: str) -> None:
        super().__init__()
        self._browser, self._site = browser, site

    def __missing__(self, who: str) -> Page:
        page = self[who] = self._browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
        page.set_default_timeout(WAIT_MS)
        log_in(page, self._site, who, PASSWORD)
        return page


def hire(conn: psycopg.Connection[Any], people: Sequence[tuple[str, str]]) -> None:
    """People with their roles."""
    hasher = PBKDF2PasswordHasher()  # the stack knows the product's own; tests hash in another way
    password = hasher.encode(PASSWORD, hasher.salt())
    for name, role in people:
        conn.execute(
            "WITH u AS (INSERT INTO auth_user (username, password, is_staff, is_active, is_superuser, first_name, last_name, email, date_joined)"
            " VALUES (%s, %s, true, true, false, '', '', '', now()) RETURNING id)"
            " INSERT INTO auth_user_groups (user_id, group_id) SELECT u.id, g.id FROM u, auth_group g WHERE g.name = %s",
            (name, password, role),
        )


@contextmanager
def running() -> Iterator[Desk]:
    """The stack and the browsers, until the block ends."""
    proxies = ChainProxies.make(seed=7)
    second = FaultProxy(f"http://127.0.0.1:{proxies.gateway_port}", seed=8)
    ways = {"GATEWAY_RPC_URLS": f"{proxies.gateway.url},{second.url}"}
    stack = None
    try:
        stack = Stack(VAR, through=proxies, environment={**SETTINGS, **ways})
        with stack.database() as conn:
            hire(conn, list(PEOPLE.items()))
        with closing(Traffic(stack.deployment, operator=1)) as traffic, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
            yield Desk(stack, proxies, second, traffic, browser, Pages(browser, stack.url))
            browser.close()
    finally:
        if stack is not None:
            stack.stop()
        second.close()
        proxies.close()
