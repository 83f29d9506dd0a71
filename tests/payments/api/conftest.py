"""The API's fixtures with a token in which payments settle."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from pytest_django import Settings

from requests_app.api.waiting import StatusWatch
from requests_app.config import config
from requests_app.store.session import connect
from tests.api.conftest import _chains, alice, api, bob, conn
from tests.payments.api.paying import TOKENS
from tests.waiting import wait_until

__all__ = ["_chains", "alice", "api", "bob", "conn"]


@pytest.fixture(autouse=True)
def _tokens(_chains: None, settings: Settings) -> None:
    """The dollar of the tests, on chain 654321."""
    settings.PAYMENT_TOKENS = TOKENS
    config.cache_clear()


@pytest.fixture
def committed(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[psycopg.Connection[Any]]:
    """A connection of its own, for what other threads must see; the long-poll thread is gone when the test ends."""
    monkeypatch.setattr("requests_app.api.v1.payments.watch", StatusWatch(idle_seconds=0.01))
    with connect("worker") as connection:
        yield connection
    wait_until(lambda: not any(thread.name == "relayer-long-poll" for thread in threading.enumerate()), 60)
