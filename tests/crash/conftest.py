"""The devnet with its bots, and the ground that stands on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.crash.ground import Ground, Stage
from tests.devnet.conftest import Devnet, devnet

__all__ = ["devnet", "ground", "stage"]


@pytest.fixture(scope="session")
def stage(devnet: Devnet) -> Iterator[Stage]:
    made = Stage(devnet)
    yield made
    made.close()


@pytest.fixture
def ground(stage: Stage, conn: psycopg.Connection[Any], tmp_path: Path) -> Ground:
    return Ground(stage, conn, tmp_path)
