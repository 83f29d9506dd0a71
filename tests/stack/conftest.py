"""One warm stack for all tests of this directory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stack.harness import ROOT, Stack
from workers.devnet.traffic import Traffic


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The kills come last among the tests of the stack: they leave it with slow blocks."""
    here = [place for place, item in enumerate(items) if "tests/stack/" in item.nodeid]
    ordered = sorted((items[place] for place in here), key=lambda item: "test_kills" in item.nodeid)
    for place, item in zip(here, ordered, strict=True):
        items[place] = item


@pytest.fixture(scope="package")
def stack() -> Iterator[Stack]:
    """The running relayer with its devnet."""
    var = Path(os.environ.get("RELAYER_STACK_VAR", ROOT / "var" / "stack"))
    # Shifts of a third of the usual length: less than half a minute sees a hand-over of every slot.
    running = Stack(var, environment={"WEBHOOK_ALLOWED_HOSTS": "127.0.0.1", "SHIFT_SECONDS": "15"})
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="package")
def traffic(stack: Stack) -> Iterator[Traffic]:
    """Requests as the SDK sends them, acceptable to the stack's chains."""
    maker = Traffic(stack.deployment, operator=1)
    try:
        yield maker
    finally:
        maker.close()
