"""One warm stack with short deadlines for all scenarios of the wire contract."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

import pytest

from tests.wire.campaign import Campaign
from tests.wire.world import World, var_directory

START_SECONDS = 600


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """This package goes first, in one piece, so that its stack is gone before another one starts.

    The first test of it waits for the stack and for all scenarios.
    """
    items.sort(key=lambda item: not _is_here(item))
    for item in items:
        if _is_here(item):
            item.add_marker(pytest.mark.stack)
            item.add_marker(pytest.mark.timeout(START_SECONDS))


def _is_here(item: pytest.Item) -> bool:
    return "tests/wire/" in item.nodeid


@pytest.fixture(scope="package")
def world() -> Iterator[World]:
    """The running relayer."""
    running = World(var_directory())
    try:
        yield running
    finally:
        running.close()


@pytest.fixture(scope="package")
def campaign(world: World, request: pytest.FixtureRequest) -> Campaign:
    """The outcomes of all selected scenarios, run at once."""
    for module in ("faults", "requests"):
        import_module(f"tests.wire.test_20_1_{module}")
    made = Campaign(world, [item for item in request.session.items if _is_here(item)])
    made.run()
    return made


@pytest.fixture(scope="package")
def ended(world: World, campaign: Campaign) -> dict[tuple[int, str], tuple[str, str]]:
    """One request for each way to end badly."""
    return world.ended
