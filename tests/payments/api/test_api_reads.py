"""GET of payments: one, its history, lists by keyset, long-poll."""

from __future__ import annotations

import string
import threading
from typing import Any

import psycopg
import pytest
from django.db import connections

from requests_app.authorizations import Authorization
from requests_app.states import IntentActor, IntentState
from requests_app.store import cursor_keys
from requests_app.store import payments as store
from requests_app.store.intents import Intent
from requests_app.transitions import intents
from requests_app.transitions.intents import Change, Terms, move
from tests.api.conftest import KEY, OTHER_KEY, Api, issue_key
from tests.core.rows import insert_account
from tests.payments.api.paying import CHAIN, MERCHANT, OTHER_PAYER_KEY, PATH, PAYER, TOKEN, address
from tests.waiting import wait_until

OTHER_PAYER = address(OTHER_PAYER_KEY)


def add(conn: psycopg.Connection[Any], account: int, amount: int = 1, payer: str = PAYER) -> Intent:
    return intents.create(conn, account, Terms(CHAIN, TOKEN, payer, MERCHANT, amount), lifetime_seconds=60)


def permit(conn: psycopg.Connection[Any], intent: Intent) -> Intent:
    signed = Authorization(0, 4_000_000_000, intent.ref, b"\1" * 65).stored()
    return intents.authorize(conn, intent.account_id, intent.public_id, signed).intent


def amounts(page: Any) -> list[int]:
    return [int(payment["amount"]) for payment in page.json()["payments"]]


def pages(api: Api, query: str) -> list[list[int]]:
    """The amounts of every page of a list."""
    found, cursor = [], ""
    while True:
        page = api.get(f"{PATH}?{query}{cursor}")
        assert page.status_code == 200, page.json()
        found.append(amounts(page))
        if not page.json()["more"]:
            assert page.json()["cursor"] is None
            return found
        cursor = f"&cursor={page.json()['cursor']}"


class TestOne:
    def test_history(self, api: Api, alice: int, conn: psycopg.Connection[Any]) -> None:
        intent = permit(conn, add(conn, alice))
        with conn.transaction():
            move(conn, IntentState.SETTLING, [Change.of(intent)], IntentActor.RELAYER)
        body = api.get(f"{PATH}/{intent.public_id}/timeline").json()
        assert (body["id"], body["state"], body["ref"]) == (intent.public_id, "settling", "0x" + intent.ref.hex())
        steps = [(row["version"], row["from_state"], row["to_state"], row["actor"]) for row in body["transitions"]]
        assert steps == [
            (1, None, "created", "api"),
            (2, "created", "authorized", "api"),
            (3, "authorized", "settling", "relayer"),
        ]
        assert set(body["transitions"][0]) == {"version", "from_state", "to_state", "actor", "tx_hash", "reason", "at"}

    def test_when_to_ask_again(self, api: Api, alice: int, conn: psycopg.Connection[Any]) -> None:
        """While somebody works on it; not while it waits for its client, and not at the end."""
        intent = add(conn, alice)
        path = f"{PATH}/{intent.public_id}"
        assert "Retry-After" not in api.get(path).headers
        permit(conn, intent)
        assert int(api.get(path).headers["Retry-After"]) >= 1
        api.post(f"{path}/cancel")
        assert "Retry-After" not in api.get(path).headers

    @pytest.mark.parametrize("wait", ["-1", "x", "", "99999", "1,5"])
    def test_bad_wait(self, api: Api, alice: int, conn: psycopg.Connection[Any], wait: str) -> None:
        response = api.get(f"{PATH}/{add(conn, alice).public_id}?wait={wait}")
        assert (response.status_code, response.json()["errors"][0]["field"]) == (400, "wait")

    def test_waiting_ends_with_the_payment(self, committed: psycopg.Connection[Any]) -> None:
        account = insert_account(committed, "alice")
        issue_key(committed, account, KEY)
        intent = add(committed, account)
        answers: list[Any] = []

        def ask() -> None:
            try:
                answers.append(Api().get(f"{PATH}/{intent.public_id}?wait=25"))
            finally:
                connections.close_all()

        asking = threading.Thread(target=ask)
        asking.start()
        wait_until(lambda: any(thread.name == "relayer-long-poll" for thread in threading.enumerate()), 60)
        assert not answers
        intents.cancel(committed, intent.public_id, "for the test", account_id=account)
        asking.join(60)
        assert answers[0].json()["state"] == "canceled"

    def test_waiting_ends_with_the_time(self, committed: psycopg.Connection[Any]) -> None:
        account = insert_account(committed, "alice")
        issue_key(committed, account, KEY)
        response = Api().get(f"{PATH}/{add(committed, account).public_id}?wait=0.2")
        assert (response.status_code, response.json()["state"]) == (200, "created")


