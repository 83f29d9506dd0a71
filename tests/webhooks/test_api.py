"""/v1/webhooks: every answer of every route, and that nobody reaches another's."""

from __future__ import annotations

import base64
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from django.db import connections
from pytest_django import Settings

from requests_app.services_webhooks import TooManyWebhooks, create
from requests_app.states import EVENTS, USUAL_EVENTS, Kind
from requests_app.store.session import connect
from requests_app.store.webhooks import Wanted
from tests.api.conftest import KEY, OTHER_KEY, Api, _chains, alice, api, bob
from tests.api.conftest import conn as conn
from tests.core.rows import insert_account
from tests.webhooks.rows import insert_delivery

__all__ = ["_chains", "alice", "api", "bob", "conn"]

PATH = "/v1/webhooks"
URL = "https://receiver.example/hook"


@pytest.fixture(autouse=True)
def _resolver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every name has a public address, but those called inside."""

    def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        if host == "nowhere.example":
            raise socket.gaierror
        text = "10.0.0.1" if host == "inside.example" else host if host[0].isdigit() or ":" in host else "1.1.1.1"
        return [(2, 1, 6, "", (text, port))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


def patch(api: Api, path: str, body: Any) -> Any:
    return api._client.patch(path, body, content_type="application/json", headers=api._headers)


def made(api: Api, **body: Any) -> dict[str, Any]:
    answer = api.post(PATH, {"url": URL, **body})
    assert answer.status_code == 201, answer.content
    return dict(answer.json())


def complaints(answer: Any) -> dict[str, str]:
    assert answer.status_code == 400, answer.content
    assert answer["content-type"] == "application/problem+json"
    assert answer.json()["label"] == "validation_failed"
    return {one["field"]: one["issue"] for one in answer.json()["errors"]}


def test_the_secret_is_shown_once(api: Api, conn: psycopg.Connection) -> None:
    answer = api.post(PATH, {"url": URL})
    body = answer.json()
    secret = base64.b64decode(body.pop("secret").removeprefix("whsec_"))
    assert answer["location"] == f"{PATH}/{body['id']}"
    assert re.fullmatch(r"wh_[0-9a-f]{24}", body["id"])
    assert body["events"] == list(USUAL_EVENTS)
    assert body["kinds"] == [kind.slug for kind in Kind]
    assert (body["url"], body["state"], body["description"], body["former_secret_until"]) == (URL, "enabled", "", None)
    assert api.get(f"{PATH}/{body['id']}").json() == body
    assert api.get(PATH).json() == {"webhooks": [body]}
    assert conn.execute("SELECT secret FROM webhook").fetchall() == [(secret,)]


def test_what_it_wants_is_kept_in_one_order(api: Api) -> None:
    body = made(
        api,
        events=["payment.settled", "request.completed", "payment.settled"],
        kinds=["payment", "user-decrypt"],
        description="Büro 3",
    )
    assert body["events"] == ["request.completed", "payment.settled"]
    assert body["kinds"] == ["user-decrypt", "payment"]
    assert body["description"] == "Büro 3"


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({"url": "http://receiver.example/"}, {"url": "Must be an https URL"}),
        ({"url": ""}, {"url": "ASCII"}),
        ({"url": "https://inside.example/"}, {"url": "private, local, or reserved"}),
        ({"url": "https://127.0.0.1/"}, {"url": "private, local, or reserved"}),
        ({"url": "https://[::ffff:169.254.169.254]/"}, {"url": "private, local, or reserved"}),
        ({"url": "https://2130706433/"}, {"url": "usual spelling"}),
        ({"url": "https://nowhere.example/"}, {"url": "no address"}),
        ({"url": "https://receiver.example:6379/"}, {"url": "ports"}),
        ({"url": URL, "events": []}, {"events": "at least one"}),
        ({"url": URL, "events": ["request.queued"]}, {"events": "Must be among"}),
        ({"url": URL, "events": ["webhook.test"]}, {"events": "Must be among"}),
        ({"url": URL, "events": ["request.completed"] * 101}, {"events": "Must be among"}),
        ({"url": URL, "kinds": ["user_decrypt"]}, {"kinds": "Must be among"}),
        ({"url": URL, "kinds": []}, {"kinds": "at least one"}),
        ({"url": URL, "description": "a" * 201}, {"description": "at most"}),
        ({"url": URL, "description": "a\x00"}, {"description": "plain text"}),
        ({"url": "x", "kinds": ["x"], "description": "\n"}, {"url": "https", "kinds": "among", "description": "plain"}),
    ],
)
def test_a_bad_body_names_its_fields(api: Api, body: Any, fields: dict[str, str]) -> None:
    found = complaints(api.post(PATH, body))
    assert set(found) == set(fields)
    for field, issue in fields.items():
        assert issue in found[field]


@pytest.mark.parametrize(
    ("raw", "label"),
    [
        (b"{", "malformed_json"),
        (b"[]", "malformed_json"),
        (b"", "malformed_json"),
        (b"{}", "missing_fields"),
        (b'{"url": 7}', "validation_failed"),
        (b'{"url": null}', "validation_failed"),
        (b'{"url": "https://receiver.example/", "events": "request.completed"}', "validation_failed"),
        (b'{"url": "https://receiver.example/", "secret": "mine"}', "validation_failed"),
        (b'{"url": "https://receiver.example/", "state": "paused"}', "validation_failed"),
        (b'{"url": "https://receiver.example/", "url": "https://receiver.example/"}', "malformed_json"),
        (b"\xff", "malformed_json"),
    ],
)
def test_a_body_that_is_none(api: Api, raw: bytes, label: str) -> None:
    answer = api.post(PATH, raw)
    assert (answer.status_code, answer.json()["label"]) == (400, label)


def test_changes(api: Api) -> None:
    body = made(api)
    path = f"{PATH}/{body['id']}"
    changed = patch(api, path, {"events": list(EVENTS), "state": "paused", "url": "https://other.example/"}).json()
    assert (changed["events"], changed["state"], changed["url"]) == (list(EVENTS), "paused", "https://other.example/")
    assert changed["kinds"] == body["kinds"]
    assert patch(api, path, {"state": "paused"}).json()["state"] == "paused"
    assert patch(api, path, {"state": "enabled"}).json()["state"] == "enabled"
    assert patch(api, path, {}).status_code == 200
    assert complaints(patch(api, path, {"state": "removed"})) == {"state": "Must be enabled or paused"}
    assert "url" in complaints(patch(api, path, {"url": "https://inside.example/"}))
    assert complaints(patch(api, path, {"account_id": "1"})) == {"account_id": "Unknown field"}
    assert patch(api, path, b"{").status_code == 400
    assert api.get(path).json()["url"] == "https://other.example/"


def test_a_new_secret_and_the_one_before(api: Api, conn: psycopg.Connection) -> None:
    body = made(api)
    rotated = api.post(f"{PATH}/{body['id']}/secret").json()
    assert rotated["secret"] != body["secret"]
    assert rotated["former_secret_until"] > rotated["updated_at"]
    ((now, before),) = conn.execute("SELECT secret, former_secret FROM webhook").fetchall()
    keys = [base64.b64decode(one["secret"].removeprefix("whsec_")) for one in (rotated, body)]
    assert [now, before] == keys


def test_removal_forgets_the_secret_and_the_place_is_free(
    api: Api, conn: psycopg.Connection, settings: Settings
) -> None:
    settings.WEBHOOKS_PER_ACCOUNT = 2
    body = made(api)
    path = f"{PATH}/{body['id']}"
    api.post(f"{path}/secret")
    made(api)
    full = api.post(PATH, {"url": URL})
    assert (full.status_code, full.json()["label"]) == (409, "webhook_limit_reached")
    removed = api.method("DELETE", path)
    assert (removed.status_code, removed.content) == (204, b"")
    row = conn.execute("SELECT state, secret, former_secret FROM webhook ORDER BY id").fetchone()
    assert row == ("removed", None, None)
    assert [api.method("DELETE", path).status_code, api.get(path).status_code] == [404, 404]
    assert patch(api, path, {"state": "enabled"}).status_code == 404
    assert len(api.get(PATH).json()["webhooks"]) == 1
    made(api)


def test_a_test_is_told_one_at_a_time(api: Api, conn: psycopg.Connection) -> None:
    body = made(api)
    path = f"{PATH}/{body['id']}"
    sent = api.post(f"{path}/test")
    assert sent.status_code == 202
    again = api.post(f"{path}/test")
    assert (again.status_code, again.json()["label"]) == (409, "webhook_not_testable")
    (one,) = api.get(f"{path}/deliveries").json()["deliveries"]
    assert (one["id"], one["event"], one["state"], one["kind"]) == (sent.json()["id"], "webhook.test", "waiting", None)
    conn.execute("DELETE FROM webhook_delivery")
    patch(api, path, {"state": "paused"})
    assert api.post(f"{path}/test").status_code == 409


def test_deliveries_by_page(api: Api, conn: psycopg.Connection, bob: int) -> None:
    body, other = made(api), made(api)
    row = conn.execute("SELECT id FROM webhook ORDER BY id").fetchone()
    assert row is not None
    for number in range(5):
        insert_delivery(
            conn, row[0], "failed", event="request.completed", kind=1, subject_id=number, subject=str(number),
            last_status=500, last_error="the receiver answered 500",
        )  # fmt: skip
    path = f"{PATH}/{body['id']}/deliveries"
    seen: list[str] = []
    page = api.get(f"{path}?limit=2").json()
    assert page["deliveries"][0] | {"id": ""} == {
        "id": "", "event": "request.completed", "kind": "user-decrypt", "subject": "4", "occurred_at": "2026-01-31T12:00:00.000Z",
        "state": "failed", "attempts": 0, "next_attempt_at": None, "last_attempt_at": None, "last_status": 500,
        "last_error": "the receiver answered 500", "delivered_at": None,
    }  # fmt: skip
    while True:
        seen += [one["subject"] for one in page["deliveries"]]
        if not page["more"]:
            break
        page = api.get(f"{path}?limit=2&cursor={page['cursor']}").json()
    assert seen == ["4", "3", "2", "1", "0"]
    cursor = api.get(f"{path}?limit=2").json()["cursor"]
    for bad in (
        f"{path}?cursor=x",
        f"{PATH}/{other['id']}/deliveries?cursor={cursor}",
        f"{path}?limit=0",
        f"{path}?page=1",
    ):
        assert api.get(bad).status_code == 400, bad
    assert api.get(f"{PATH}/{other['id']}/deliveries").json() == {"deliveries": [], "cursor": None, "more": False}
    assert Api(OTHER_KEY).get(f"{path}?cursor={cursor}").status_code == 404


def test_another_s_webhook_is_not_found(api: Api, bob: int, conn: psycopg.Connection) -> None:
    body = made(api)
    stranger = Api(OTHER_KEY)
    for who, webhook_id in (
        (stranger, body["id"]),
        (api, "wh_" + "0" * 24),
        (api, "1"),
        (api, "wh_%00"),
        (api, body["id"].upper()),
    ):
        path = f"{PATH}/{webhook_id}"
        answers = [
            who.get(path),
            patch(who, path, {"state": "paused"}),
            who.method("DELETE", path),
            who.post(f"{path}/secret"),
            who.post(f"{path}/test"),
            who.get(f"{path}/deliveries"),
        ]
        assert [(one.status_code, one.json()["label"]) for one in answers] == [(404, "not_found")] * 6, webhook_id
    assert stranger.get(PATH).json() == {"webhooks": []}
    assert api.get(f"{PATH}/{body['id']}").json()["state"] == "enabled"
    assert conn.execute("SELECT former_secret FROM webhook").fetchall() == [(None,)]


def test_who_has_no_key_or_a_disabled_account(api: Api, conn: psycopg.Connection, alice: int) -> None:
    path = f"{PATH}/{made(api)['id']}"
    nobody = Api(None)
    for answer in (
        nobody.get(PATH),
        nobody.post(PATH, {"url": URL}),
        patch(nobody, path, {}),
        nobody.method("DELETE", path),
    ):
        assert (answer.status_code, answer.json()["label"]) == (401, "unauthorized")
    conn.execute("UPDATE client_account SET status = 'disabled' WHERE id = %s", (alice,))
    from requests_app.api.auth import forget_keys

    forget_keys()
    for answer in (api.get(PATH), api.post(PATH, {"url": URL}), api.post(f"{path}/test"), api.method("DELETE", path)):
        assert (answer.status_code, answer.json()["label"]) == (403, "account_disabled")


def test_a_client_disabled_after_its_key_was_looked_at_writes_nothing(
    api: Api, conn: psycopg.Connection, alice: int
) -> None:
    """I11: its key is remembered for a moment, so the check at the door is no check of the write."""
    path = f"{PATH}/{made(api)['id']}"
    before = conn.execute("SELECT * FROM webhook").fetchall()
    assert api.get(path).status_code == 200
    conn.execute("UPDATE client_account SET status = 'disabled' WHERE id = %s", (alice,))
    for answer in (
        patch(api, path, {"url": f"{URL}/elsewhere", "state": "paused"}),
        api.post(f"{path}/secret"),
        api.post(f"{path}/test"),
        api.method("DELETE", path),
        api.post(PATH, {"url": URL}),
    ):
        assert (answer.status_code, answer.json()["label"]) == (403, "account_disabled")
    assert conn.execute("SELECT * FROM webhook").fetchall() == before
    assert conn.execute("SELECT count(*) FROM webhook_delivery").fetchone() == (0,)


def test_methods(api: Api) -> None:
    path = f"{PATH}/{made(api)['id']}"
    for method, where, allowed in (
        ("PUT", PATH, "GET, HEAD, POST"),
        ("POST", path, "GET, HEAD, PATCH, DELETE"),
        ("GET", f"{path}/secret", "POST"),
        ("POST", f"{path}/deliveries", "GET, HEAD"),
    ):
        answer = api.method(method, where)
        assert (answer.status_code, answer["allow"]) == (405, allowed)
    assert api.method("GET", f"{PATH}?a=1").status_code == 400


@pytest.mark.django_db(transaction=True)
def test_clients_that_add_at_once_stay_within_the_limit(transactional_db: None, settings: Settings) -> None:
    """A count in the statement that waits for the lock would be one from before it."""
    settings.WEBHOOKS_PER_ACCOUNT = 3
    with connect("worker") as first:
        account = insert_account(first)

    def add(_: int) -> bool:
        with connect("worker") as conn:
            try:
                create(conn, account, Wanted(URL, "", EVENTS, tuple(Kind)))
            except TooManyWebhooks:
                return False
            return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(add, range(8))) == 3
    connections.close_all()
    assert KEY != OTHER_KEY
