"""A client over the real URLs and database, an account with a key, and configured chains."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.test import Client
from django.test.client import RequestFactory
from pytest_django import Settings

from requests_app.api.auth import forget_keys
from requests_app.api.signatures import verifier
from requests_app.api.waiting import StatusWatch
from requests_app.config import config
from requests_app.runtime import forget as forget_settings
from requests_app.store.session import connect, web_connection
from tests.core.rows import insert_account
from tests.waiting import wait_until

KEY = "test-key-of-alice"
OTHER_KEY = "test-key-of-bob"


class Api:
    """Requests with an API key; `key` None sends none."""

    def __init__(self, key: str | None = KEY) -> None:
        self._client = Client(raise_request_exception=False)
        self._headers = {} if key is None else {"x-api-key": key}

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self._client.post(path, raw, content_type="application/json", headers={**self._headers, **headers})

    def get(self, path: str, **headers: str) -> Any:
        return self._client.get(path, headers={**self._headers, **headers})

    def method(self, name: str, path: str) -> Any:
        return self._client.generic(name, path, headers=self._headers)


def issue_key(conn: psycopg.Connection[Any], account_id: int, key: str) -> int:
    found = conn.execute(
        "INSERT INTO api_key (account_id, prefix, digest) VALUES (%s, %s, %s) RETURNING id",
        (account_id, key, hashlib.sha256(key.encode()).digest()),
    ).fetchone()
    assert found is not None
    return int(found[0])


@pytest.fixture(autouse=True)
def _chains(settings: Settings) -> Iterator[None]:
    """Host chains 8009 and 9001, and the gateway contract of the golden vectors; nothing is called."""
    settings.GATEWAY_CHAIN_ID = 654321
    settings.GATEWAY_RPC_URLS = ["http://127.0.0.1:9"]
    settings.DECRYPTION_ADDRESS = "0xB8Ae44365c45A7C5256b14F607CaE23BC040c354"
    settings.INPUT_VERIFICATION_ADDRESS = "0xE61cff9C581c7c91AEF682c2C10e8632864339ab"
    settings.GATEWAY_SIGNER_KEYS = []
    settings.HOST_CHAINS = [
        {"chain_id": chain_id, "url": "http://127.0.0.1:9", "acl_address": "0x339EBB773A9bC1deCFfD5ef4BC7c907e26C1f836"}
        for chain_id in (8009, 9001)
    ]
    settings.API_AUTH = "required"
    # Most bodies here are not signed; those that are about v2 signatures switch this on.
    settings.V2_SIGNATURE_CHECK = False
    # It indexes every static file each time a test client is made; no test here asks for one.
    settings.MIDDLEWARE = [name for name in settings.MIDDLEWARE if "whitenoise" not in name]
    for cached in (config.cache_clear, forget_settings, verifier.cache_clear, forget_keys):
        cached()
    yield
    for cached in (config.cache_clear, forget_settings, verifier.cache_clear, forget_keys):
        cached()


@pytest.fixture
def conn(db: None) -> psycopg.Connection[Any]:
    """The connection that the views use too, in a transaction that the test's end rolls back: faster than truncating."""
    return web_connection()


@pytest.fixture
def alice(conn: psycopg.Connection[Any]) -> int:
    """The account behind KEY."""
    account_id = insert_account(conn, "alice")
    issue_key(conn, account_id, KEY)
    return account_id


@pytest.fixture
def bob(conn: psycopg.Connection[Any]) -> int:
    """The account behind OTHER_KEY."""
    account_id = insert_account(conn, "bob")
    issue_key(conn, account_id, OTHER_KEY)
    return account_id


@pytest.fixture
def api(alice: int) -> Api:
    """Alice's client."""
    return Api()


@pytest.fixture
def factory() -> RequestFactory:
    """Bare requests, for what the client would not send."""
    return RequestFactory()


@pytest.fixture
def committed(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[psycopg.Connection[Any]]:
    """A connection of its own, for what other threads must see; the long-poll thread is gone when the test ends."""
    watch = StatusWatch(idle_seconds=0.01)
    monkeypatch.setattr("requests_app.api.v1.views.watch", watch)
    with connect("worker") as connection:
        yield connection
    wait_until(lambda: not any(thread.name == "relayer-long-poll" for thread in threading.enumerate()), 60)
