"""Idempotency-Key: what is repeated is done once, and answered with the same bytes (reference queue_settle 1.3)."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from django.db import connections
from pytest_django import Settings

from requests_app import services_payments as services
from requests_app import sql
from requests_app.api import idempotency as keys
from requests_app.states import Kind
from requests_app.store import idempotency as store
from requests_app.store.idempotency import Claimed, Completed, InFlight, OtherRequest
from requests_app.store.session import connect
from tests.api.conftest import KEY, OTHER_KEY, Api, issue_key
from tests.api.rows import fill_queue
from tests.core.rows import insert_account
from tests.payments.api.paying import PATH, create, terms
from workers.duties import retention

FIRST, SECOND = b"1" * 32, b"2" * 32


def intents(conn: psycopg.Connection[Any]) -> int:
    row = conn.execute("SELECT count(*) FROM payment_intent").fetchone()
    assert row is not None
    return int(row[0])


def age(conn: psycopg.Connection[Any], column: str, seconds: float) -> None:
    """Let the only record's lease or time end as if `seconds` more had passed."""
    conn.execute(f"UPDATE idempotency_record SET {column} = {column} - make_interval(secs => %s)", (seconds,))


def label(response: Any) -> tuple[int, str]:
    return response.status_code, response.json()["label"]


