"""No page, no call and no statement of a worker reads more rows than a page needs, whatever the size of the tables (design 5.6.4).

The statements are those that really run, taken down while the page is made. 200,000 finished rows tell the plans apart as well as ten
million do: `make bench-scale` looks at both.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client

from bench.scale_pages import body_of, calls, pages, statements
from bench.scale_plans import Cost, Statement, costs, questions, taken_down
from requests_app import clients, overview
from requests_app.admin import charts
from requests_app.store.seeding.layout import Layout
from requests_app.store.session import connect, web_connection

pytestmark = pytest.mark.django_db
LAYOUT = Layout(finished=200_000, live=20_000, reviews=1_000)
ROWS = 10_000
PAGES_8K = 6_000
# Statements a page may take, the session's and the user's among them, with nothing in the process's memory.
QUESTIONS = {"first page": 24, "queue": 24, "case": 34, "search": 32, "lists": 26, "request": 34}


@pytest.fixture
def desk(seeded: psycopg.Connection[Any]) -> Client:
    client = Client()
    client.force_login(User.objects.create_user("scale", is_staff=True, is_superuser=True))
    return client


def too_dear(found: list[Cost], rows: int = ROWS) -> list[str]:
    return [str(one) for one in found if one.rows > rows or one.pages > max(PAGES_8K, rows)]


def visited(client: Client, url: str) -> list[Statement]:
    """What a fresh process asks the database for a page."""
    overview.forget()
    charts.forget()
    with taken_down() as found:
        assert client.get(url).status_code == 200, url
    return questions(found)


@pytest.mark.parametrize("group", QUESTIONS)
def test_no_page_reads_more_than_ten_thousand_rows_a_plan(
    group: str, desk: Client, seeded: psycopg.Connection[Any]
) -> None:
    asked, dear, known = {}, [], set()
    for page in pages(seeded):
        if page.group == group:
            found = visited(desk, page.url)
            asked[page.name] = len(found)
            fresh = [
                one for one in found if one.key not in known
            ]  # each page begins with the same session and overview
            known |= {one.key for one in fresh}
            dear += [f"{page.name}: {text}" for text in too_dear(costs(seeded, fresh))]
    assert asked
    print(f"{group}: {len(asked)} pages, {min(asked.values())} to {max(asked.values())} statements")
    assert dear == [], "\n".join(dear)
    assert {name: count for name, count in asked.items() if count > QUESTIONS[group]} == {}


def test_lists_go_on_where_they_ended(desk: Client, seeded: psycopg.Connection[Any]) -> None:
    """Three pages of the queue and of a list of requests: every row once, in order."""
    for url, expected in (
        ("/admin/requests_app/reviewcase/?", "SELECT id FROM review_case WHERE status = 'open' ORDER BY opened_at, id LIMIT 90"),
        ("/admin/requests_app/userdecryptrequest/?status__exact=completed", "SELECT id FROM user_decrypt_req WHERE status = 'completed' ORDER BY id DESC LIMIT 90"),
    ):  # fmt: skip
        seen, next_url = [], url
        for _ in range(3):
            found = desk.get(next_url).context["cl"]
            seen += [row.pk for row in found.result_list]
            next_url = url.split("?")[0] + found.next_url
        assert seen == [row[0] for row in seeded.execute(expected).fetchall()]


def test_a_filter_without_index_looks_at_a_window_and_offers_to_go_on(desk: Client) -> None:
    """Nobody asked in the unified form and failed in the newest thousands of rows that are read first; further down somebody did."""
    url = "/admin/requests_app/userdecryptrequest/?created=10m&req_type__exact=unified&status__exact=timed_out"
    first = desk.get(url).context["cl"]
    assert list(first.result_list) == []
    assert first.next_url == ""  # a hundred thousand finished rows have a thousand of these: one window
    wide = "/admin/requests_app/requesttransition/?kind__exact=4"
    found = desk.get(wide).context["cl"]
    assert list(found.result_list) == []
    assert found.searched_to is not None
    text = desk.get(wide).content.decode()
    assert "Search further" in text
    assert "after=" in found.next_url


@pytest.mark.parametrize("place", ["", "0", "abc", "1~2", "9" * 40, "~", "-5"])
def test_a_place_that_means_nothing_shows_a_page(place: str, desk: Client) -> None:
    for url in (
        "/admin/requests_app/reviewcase/",
        "/admin/requests_app/userdecryptrequest/",
        "/admin/requests_app/execlease/",
    ):
        assert desk.get(url, {"after": place}).status_code == 200


def test_no_call_of_the_api_reads_more_than_ten_thousand_rows_a_plan(
    seeded: psycopg.Connection[Any], settings: Any
) -> None:
    settings.HOST_CHAINS = [{"chain_id": 8009, "url": "http://127.0.0.1:9", "acl_address": "0x" + "ac" * 20}]
    settings.GATEWAY_CHAIN_ID, settings.GATEWAY_RPC_URLS = 654321, ["http://127.0.0.1:9"]
    settings.DECRYPTION_ADDRESS, settings.INPUT_VERIFICATION_ADDRESS = "0x" + "d0" * 20, "0x" + "e0" * 20
    client, key = Client(), clients.issue_key(web_connection(), "seed-001").text
    # What answers a queue's size or a place in it counts that queue, which the door bounds, three times.
    counting = 3 * waiting_jobs(seeded)
    dear: dict[str, list[str]] = defaultdict(list)
    for call in calls(seeded, "seed-001", each=2):
        with taken_down() as found, transaction.atomic():
            for target in call.targets:
                if call.method == "POST":
                    answer = client.post(target, body_of(target), "application/json", headers={"x-api-key": key})
                else:
                    answer = client.get(target, headers={"x-api-key": key})
                assert answer.status_code == call.expected, (call.name, answer.content)
            transaction.set_rollback(True)  # what was stored would be in the way of the same statement under EXPLAIN
        asked = questions(found)
        assert len(asked) <= 4 * len(call.targets), call.name
        dear[call.name] += too_dear(
            costs(seeded, asked), counting if "queued" in call.name or call.method == "POST" else ROWS
        )
    assert {name: found for name, found in dear.items() if found} == {}


def test_no_statement_of_a_worker_reads_more_than_ten_thousand_rows_a_plan(seeded: psycopg.Connection[Any]) -> None:
    """Two read more, and no more with more finished rows: the safety net looks at what waits, retention at all that hangs on what it takes."""
    dear, bounds = [], {"lost jobs": 5 * waiting_jobs(seeded), "retention, 500 user decrypts": 500 * 40}
    with connect("worker") as worker:
        for name, work in statements().items():
            with taken_down() as found, worker.transaction(force_rollback=True):
                work(worker)
            assert questions(found), name
            dear += [f"{name}: {text}" for text in too_dear(costs(worker, found), bounds.get(name, ROWS))]
    assert dear == [], "\n".join(dear)


def waiting_jobs(conn: psycopg.Connection[Any]) -> int:
    """How many requests wait for work."""
    row = conn.execute("SELECT count(*) FROM queue_job").fetchone()
    assert row is not None
    return int(row[0])
