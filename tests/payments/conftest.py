"""What tests of payments share: the log of the chain they settle on, and a real chain with the devnet's dollar."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.payments import shown
from tests.payments.settling.chain import running
from workers.devnet.deployment import Deployment


@pytest.fixture
def log(conn: psycopg.Connection[Any]) -> Iterator[psycopg.Connection[Any]]:
    """A worker connection to a database with an empty log that starts at block 1, and no payments."""
    shown.clean(conn)
    yield conn
    conn.execute("TRUNCATE envelope_meta, envelope_blob")


@pytest.fixture(scope="package")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Both chains with their contracts, started once for all tests of payments that want them."""
    with running(tmp_path_factory.mktemp("payments-devnet")) as found:
        yield found
