"""One stack with its browsers for all tests of this directory: it ends with the last of them, before other tests start a browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.running.desk import Desk
from tests.browser.running.opening import running

MARKS = (pytest.mark.browser, pytest.mark.full, pytest.mark.stack, pytest.mark.timeout(600))


@pytest.fixture(scope="package")
def desk() -> Iterator[Desk]:
    expect.set_options(timeout=60_000)
    with running() as made:
        yield made


@pytest.fixture(autouse=True)
def _no_faults(desk: Desk) -> Iterator[None]:
    yield
    desk.clear()
