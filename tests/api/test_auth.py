"""API keys: where they may stand, what refuses them, how long a revoked one is remembered."""

from __future__ import annotations

import json
import logging
from typing import Any

import psycopg
import pytest
from django.db import InterfaceError as DjangoInterfaceError
from django.db import OperationalError as DjangoOperationalError
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.test.client import RequestFactory
from pytest_django import Settings

from requests_app.api import auth, body, view
from requests_app.api.refusals import Refused
from requests_app.api.v2.views import InputProof
from requests_app.states import Kind, Status
from tests.api import bodies
from tests.api.conftest import KEY, Api
from tests.api.rows import counts, insert_job
from tests.core.rows import insert_account

ROUTES = ["/v2/input-proof", "/v1/input-proof"]


@pytest.mark.parametrize(
    "headers",
    [
        {"x-api-key": KEY},
        {"authorization": f"Bearer {KEY}"},
        {"authorization": f"bearer  {KEY} "},
        {"cookie": f"x-api-key={KEY};"},
        {"cookie": f"a=b; x-api-key={KEY}"},
    ],
)
def test_a_key_may_stand_in_three_places(alice: int, headers: dict[str, str]) -> None:
    assert Api(key=None).post("/v2/input-proof", bodies.input_proof(), **headers).status_code == 202


@pytest.mark.parametrize(
    ("site", "status"), [("cross-site", 401), ("same-site", 401), ("same-origin", 202), ("none", 202), (None, 202)]
)
def test_a_page_of_another_site_does_not_write_with_the_cookie(
    alice: int, conn: psycopg.Connection[Any], site: str | None, status: int
) -> None:
    """A form or fetch of text/plain needs no preflight, and the browser adds the cookie."""
    headers = {"cookie": f"x-api-key={KEY}"} | ({"sec-fetch-site": site} if site else {})
    asked = Client().post("/v2/input-proof", json.dumps(bodies.input_proof()), "text/plain", headers=headers)
    assert asked.status_code == status
    assert (conn.execute("SELECT count(*) FROM input_proof_req").fetchone() == (1,)) is (status == 202)


@pytest.mark.parametrize("key", [None, "", "wrong", KEY + "x", KEY.upper(), "x" * 600, "kéy"])
def test_missing_and_wrong_keys_look_alike(alice: int, conn: psycopg.Connection[Any], key: str | None) -> None:
    api = Api(key=None)
    headers = {} if key is None else {"x-api-key": key}
    v2 = api.post("/v2/input-proof", bodies.input_proof(), **headers)
    assert v2.status_code == 401
    assert v2.json()["status"] == "failed"
    assert v2.json()["error"] == {"label": "unauthorized", "message": "API key missing or not valid"}
    assert v2.headers["WWW-Authenticate"].startswith("Bearer")
    v1 = api.post("/v1/input-proof", bodies.input_proof(), **headers)
    assert v1.status_code == 401
    assert v1.headers["content-type"] == "application/problem+json"
    job = insert_job(conn, alice, Kind.INPUT_PROOF, Status.PROCESSING)
    for path in (f"/v2/input-proof/{job}", f"/v1/input-proof/{job}", f"/v1/requests/{job}/timeline"):
        assert api.get(path, **headers).status_code == 401
    assert api.post(f"/v1/requests/{job}/cancel", **headers).status_code == 401
    assert counts(conn)["queue_job"] == 0


def test_the_key_is_checked_before_the_body(alice: int) -> None:
    assert Api("wrong").post("/v2/input-proof", b"not json").status_code == 401


def test_a_revoked_key_and_a_disabled_account_are_refused(alice: int, conn: psycopg.Connection[Any]) -> None:
    conn.execute("UPDATE api_key SET revoked_at = clock_timestamp()")
    assert Api().post("/v2/input-proof", bodies.input_proof()).status_code == 401
    conn.execute("UPDATE api_key SET revoked_at = NULL")
    assert Api().post("/v2/input-proof", bodies.input_proof()).status_code == 202
    auth.forget_keys()
    conn.execute("UPDATE client_account SET status = 'disabled'")
    assert Api().post("/v2/input-proof", bodies.input_proof()).status_code == 401


def test_a_disabled_account_writes_nothing_even_while_its_key_is_remembered(
    alice: int, conn: psycopg.Connection[Any]
) -> None:
    api = Api()
    job = api.post("/v1/input-proof", bodies.input_proof()).json()["ext_job_id"]
    conn.execute("UPDATE client_account SET status = 'disabled'")
    before = counts(conn)
    for path in ROUTES:
        assert api.post(path, bodies.input_proof(ciphertextWithInputVerification="aa")).status_code == 401
    assert api.post(f"/v1/requests/{job}/cancel").status_code == 401
    assert counts(conn) == before


