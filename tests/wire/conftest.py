"""One warm stack with short deadlines for all scenarios of the wire contract."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

import pytest

from tests.wire.campaign import Campaign
from tests.wire.world import World, var_directory

START_SECONDS = 600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test of this package waits for the stack and for all scenarios; who waits for a program comes last in its module."""
    here = [place for place, item in enumerate(items) if _is_here(item)]
    modules = list(dict.fromkeys(items[place].path for place in here))
    ordered = sorted((items[place] for place in here), key=lambda item: (modules.index(item.path), _waits(item)))
    for place, item in zip(here, ordered, strict=True):
        item.add_marker(pytest.mark.stack)
        item.add_marker(pytest.mark.timeout(START_SECONDS))
        items[place] = item


def _is_here(item: pytest.Item) -> bool:
    return "tests/wire/" in item.nodeid


def _waits(item: pytest.Item) -> bool:
    """Whether it wants what runs beside the other tests of its module."""
    return isinstance(item, pytest.Function) and bool({"newer", "idling"} & set(item.fixturenames))


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
