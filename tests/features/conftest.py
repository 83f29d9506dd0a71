"""Nothing of an earlier test's runtime settings; the API's client and the send side's stub node are those of their own tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from requests_app.api.auth import forget_keys
from requests_app.runtime import forget
from requests_app.store.session import web_connection
from tests.api.conftest import _chains, alice, api, bob, committed, conn  # noqa: F401 - fixtures


@pytest.fixture(autouse=True)
def _fresh_settings(request: pytest.FixtureRequest) -> Iterator[None]:
    if "db" in request.fixturenames:
        request.getfixturevalue("db")
        # A first statement: psycopg takes a transaction that has not begun for none, and its block would commit Django's.
        web_connection().execute("SELECT 1")
    forget()
    forget_keys()
    yield
    forget()
    forget_keys()