def test_retry_storm(api: Api, conn: psycopg.Connection[Any]) -> None:
    """The scenario of the reference, answer by answer."""
    answers = [create(api, "order-1001", amount="100000000") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [201, 201, 201]
    assert [answer.headers.get("Idempotent-Replayed") for answer in answers] == [None, "true", "true"]
    assert len({answer.content for answer in answers}) == 1
    assert len({answer.headers["Location"] for answer in answers}) == 1
    assert {answer.headers["Content-Type"] for answer in answers} == {"application/json"}
    assert label(create(api, "order-1001", amount="999000000")) == (422, "idempotency_key_reused")
    other = create(api, "order-1002", amount="999000000")
    assert other.status_code == 201
    assert other.json()["id"] != answers[0].json()["id"]
    assert intents(conn) == 2


def test_a_replay_shows_the_payment_as_it_was_answered(api: Api) -> None:
    """Also when the payment has moved on, and when the same body would be refused by now."""
    first = create(api, "k")
    assert api.post(f"{PATH}/{first.json()['id']}/cancel").json()["state"] == "canceled"
    assert create(api, "k").content == first.content
    assert create(api, "k").json()["state"] == "created"


def test_raw_bytes_count_and_not_their_meaning(api: Api) -> None:
    body = terms()
    turned = dict(reversed(body.items()))
    assert api.post(PATH, json.dumps(body).encode(), **{"Idempotency-Key": "k"}).status_code == 201
    assert label(api.post(PATH, json.dumps(turned).encode(), **{"Idempotency-Key": "k"}))[0] == 422
    assert label(api.post(PATH, json.dumps(body).encode() + b" ", **{"Idempotency-Key": "k"}))[0] == 422


@pytest.mark.parametrize("key", [None, "", " ", "a b", "a\tb", "ä", "x" * 256, "\x7f"])
def test_missing_or_unusable_key(api: Api, conn: psycopg.Connection[Any], key: str | None) -> None:
    headers = {} if key is None else {"Idempotency-Key": key}
    response = api.post(PATH, terms(), **headers)
    assert label(response) == (400, "validation_failed")
    assert response.json()["errors"][0]["field"] == "Idempotency-Key"
    assert intents(conn) == 0


@pytest.mark.parametrize("key", ["!", "~", "x" * 255, '"8e03978e-40d5-43dd-bc93-6894a57f9324"'])
def test_usable_keys(api: Api, key: str) -> None:
    assert create(api, key).status_code == 201
    assert create(api, key).headers["Idempotent-Replayed"] == "true"


def test_without_credentials(alice: int) -> None:
    assert label(create(Api(key=None), "k")) == (401, "unauthorized")
    assert label(create(Api(key="wrong"), "k")) == (401, "unauthorized")


def test_two_clients_with_one_key_do_not_see_each_other(api: Api, bob: int, conn: psycopg.Connection[Any]) -> None:
    first, second = create(api, "order-1"), create(Api(OTHER_KEY), "order-1", amount="7")
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json()["id"] != second.json()["id"]
    assert create(Api(OTHER_KEY), "order-1", amount="7").content == second.content


def test_a_refused_request_gives_its_key_back(api: Api, conn: psycopg.Connection[Any]) -> None:
    for bad in ({"amount": "0"}, {"token": "0x" + "11" * 20}, {"expires_at": "2001-01-01T00:00:00Z"}, {"surplus": "x"}):
        assert create(api, "k", **bad).status_code == 400
    assert api.post(PATH, b"{", **{"Idempotency-Key": "k"}).status_code == 400
    assert create(api, "k").status_code == 201
    assert intents(conn) == 1


def test_a_full_queue_gives_its_key_back(api: Api, conn: psycopg.Connection[Any], settings: Settings) -> None:
    settings.QUEUE_CAPACITY, settings.QUEUE_SAFETY_MARGIN = 15, 5
    fill_queue(conn, "settle", Kind.PAYMENT, 10)
    full = create(api, "k")
    assert label(full) == (429, "rate_limited")
    assert int(full.headers["Retry-After"]) >= 1
    conn.execute("DELETE FROM queue_job WHERE job_key LIKE 'filler/%1'")
    assert create(api, "k").status_code == 201


def test_a_failure_of_ours_gives_its_key_back(
    api: Api, conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_args: Any, **_more: Any) -> None:
        raise RuntimeError

    with monkeypatch.context() as patched:
        patched.setattr("requests_app.api.v1.payments.services.create", broken)
        assert label(create(api, "k")) == (500, "internal_server_error")
    assert create(api, "k").status_code == 201
    assert intents(conn) == 1


def test_while_it_is_worked_on(api: Api, alice: int, conn: psycopg.Connection[Any], rf: Any) -> None:
    """409 as long as the lease lasts, then the same request may go on; another one may not."""
    raw = json.dumps(terms()).encode()
    request = rf.post(PATH, raw, content_type="application/json")
    assert isinstance(store.claim(conn, alice, "k", keys.fingerprint_of(request, raw)), Claimed)
    busy = create(api, "k")
    assert label(busy) == (409, "idempotency_key_in_flight")
    assert busy.headers["Retry-After"] == "1"
    age(conn, "lease_until", store.LEASE_SECONDS - 1)
    assert label(create(api, "k"))[0] == 409
    age(conn, "lease_until", 1)
    assert label(create(api, "k", amount="5"))[0] == 422
    assert create(api, "k").status_code == 201


def test_an_answer_is_kept_for_a_day(api: Api, conn: psycopg.Connection[Any]) -> None:
    first = create(api, "k")
    age(conn, "expires_at", store.KEPT_SECONDS - 5)
    assert create(api, "k").content == first.content
    age(conn, "expires_at", 5)
    second = create(api, "k", amount="5")
    assert (second.status_code, second.json()["amount"]) == (201, "5")


def test_a_late_claimant_writes_nothing(committed: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one is held up past its lease, the second is answered; the first one's payment is undone."""
    issue_key(committed, insert_account(committed, "alice"), KEY)
    real, answered = services.create, []

    def second() -> Any:
        try:
            return create(Api(), "k")
        finally:
            connections.close_all()

    def slow(*arguments: Any) -> Any:
        monkeypatch.setattr("requests_app.api.v1.payments.services.create", real)
        age(committed, "lease_until", store.LEASE_SECONDS)
        with ThreadPoolExecutor(1) as pool:
            answered.append(pool.submit(second).result())
        return real(*arguments)

    monkeypatch.setattr("requests_app.api.v1.payments.services.create", slow)
    assert label(create(Api(), "k")) == (409, "idempotency_key_in_flight")
    assert answered[0].status_code == 201
    assert create(Api(), "k").content == answered[0].content
    assert intents(committed) == 1


class TestStatements:
    """The three statements, without HTTP."""

    def test_attempts_guard_the_record(self, alice: int, conn: psycopg.Connection[Any]) -> None:
        answer = Completed(201, {"Location": "/x"}, b"body")
        assert store.claim(conn, alice, "k", FIRST) == Claimed(1)
        assert isinstance(store.claim(conn, alice, "k", FIRST), InFlight)
        assert isinstance(store.claim(conn, alice, "k", SECOND), OtherRequest)
        age(conn, "lease_until", store.LEASE_SECONDS)
        assert store.claim(conn, alice, "k", FIRST) == Claimed(2)
        assert not store.complete(conn, alice, "k", 1, answer)
        assert not store.release(conn, alice, "k", 1)
        assert store.complete(conn, alice, "k", 2, answer)
        assert not store.complete(conn, alice, "k", 2, answer)
        assert not store.release(conn, alice, "k", 2)
        assert store.claim(conn, alice, "k", FIRST) == answer

    def test_a_released_record_counts_on(self, alice: int, conn: psycopg.Connection[Any]) -> None:
        """Were attempts to begin anew, a claimant that slept through it all would complete somebody else's record."""
        assert store.claim(conn, alice, "k", FIRST) == Claimed(1)
        assert store.release(conn, alice, "k", 1)
        assert store.claim(conn, alice, "k", SECOND) == Claimed(2)
        assert not store.complete(conn, alice, "k", 1, Completed(201, {}, b""))

    def test_purge(self, alice: int, conn: psycopg.Connection[Any]) -> None:
        for number in range(3):
            store.claim(conn, alice, f"k{number}", FIRST)
        age(conn, "expires_at", store.KEPT_SECONDS + 3500)
        assert store.purge_keys(conn, 10) == 0
        age(conn, "expires_at", 200)
        assert (store.purge_keys(conn, 2), store.purge_keys(conn, 2), store.purge_keys(conn, 2)) == (2, 1, 0)

    def test_what_is_limited_and_locked_is_materialized(self) -> None:
        """The planner may run a sub-query of a join once per outer row, and then takes more than the limit (B17): when, is its own."""
        for topic in ("idempotency", "carrier", "payments"):
            for name, text in sql.topic(topic).items():
                for place in re.finditer(r"LIMIT [^;]*?FOR UPDATE SKIP LOCKED", text):
                    before = text[: place.start()]
                    assert "AS MATERIALIZED (" in before[before.rfind(" AS ", 0, before.rfind("SELECT")) - 40 :], (
                        topic,
                        name,
                    )

    def test_the_retention_duty_purges(self, committed: psycopg.Connection[Any]) -> None:
        account = insert_account(committed, "carol")
        store.claim(committed, account, "old", FIRST)
        age(committed, "expires_at", store.KEPT_SECONDS + 3700)
        store.claim(committed, account, "new", FIRST)
        context: Any = SimpleNamespace(stopping=lambda: False)
        lease: Any = None
        assert retention.run(context, lease) == 1
        assert committed.execute("SELECT key FROM idempotency_record").fetchall() == [("new",)]

    def test_of_two_hundred_claims_at_once_one_succeeds(self, committed: psycopg.Connection[Any]) -> None:
        account = insert_account(committed, "carol")
        gate = threading.Barrier(8)

        def claims(_: int) -> list[str]:
            with connect("worker") as own:
                gate.wait()
                return [type(store.claim(own, account, f"k{number}", FIRST)).__name__ for number in range(25)]

        with ThreadPoolExecutor(8) as pool:
            seen = Counter(name for names in pool.map(claims, range(8)) for name in names)
        assert seen == {"Claimed": 25, "InFlight": 175}


def test_storm_of_fifty(committed: psycopg.Connection[Any]) -> None:
    """Fifty clients' threads send the same request at once, and again until they are answered: one payment."""
    issue_key(committed, insert_account(committed, "alice"), KEY)
    gate = threading.Barrier(50)

    def send(_: int) -> tuple[list[int], bytes, str | None]:
        try:
            seen: list[int] = []
            gate.wait()
            while True:
                response = create(Api(), "order-1001")
                seen.append(response.status_code)
                if response.status_code != 409:
                    return seen, response.content, response.headers.get("Idempotent-Replayed")
        finally:
            connections.close_all()

    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(send, range(50)))
    statuses = Counter(status for seen, _, _ in answers for status in seen)
    print(f"storm of 50: {dict(statuses)}, payments {intents(committed)}")
    assert {seen[-1] for seen, _, _ in answers} == {201}
    assert len({content for _, content, _ in answers}) == 1
    assert sum(replayed is None for _, _, replayed in answers) == 1
    assert intents(committed) == 1
