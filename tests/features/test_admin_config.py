"""`/admin/config` (fhevm_http 15.4, 20.4)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.test import Client
from pytest_django import Settings

from requests_app.clients import create_account, issue_key, set_operator
from requests_app.store import runtime as store
from requests_app.store.session import web_connection

PATH = "/admin/config"
TPS = ["input_proof_throttler_tps", "user_decrypt_throttler_tps", "public_decrypt_throttler_tps"]


@pytest.fixture
def conn(db: None) -> psycopg.Connection[Any]:
    return web_connection()


@pytest.fixture
def keys(conn: psycopg.Connection[Any], settings: Settings) -> dict[str, str]:
    settings.ADMIN_CONFIG = True
    for name in ("ops", "dapp"):
        create_account(conn, name)
    set_operator(conn, "ops", True)
    return {name: issue_key(conn, name).text for name in ("ops", "dapp")}


@pytest.fixture
def post(keys: dict[str, str]) -> Callable[..., Any]:
    def call(body: Any, key: str | None = None, content_type: str = "application/json") -> Any:
        raw = body if isinstance(body, str) else json.dumps(body)
        return Client().post(PATH, raw, content_type=content_type, headers={"x-api-key": key or keys["ops"]})

    return call


def test_20_4_disabled_by_default(db: None) -> None:
    for response in (Client().get(PATH), Client().post(PATH, "{", content_type="application/json")):
        assert (response.status_code, response.json()) == (403, {"error": "Admin endpoints are not enabled"})


def test_only_an_operator_s_key_opens_it(keys: dict[str, str], post: Callable[..., Any]) -> None:
    body = {"param": TPS[0], "value": 5}
    assert Client().get(PATH).status_code == 401
    assert post(body, "rk_wrong").status_code == 401
    assert (
        post(body, keys["dapp"]).status_code,
        Client().get(PATH, headers={"x-api-key": keys["dapp"]}).status_code,
    ) == (403, 403)
    assert store.history(web_connection(), None, 10) == []


@pytest.mark.parametrize("change", ["status = 'disabled'", "operator = false"])
def test_who_was_an_operator_when_the_key_was_looked_at_changes_nothing(
    change: str, keys: dict[str, str], post: Callable[..., Any], conn: psycopg.Connection[Any]
) -> None:
    """I11: the key is remembered for a moment."""
    assert Client().get(PATH, headers={"x-api-key": keys["ops"]}).status_code == 200
    conn.execute(f"UPDATE client_account SET {change} WHERE name = 'ops'")
    assert post({"param": TPS[0], "value": 5}).status_code == 401
    assert store.history(conn, None, 10) == []


@pytest.mark.parametrize("name", TPS)
def test_20_4_tps_are_set_and_limited(post: Callable[..., Any], name: str) -> None:
    for value in (1, 1000, 50):
        response = post({"param": name, "value": value})
        assert response.status_code == 200
        assert response.json() == {"name": name, "value": value, "message": "Configuration updated successfully"}
    zero, large = post({"param": name, "value": 0}), post({"param": name, "value": 1001})
    assert (zero.status_code, zero.json()["error"]) == (400, f"{name} must be greater than 0")
    assert (large.status_code, large.json()["error"]) == (400, f"{name} must be less than or equal to 1000")


def test_20_4_unknown_names(post: Callable[..., Any]) -> None:
    for name in ("x", "RetryAfterMinSeconds", "readiness_checks_per_call"):
        response = post({"param": name, "value": 1})
        assert (response.status_code, response.json()) == (400, {"error": f"Unknown configuration parameter: {name}"})


def test_the_margin_is_a_fraction_and_min_stays_below_max(post: Callable[..., Any]) -> None:
    assert post({"name": "retry_after_safety_margin", "value": 0.5}).status_code == 200
    assert post({"param": "retry_after_safety_margin", "value": 1}).json() == {
        "error": "Type mismatch: expected f32, got u32"
    }
    assert (
        post({"param": "retry_after_safety_margin", "value": 2.0})
        .json()["error"]
        .startswith("Value 2.0 is out of range")
    )
    assert post({"param": "retry_after_max_seconds", "value": 2.5}).json() == {
        "error": "Type mismatch: expected u32, got f32"
    }
    crossed = post({"param": "retry_after_min_seconds", "value": 301})
    assert crossed.status_code == 400
    assert post({"param": "retry_after_max_seconds", "value": 1}).status_code == 200


def test_get_prints_pascal_case(keys: dict[str, str], post: Callable[..., Any]) -> None:
    post({"param": "retry_after_min_seconds", "value": 7})
    document = Client().get(PATH, headers={"x-api-key": keys["ops"]}).json()
    assert document["values"]["RetryAfterMinSeconds"] == 7
    assert document["values"]["InputProofThrottlerTps"] == 20
    described = {one["name"]: one for one in document["available_params"]}
    assert described["RetryAfterSafetyMargin"]["constraints"] == {"type": "f32", "min": 0.0, "max": 1.0}
    assert described["NominalTxConfirmationMs"]["constraints"] == {"type": "u32", "min": 1, "max": 60000}
    assert set(described) == set(document["values"])
    assert len(described) == 13


def test_changes_are_audited_under_the_account(post: Callable[..., Any]) -> None:
    post({"param": TPS[0], "value": 5})
    (row,) = store.history(web_connection(), None, 10)
    assert (row.name, row.before, row.after, row.changed_by) == (TPS[0], None, 5, "account:ops")


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        ("{", "application/json", 400),
        ("[" * 100_000, "application/json", 400),
        ("[]", "application/json", 422),
        ('{"param": 1, "value": 1}', "application/json", 422),
        ('{"param": "x", "value": "1"}', "application/json", 422),
        ('{"param": "x", "value": true}', "application/json", 422),
        ('{"param": "x"}', "application/json", 422),
        ('{"param": "\\ud800", "value": 1}', "application/json", 400),
        ('{"param": "x", "value": 1}', "text/plain", 415),
        (" " * (2 * 1024 * 1024 + 1), "application/json", 400),
    ],
)
def test_bad_bodies(post: Callable[..., Any], body: str, content_type: str, status: int) -> None:
    assert post(body, content_type=content_type).status_code == status


def test_other_methods_and_the_admin_beside_it(keys: dict[str, str]) -> None:
    assert Client().put(PATH).status_code == 405
    assert Client().get("/admin/login/").status_code == 200
