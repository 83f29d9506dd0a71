"""The devnet with its bots, and the ground that stands on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.crash.ground import Ground, Stage
from tests.devnet.conftest import Devnet, layout_at, running


@pytest.fixture(scope="package")
def devnet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Devnet]:
    """With blocks of the usual length: scenes take some of them back."""
    with running(layout_at(tmp_path_factory.mktemp("devnet")), quick=False) as made:
        yield made


@pytest.fixture(scope="package")
def stage(devnet: Devnet) -> Iterator[Stage]:
    made = Stage(devnet)
    yield made
    made.close()


@pytest.fixture
def ground(stage: Stage, conn: psycopg.Connection[Any], tmp_path: Path) -> Ground:
    return Ground(stage, conn, tmp_path)
