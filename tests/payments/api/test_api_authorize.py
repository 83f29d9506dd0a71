"""POST …/authorize and …/cancel: the payer's EIP-3009 authorization, verified off chain."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from django.db import connections
from pytest_django import Settings

from requests_app.config import config
from requests_app.states import IntentActor, IntentState, Kind
from requests_app.store.intents import find_intent
from requests_app.transitions.intents import Change, move
from tests.api.conftest import KEY, OTHER_KEY, Api, issue_key
from tests.api.rows import fill_queue
from tests.core.rows import insert_account
from tests.payments.api.paying import MERCHANT, OTHER_PAYER_KEY, PATH, create, mirrored, sign

FAR = str(2**256 - 1)


@pytest.fixture
def made(api: Api) -> dict[str, Any]:
    """A payment in `created`."""
    body: dict[str, Any] = create(api, "k").json()
    return body


def authorize(api: Api, made: dict[str, Any], signed: Any) -> Any:
    return api.post(f"{PATH}/{made['id']}/authorize", signed)


def cancel(api: Api, made: dict[str, Any]) -> Any:
    return api.post(f"{PATH}/{made['id']}/cancel")


def jobs(conn: psycopg.Connection[Any]) -> list[Any]:
    return conn.execute("SELECT queue, job_key, kind, tenant_id, attempt FROM queue_job").fetchall()


def refusal(response: Any) -> tuple[int, str, list[str]]:
    body = response.json()
    return response.status_code, body["label"], [error["field"] for error in body.get("errors", ())]


def advance(conn: psycopg.Connection[Any], made: dict[str, Any], target: IntentState, **brought: Any) -> None:
    """What the workers do with it."""
    intent = find_intent(conn, made["id"])
    assert intent is not None
    actor = {IntentState.SETTLED: IntentActor.LISTENER}.get(target, IntentActor.RELAYER)
    with conn.transaction():
        assert move(conn, target, [Change.of(intent, **brought)], actor)


def test_authorized_and_queued(api: Api, alice: int, made: dict[str, Any], conn: psycopg.Connection[Any]) -> None:
    signed = sign(made["typed_data"])
    response = authorize(api, made, signed)
    body = response.json()
    assert (response.status_code, body["state"], body["version"], body["typed_data"]) == (200, "authorized", 2, None)
    assert int(response.headers["Retry-After"]) >= 1
    assert jobs(conn) == [("settle", f"{made['id']}/settle", Kind.PAYMENT, alice, 0)]
    intent = find_intent(conn, made["id"])
    assert intent is not None
    assert intent.authorization == signed


def test_no_signature_is_told_to_anybody(api: Api, made: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    """Neither in an answer, good or bad, nor in a line of the log (I12)."""
    caplog.set_level("DEBUG")
    good, bad = sign(made["typed_data"]), sign(made["typed_data"], OTHER_PAYER_KEY)
    other = sign(made["typed_data"], validBefore=FAR)
    answers = [authorize(api, made, signed) for signed in (bad, good, good, other)]
    answers += [api.get(f"{PATH}/{made['id']}"), api.get(PATH), api.get(f"{PATH}/{made['id']}/timeline")]
    told = caplog.text.lower() + "".join(answer.content.decode().lower() for answer in answers)
    assert "payment-intents" in told
    for signed in (good, bad, other):
        assert signed["signature"][2:66] not in told


def test_the_same_again_changes_nothing(api: Api, made: dict[str, Any], conn: psycopg.Connection[Any]) -> None:
    """In every state that follows, in any case of its hex, and when its window is over."""
    signed = sign(made["typed_data"])
    first = authorize(api, made, signed)
    assert (
        authorize(api, made, {**signed, "signature": "0x" + signed["signature"][2:].upper()}).content == first.content
    )
    assert len(jobs(conn)) == 1
    for target, brought in (
        (IntentState.SETTLING, {}),
        (IntentState.CONFIRMING, {"tx_hash": b"\1" * 32}),
        (IntentState.SETTLED, {"tx_hash": b"\1" * 32}),
    ):
        advance(conn, made, target, **brought)
        again = authorize(api, made, signed)
        assert (again.status_code, again.json()["state"]) == (200, target.value)
    assert again.json()["tx_hash"] == "0x" + "01" * 32
    assert "Retry-After" not in again.headers


def test_another_one_is_a_conflict(api: Api, made: dict[str, Any], conn: psycopg.Connection[Any]) -> None:
    signed, other = sign(made["typed_data"]), sign(made["typed_data"], validBefore=FAR)
    assert authorize(api, made, signed).status_code == 200
    response = authorize(api, made, other)
    assert refusal(response) == (409, "not_authorizable", [])
    assert (response.json()["state"], response.json()["version"]) == ("authorized", 2)
    assert authorize(api, made, signed).status_code == 200


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"value": "100000001"}, "signature"),
        ({"to": "0x" + "11" * 20}, "signature"),
        ({"from": MERCHANT}, "signature"),
        ({"nonce": "0x" + "11" * 32}, "nonce"),
        ({"validAfter": FAR}, "valid_after"),
        ({"validAfter": "4000000000"}, "valid_after"),
    ],
)
def test_other_terms_than_the_payments(
    api: Api, made: dict[str, Any], conn: psycopg.Connection[Any], changes: dict[str, str], field: str
) -> None:
    assert refusal(authorize(api, made, sign(made["typed_data"], **changes))) == (400, "validation_failed", [field])
    assert jobs(conn) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [("chainId", 1), ("name", "Other Dollar"), ("version", "1"), ("verifyingContract", "0x" + "11" * 20)],
)
def test_another_domain(api: Api, made: dict[str, Any], name: str, value: Any) -> None:
    document = {**made["typed_data"], "domain": {**made["typed_data"]["domain"], name: value}}
    assert refusal(authorize(api, made, sign(document))) == (400, "validation_failed", ["signature"])


def test_a_window_that_was_changed_after_signing(api: Api, made: dict[str, Any]) -> None:
    signed = {**sign(made["typed_data"]), "valid_before": "4000000000"}
    assert refusal(authorize(api, made, signed)) == (400, "validation_failed", ["signature"])


def test_somebody_elses_signature(api: Api, made: dict[str, Any]) -> None:
    signed = sign(made["typed_data"], OTHER_PAYER_KEY)
    assert refusal(authorize(api, made, signed)) == (400, "validation_failed", ["signature"])


def test_signatures_that_the_token_would_refuse(api: Api, made: dict[str, Any]) -> None:
    """s in the upper half, v of another convention, r or s of zero or beyond the order."""
    signed = sign(made["typed_data"])
    good = signed["signature"]
    recovery = format(int(good[-2:], 16) - 27, "02x")
    for bad in (
        mirrored(good),
        good[:-2] + recovery,
        good[:-2] + "1d",
        "0x" + "00" * 65,
        "0x" + "ff" * 65,
        good[:66] + "00" * 32 + good[-2:],
        "0x" + "00" * 32 + good[66:],
        "0x" + "ff" * 32 + good[66:],
    ):
        response = authorize(api, made, {**signed, "signature": bad})
        assert refusal(response) == (400, "validation_failed", ["signature"]), bad
    assert authorize(api, made, signed).status_code == 200


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("signature", text) for text in ("", "0x", "0x" + "11" * 64, "0x" + "11" * 66, "11" * 65, "0x" + "zz" * 65, "0x" + "é" * 130)),
        *(("nonce", text) for text in ("", "0x", "0x" + "11" * 31, "0x" + "AB" * 32, "11" * 32)),
        *((name, text) for name in ("valid_after", "valid_before")
          for text in ("", "-1", "01", "1.5", "１", str(2**256), "9" * 200, "0x1", "soon")),
    ],
)  # fmt: skip
def test_malformed_fields(api: Api, made: dict[str, Any], field: str, value: str) -> None:
    signed = {**sign(made["typed_data"]), field: value}
    assert refusal(authorize(api, made, signed)) == (400, "validation_failed", [field])


@pytest.mark.parametrize("body", [{}, [], None, {"valid_after": 0}, {"memo": "x"}])
def test_bodies_that_are_no_authorization(api: Api, made: dict[str, Any], body: Any) -> None:
    assert authorize(api, made, body).status_code == 400


def test_too_late(api: Api, made: dict[str, Any], conn: psycopg.Connection[Any]) -> None:
    """The authorization's own end, and the payment's."""
    for over in ("1", "1700000000"):
        signed = sign(made["typed_data"], validBefore=over)
        assert refusal(authorize(api, made, signed)) == (400, "authorization_expired", [])
    conn.execute("SET LOCAL session_replication_role = replica")  # expires_at is a term, and terms do not change
    conn.execute("UPDATE payment_intent SET expires_at = clock_timestamp() - interval '1 second'")
    conn.execute("SET LOCAL session_replication_role = origin")
    signed = sign(made["typed_data"], validBefore=FAR)
    assert refusal(authorize(api, made, signed)) == (400, "authorization_expired", [])
    assert jobs(conn) == []


def test_a_token_that_is_not_configured_any_more(api: Api, made: dict[str, Any], settings: Settings) -> None:
    settings.PAYMENT_TOKENS = []
    config.cache_clear()
    assert refusal(authorize(api, made, sign(made["typed_data"]))) == (400, "validation_failed", ["token"])
    assert api.get(f"{PATH}/{made['id']}").json()["typed_data"] is None


def test_a_full_queue(api: Api, made: dict[str, Any], conn: psycopg.Connection[Any], settings: Settings) -> None:
    settings.QUEUE_CAPACITY, settings.QUEUE_SAFETY_MARGIN = 15, 5
    signed = sign(made["typed_data"])
    fill_queue(conn, "settle", Kind.PAYMENT, 10)
    full = authorize(api, made, signed)
    assert refusal(full) == (429, "rate_limited", [])
    assert int(full.headers["Retry-After"]) >= 1
    conn.execute("DELETE FROM queue_job")
    assert authorize(api, made, signed).status_code == 200
    fill_queue(conn, "settle", Kind.PAYMENT, 10)
    assert authorize(api, made, signed).status_code == 200  # it takes no further place


class TestWho:
    def test_a_disabled_account(
        self, api: Api, alice: int, made: dict[str, Any], conn: psycopg.Connection[Any]
    ) -> None:
        conn.execute("UPDATE client_account SET status = 'disabled' WHERE id = %s", (alice,))
        for response in (authorize(api, made, sign(made["typed_data"])), cancel(api, made)):
            assert refusal(response) == (403, "account_disabled", [])
        assert jobs(conn) == []

    def test_somebody_elses(self, made: dict[str, Any], bob: int) -> None:
        """As missing as one that never was."""
        other = Api(OTHER_KEY)
        absent = {"id": "pi_" + "0" * 24}
        for one in (made, absent, {"id": "pi_x"}, {"id": made["id"].upper()}):
            for response in (
                authorize(other, one, sign(made["typed_data"])),
                cancel(other, one),
                other.get(f"{PATH}/{one['id']}"),
                other.get(f"{PATH}/{one['id']}/timeline"),
            ):
                assert refusal(response) == (404, "not_found", [])

    def test_nobody(self, made: dict[str, Any]) -> None:
        stranger = Api(key=None)
        for response in (authorize(stranger, made, {}), cancel(stranger, made), stranger.get(PATH)):
            assert refusal(response) == (401, "unauthorized", [])


class TestCancel:
    def test_created(self, api: Api, made: dict[str, Any]) -> None:
        body = cancel(api, made).json()
        assert (body["state"], body["state_reason"], body["typed_data"]) == ("canceled", "canceled by client", None)
        assert refusal(authorize(api, made, sign(made["typed_data"]))) == (409, "not_authorizable", [])

    def test_authorized(self, api: Api, made: dict[str, Any], conn: psycopg.Connection[Any]) -> None:
        signed = sign(made["typed_data"])
        authorize(api, made, signed)
        assert cancel(api, made).json()["state"] == "canceled"
        assert jobs(conn) == []
        again = authorize(api, made, signed)
        assert refusal(again) == (409, "not_authorizable", [])
        assert again.json()["state"] == "canceled"

    def test_twice(self, api: Api, made: dict[str, Any]) -> None:
        first = cancel(api, made)
        assert cancel(api, made).content == first.content

    def test_too_late(self, api: Api, made: dict[str, Any], conn: psycopg.Connection[Any]) -> None:
        """409 says how it stands."""
        authorize(api, made, sign(made["typed_data"]))
        for target, brought in (
            (IntentState.SETTLING, {}),
            (IntentState.CONFIRMING, {"tx_hash": b"\1" * 32}),
            (IntentState.SETTLED, {"tx_hash": b"\1" * 32}),
        ):
            advance(conn, made, target, **brought)
            response = cancel(api, made)
            assert refusal(response) == (409, "not_cancelable", [])
            assert response.json()["state"] == target.value


def test_twins_and_a_cancel_at_once(committed: psycopg.Connection[Any]) -> None:
    """Eight authorize, two of them otherwise, two cancel: one authorization counts, one job, and every answer is true."""
    issue_key(committed, insert_account(committed, "alice"), KEY)
    seen: Counter[tuple[int, str]] = Counter()
    for number in range(6):
        made = create(Api(), f"k{number}").json()
        one, two = sign(made["typed_data"]), sign(made["typed_data"], validBefore=FAR)
        gate = threading.Barrier(10)

        def send(place: int, made: Any = made, one: Any = one, two: Any = two, gate: Any = gate) -> tuple[int, str]:
            try:
                gate.wait()
                answer = cancel(Api(), made) if place >= 8 else authorize(Api(), made, two if place >= 6 else one)
                return answer.status_code, answer.json()["state"]
            finally:
                connections.close_all()

        with ThreadPoolExecutor(10) as pool:
            answers = list(pool.map(send, range(10)))
        intent = find_intent(committed, made["id"])
        assert intent is not None
        assert intent.state is IntentState.CANCELED
        assert intent.version in (2, 3)
        assert answers[8:] == [(200, "canceled")] * 2
        assert {status for status, _ in answers} <= {200, 409}
        assert len({"one" if place < 6 else "two" for place in range(8) if answers[place][0] == 200}) <= 1
        seen.update(answers)
    print(f"twins: {dict(seen)}")
    assert jobs(committed) == []
