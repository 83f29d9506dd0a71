"""Pictures of every page of the desk: wide, narrow and dark, of a running site. (`make screenshots` makes those of the guide.)

    python -m tests.browser.screenshots --url http://127.0.0.1:8000 --user NAME --password WORD [--out DIR] [--only overview]

Fails when a page answers with an error, logs one to the browser's console, asks another machine for anything, or
scrolls sideways as a whole.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
APP = "/admin/requests_app"
LISTS = {
    "overview": "/admin/",
    "overview-week": "/admin/?span=7d",
    "reviews": f"{APP}/reviewcase/",
    "reviews-empty": f"{APP}/reviewcase/?q=0x{'00' * 32}",
    "user-decrypts": f"{APP}/userdecryptrequest/",
    "public-decrypts": f"{APP}/publicdecryptrequest/?status__exact=failure",
    "input-proofs": f"{APP}/inputproofrequest/",
    "payments": f"{APP}/paymentintent/",
    "payments-settled": f"{APP}/paymentintent/?state__exact=settled",
    "ledger": f"{APP}/ledgerentry/",
    "balances": f"{APP}/ledgerentry/balances/",
    "letters": f"{APP}/deadletter/",
    "shares": f"{APP}/userdecryptshare/",
    "transitions": f"{APP}/requesttransition/",
    "jobs": f"{APP}/queuejob/",
    "decisions": f"{APP}/reviewdecision/",
    "commands": f"{APP}/command/",
    "leases": f"{APP}/execlease/",
    "heartbeats": f"{APP}/workerbeat/",
    "signers": f"{APP}/signer/",
    "attempts": f"{APP}/txattempt/",
    "sources": f"{APP}/envelopesource/",
    "envelopes": f"{APP}/envelopesource/1/envelopes/",
    "dead-letters": f"{APP}/envelopesource/1/dead/",
    "accounts": f"{APP}/account/",
    "account-create": f"{APP}/account/create/",
    "api-keys": f"{APP}/apikey/",
    "webhooks": f"{APP}/webhook/",
    "deliveries": f"{APP}/webhookdelivery/",
    "conflicts": f"{APP}/envelopeconflict/",
    "identities": f"{APP}/chainidentity/",
    "settings": f"{APP}/runtimesetting/",
    "schedules": "/admin/django_q/schedule/",
    "people": "/admin/auth/user/",
}
# pages of one row: name -> (list whose first row is opened)
PAGES = {
    "review-case": f"{APP}/reviewcase/",
    "review-payment": f"{APP}/reviewcase/?kind__exact=4",
    "payment": f"{APP}/paymentintent/?state__exact=settled",
    "payment-authorized": f"{APP}/paymentintent/?state__exact=authorized",
    "payment-review": f"{APP}/paymentintent/?state__exact=needs_review",
    "ledger-entry": f"{APP}/ledgerentry/",
    "letter": f"{APP}/deadletter/",
    "webhook": f"{APP}/webhook/",
    "delivery": f"{APP}/webhookdelivery/?state__exact=failed",
    "user-decrypt": f"{APP}/userdecryptrequest/?status__exact=completed",
    "public-decrypt": f"{APP}/publicdecryptrequest/?status__exact=failure",
    "input-proof": f"{APP}/inputproofrequest/?status__exact=completed",
    "signer": f"{APP}/signer/",
    "slots": f"{APP}/signer/",
    "attempt": f"{APP}/txattempt/",
    "source": f"{APP}/envelopesource/",
    "account": f"{APP}/account/?o=1",
    "decision": f"{APP}/reviewdecision/",
    "command": f"{APP}/command/",
    "lease": f"{APP}/execlease/",
    "job": f"{APP}/queuejob/",
    "transition": f"{APP}/requesttransition/",
    "person": "/admin/auth/user/",
}
# pages beside that of the row
BESIDE = {"slots": ("/change/", "/slots/")}
FORMS = {"wide": (1280, 900, "light"), "dark": (1280, 900, "dark"), "narrow": (390, 844, "light")}

# What scrolls inside a page looks whole at its edge: the sections and lists that are wider than their frame, and by how much.
CUT_OFF = """
() => [...document.querySelectorAll(".rl-scroll, .simplebar-content-wrapper:has(#result_list)")]
  .map((frame) => [frame.scrollWidth - frame.clientWidth, frame.getAttribute("aria-label")])
  .filter(([wider]) => wider > 1)
  .map(([wider, label]) => `${label} by ${wider} px`)