class TestList:
    def test_newest_first_in_pages(self, api: Api, alice: int, bob: int, conn: psycopg.Connection[Any]) -> None:
        for amount in range(1, 8):
            add(conn, alice, amount)
            add(conn, bob, 100 + amount)
        assert pages(api, "") == [[7, 6, 5, 4, 3, 2, 1]]
        assert pages(api, "limit=3") == [[7, 6, 5], [4, 3, 2], [1]]
        assert pages(api, "limit=7") == [[7, 6, 5, 4, 3, 2, 1]]
        assert pages(Api(OTHER_KEY), "limit=4") == [[107, 106, 105, 104], [103, 102, 101]]

    def test_pages_stand_still_while_payments_arrive(self, api: Api, alice: int, conn: psycopg.Connection[Any]) -> None:
        for amount in range(1, 5):
            add(conn, alice, amount)
        first = api.get(f"{PATH}?limit=2").json()
        add(conn, alice, 5)
        second = api.get(f"{PATH}?limit=2&cursor={first['cursor']}")
        assert amounts(second) == [2, 1]

    def test_filters_apply_together(self, api: Api, alice: int, conn: psycopg.Connection[Any]) -> None:
        permit(conn, add(conn, alice, 1))
        add(conn, alice, 2)
        add(conn, alice, 3, payer=PAYER.lower())
        other = permit(conn, add(conn, alice, 4, payer=OTHER_PAYER))
        assert pages(api, "state=authorized") == [[4, 1]]
        assert pages(api, "state=authorized&state=created") == [[4, 3, 2, 1]]
        assert pages(api, f"payer={PAYER}") == pages(api, f"payer={PAYER.lower()}") == [[3, 2, 1]]
        assert pages(api, f"payer={OTHER_PAYER.lower()}&state=authorized") == [[4]]
        assert pages(api, f"merchant={OTHER_PAYER}") == [[]]
        assert pages(api, f"merchant={MERCHANT}") == [[4, 3, 2, 1]]
        assert pages(api, f"ref=0x{other.ref.hex()}") == [[4]]
        assert pages(api, f"ref=0x{other.ref.hex()}&state=created") == [[]]
        assert pages(api, "created_from=2020-01-01T00:00:00Z&created_to=2999-01-01T00:00:00Z") == [[4, 3, 2, 1]]
        assert pages(api, "created_to=2020-01-01T00:00:00Z") == [[]]
        moment = other.created_at.isoformat().replace("+00:00", "Z")
        assert pages(api, f"created_from={moment}") == [[4]]
        assert pages(api, f"created_to={moment}") == [[3, 2, 1]]

    def test_a_page_looks_at_so_many_only(
        self, api: Api, alice: int, conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """However seldom a filter finds something, no page reads a whole table; and nothing is left out."""
        monkeypatch.setattr(store, "SCAN", 3)
        for amount in range(1, 11):
            add(conn, alice, amount, payer=OTHER_PAYER if amount in (2, 9) else PAYER)
        assert pages(api, f"payer={OTHER_PAYER}") == [[9], [], [2], []]
        oldest = add(conn, alice, 11)
        for amount in range(12, 20):
            add(conn, alice, amount)
        assert pages(api, f"ref=0x{oldest.ref.hex()}") == [[11]]
        assert [amount for page in pages(api, "limit=2") for amount in page] == list(range(19, 0, -1))

    @pytest.mark.parametrize(
        ("query", "field"),
        [
            ("state=paid", "state"),
            ("state=", "state"),
            ("payer=0x12", "payer"),
            ("merchant=", "merchant"),
            (f"payer={PAYER.replace('C5', 'c5')}", "payer"),
            ("ref=0x12", "ref"),
            (f"ref=0x{'AB' * 32}", "ref"),
            ("created_from=yesterday", "created_from"),
            ("created_to=2999-13-01T00:00:00Z", "created_to"),
            ("limit=0", "limit"),
            ("limit=1001", "limit"),
            ("limit=%D9%A3", "limit"),
            ("payee=x", "payee"),
            ("cursor=", "cursor"),
            ("cursor=AAAA", "cursor"),
            ("cursor=%00", "cursor"),
        ],
    )
    def test_unacceptable_parameters(self, api: Api, query: str, field: str) -> None:
        response = api.get(f"{PATH}?{query}")
        assert (response.status_code, response.json()["label"]) == (400, "validation_failed")
        assert response.json()["errors"][0]["field"] == field

    def test_a_cursor_belongs_to_its_list(self, api: Api, alice: int, bob: int, conn: psycopg.Connection[Any]) -> None:
        """Another client's, another filter's, another list's, an altered or retired one: the same 400."""
        for amount in range(3):
            add(conn, alice, amount + 1)
        cursor = api.get(f"{PATH}?limit=1&state=created").json()["cursor"]
        assert amounts(api.get(f"{PATH}?limit=2&state=created&cursor={cursor}")) == [2, 1]
        # Also where only those bits of the last letter change that mean nothing.
        letters = string.ascii_letters + string.digits + "-_"
        last = [cursor[:-1] + letter for letter in letters if letter != cursor[-1]]
        refused = [
            Api(OTHER_KEY).get(f"{PATH}?state=created&cursor={cursor}"),
            api.get(f"{PATH}?cursor={cursor}"),
            api.get(f"{PATH}?state=settled&cursor={cursor}"),
            api.get(f"{PATH}?state=created&payer={PAYER}&cursor={cursor}"),
            api.get(f"/v1/usage?cursor={cursor}"),
            *(api.get(f"{PATH}?state=created&cursor={turned}") for turned in last),
        ]
        version = cursor_keys.current_key(conn).version
        cursor_keys.add_key(conn)
        assert amounts(api.get(f"{PATH}?limit=2&state=created&cursor={cursor}")) == [2, 1]
        cursor_keys.retire_key(conn, version)
        refused.append(api.get(f"{PATH}?state=created&cursor={cursor}"))
        for response in refused:
            assert (response.status_code, response.json()["errors"][0]["field"]) == (400, "cursor")