def test_a_key_is_remembered_for_two_seconds_at_most(
    alice: int, conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("requests_app.api.auth.time.monotonic", lambda: now[0])
    api = Api()
    job = api.post("/v2/input-proof", bodies.input_proof()).json()["result"]["jobId"]
    conn.execute("UPDATE api_key SET revoked_at = clock_timestamp()")
    now[0] += 1.9
    assert api.get(f"/v2/input-proof/{job}").status_code == 202
    now[0] += 0.2
    assert api.get(f"/v2/input-proof/{job}").status_code == 401
    assert auth.REMEMBER_SECONDS <= 5


def test_last_use_is_written_once_a_minute(
    alice: int, conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("requests_app.api.auth.time.monotonic", lambda: now[0])
    api = Api()
    job = insert_job(conn, alice, Kind.INPUT_PROOF, Status.PROCESSING)

    def used_after(seconds: float) -> bool:
        now[0] += seconds
        conn.execute("UPDATE api_key SET last_used_at = NULL")
        assert api.get(f"/v2/input-proof/{job}").status_code == 202
        row = conn.execute("SELECT last_used_at IS NOT NULL FROM api_key").fetchone()
        return bool(row and row[0])

    assert used_after(0)
    assert not used_after(10)
    assert used_after(60)


def test_optional_auth_uses_the_named_account(conn: psycopg.Connection[Any], settings: Settings) -> None:
    settings.API_AUTH, settings.API_DEFAULT_ACCOUNT = "optional", "open"
    api = Api(key=None)
    assert api.post("/v2/input-proof", bodies.input_proof()).status_code == 401  # the account does not exist
    account = insert_account(conn, "open")
    job = api.post("/v2/input-proof", bodies.input_proof()).json()["result"]["jobId"]
    assert conn.execute("SELECT client_id FROM request_client").fetchone() == (account,)
    assert api.get(f"/v2/input-proof/{job}").status_code == 202
    assert Api("wrong").get(f"/v2/input-proof/{job}").status_code == 401
    auth.forget_keys()
    conn.execute("UPDATE client_account SET status = 'disabled'")
    assert api.get(f"/v2/input-proof/{job}").status_code == 401


def test_no_csrf_token_is_asked_for(alice: int) -> None:
    client = Client(enforce_csrf_checks=True)
    for path in ("/v2/input-proof", "/v1/input-proof"):
        response = client.post(path, b"{}", content_type="text/plain", headers={"x-api-key": KEY})
        assert response.status_code == 400
    assert client.post("/v2/nothing", {}).status_code == 404
    assert client.post("/v1/nothing", {}).status_code == 404


@pytest.mark.parametrize(("path", "form"), [("/v2/input-proof/", "envelope"), ("/v1/input-proof/", "problem")])
def test_unexpected_errors_and_a_lost_database_show_nothing(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, path: str, form: str
) -> None:
    """The wire contract wants a 500 for a lost database; our own face says 503, and when to ask again."""
    job = "00000000-0000-4000-8000-000000000000"
    internal, away = (500, "internal_server_error"), (503, "database_unavailable")
    lost = (
        (*internal, "Database error") if form == "envelope" else (*away, "The database does not answer at the moment")
    )
    for error, expected in (
        (psycopg.OperationalError("host=secret"), lost),
        (DjangoOperationalError("host=secret"), lost),
        (DjangoInterfaceError("connection already closed"), lost),
        (psycopg.DataError("secret"), (*internal, "Database error")),
        (RuntimeError("secret"), (*internal, "Internal server error")),
    ):

        def broken(*_args: Any, _error: Exception = error, **_kwargs: Any) -> None:
            raise _error

        monkeypatch.setattr("requests_app.api.jobs.find_job", broken)
        with caplog.at_level(logging.ERROR):
            response = api.get(f"{path}{job}")
        shown = response.json()["error"] if form == "envelope" else response.json()
        text = shown["message"] if form == "envelope" else shown["detail"]
        assert (response.status_code, shown["label"], text) == expected
        assert response.headers.get("Retry-After") == ("2" if response.status_code == 503 else None)
        assert b"secret" not in response.content


class _Broken:
    def read(self, *_args: int) -> bytes:
        raise OSError("reset by peer")


def test_a_body_that_breaks_off_is_a_request_error(factory: RequestFactory) -> None:
    request = factory.post("/v2/input-proof", b"{}", content_type="application/json")
    request.META["HTTP_TRANSFER_ENCODING"], request.META["CONTENT_LENGTH"] = "chunked", ""
    request.META["wsgi.input"] = _Broken()
    with pytest.raises(Refused) as caught:
        body.read_body(request)
    assert caught.value.label == "request_error"


def test_a_chunked_body_is_read_to_its_end(factory: RequestFactory) -> None:
    import io

    request = factory.post("/v2/input-proof", b"", content_type="application/json")
    request.META.update({"HTTP_TRANSFER_ENCODING": "chunked", "CONTENT_LENGTH": "", "wsgi.input": io.BytesIO(b"{1}")})
    assert body.read_body(request) == b"{1}"
    request.META["wsgi.input"] = io.BytesIO(b" " * (body.LIMIT + 1))
    with pytest.raises(Refused):
        body.read_body(request)


def test_views_are_small_steps_from_the_request(factory: RequestFactory, alice: int) -> None:
    """No DRF request wrapper, negotiation or renderer stands in the way of a handler."""
    seen: list[type] = []

    class Probe(InputProof):
        def post(self, request: HttpRequest) -> HttpResponse:
            seen.append(type(request))
            return HttpResponse()

    Probe.as_view()(factory.post("/", b"{}", content_type="application/json"))
    assert issubclass(seen[0], HttpRequest)
    assert issubclass(Probe, view.FaceView)