"""


@dataclass
class Finding:
    """What went wrong on the pages so far."""

    problems: list[str] = field(default_factory=list)


def chromium() -> str:
    """Debian's browser."""
    found = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if not found:
        sys.exit("no chromium: apt-get update && apt-get install -y chromium")
    return found


def log_in(page: Page, base: str, user: str, password: str) -> None:
    """Through the login form, as a person does."""
    page.goto(f"{base}/admin/login/?next=/admin/")
    page.fill("input[name=username]", user)
    page.fill("input[name=password]", password)
    with page.expect_navigation(url=lambda url: urlsplit(url).path == "/admin/"):
        page.press("input[name=password]", "Enter")


def watch(page: Page, base: str, finding: Finding) -> None:
    """Collect console errors and requests that leave the machine."""
    host = urlsplit(base).netloc
    page.on("console", lambda m: finding.problems.append(f"console: {m.text}") if m.type == "error" else None)
    page.on("pageerror", lambda error: finding.problems.append(f"script: {error}"))
    page.on(
        "request",
        lambda r: (
            None
            if r.url.startswith(("data:", "blob:")) or urlsplit(r.url).netloc == host
            else finding.problems.append(f"request to another machine: {r.url}")
        ),
    )


def take(page: Page, name: str, path: Path, finding: Finding) -> None:
    """One picture, every form unfolded, with the checks that need the page."""
    before = len(finding.problems)
    page.wait_for_load_state("networkidle")
    page.evaluate("document.querySelectorAll('details.rl-deed').forEach((one) => { one.open = true })")
    wider = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    if wider > 1:
        finding.problems.append(f"the page scrolls sideways by {wider} px")
    finding.problems += [f"a table scrolls sideways: {text}" for text in page.evaluate(CUT_OFF)]
    page.screenshot(path=str(path), full_page=True)
    for index in range(before, len(finding.problems)):
        finding.problems[index] = f"{name}: {finding.problems[index]}"


def visit(context: BrowserContext, arguments: argparse.Namespace, form: str, finding: Finding) -> int:
    """Every page in one form; returns how many."""
    page = context.new_page()
    watch(page, arguments.url, finding)
    page.goto(f"{arguments.url}/admin/login/")
    out = Path(arguments.out)
    if not arguments.only:
        take(page, f"login {form}", out / f"login-{form}.png", finding)
    log_in(page, arguments.url, arguments.user, arguments.password)
    done = 0
    for name, path in {**LISTS, **PAGES}.items():
        if arguments.only and arguments.only not in name:
            continue
        response = page.goto(arguments.url + path)
        if response is None or response.status >= 400:
            finding.problems.append(f"{name} {form}: status {response.status if response else 'none'}")
            continue
        if name in PAGES:
            link = page.locator("#result_list tbody th a, #result_list tbody td a").first
            if link.count() == 0:
                continue
            page.goto(arguments.url + str(link.get_attribute("href")).replace(*BESIDE.get(name, ("", ""))))
        take(page, f"{name} {form}", out / f"{name}-{form}.png", finding)
        done += 1
    page.close()
    return done


def contexts(browser: Browser) -> dict[str, BrowserContext]:
    """One browser profile a form."""
    return {
        form: browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)  # type: ignore[arg-type]
        for form, (width, height, scheme) in FORMS.items()
    }


def main() -> None:
    """Parse, visit, report; exit code 1 with findings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--user", default="")
    parser.add_argument("--password", default="")
    parser.add_argument("--demo", help="demo.json with the login")
    parser.add_argument("--out", default="var/screenshots")
    parser.add_argument("--only", default="")
    parser.add_argument("--form", choices=sorted(FORMS))
    arguments = parser.parse_args()
    if arguments.demo:
        demo = json.loads(Path(arguments.demo).read_text(encoding="utf-8"))
        arguments.user, arguments.password = demo["admin_user"], demo["admin_password"]
    Path(arguments.out).mkdir(parents=True, exist_ok=True)
    finding = Finding()
    done = 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        for form, context in contexts(browser).items():
            if arguments.form in (None, form):
                done += visit(context, arguments, form, finding)
        browser.close()
    print(f"{done} pictures in {arguments.out}")
    for problem in finding.problems:
        print(problem)
    sys.exit(1 if finding.problems else 0)


if __name__ == "__main__":
    main()
