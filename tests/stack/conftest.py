"""One warm stack for the whole run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stack.harness import ROOT, Stack
from workers.devnet.traffic import Traffic


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """The running relayer with its devnet."""
    var = Path(os.environ.get("RELAYER_STACK_VAR", ROOT / "var" / "stack"))
    running = Stack(var, environment={"WEBHOOK_ALLOWED_HOSTS": "127.0.0.1"})
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="session")
def traffic(stack: Stack) -> Iterator[Traffic]:
    """Requests as the SDK sends them, acceptable to the stack's chains."""
    maker = Traffic(stack.deployment, operator=1)
    try:
        yield maker
    finally:
        maker.close()
