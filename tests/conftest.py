"""Shared fixtures. The test database lives on the embedded server (tests/settings.py), which starts by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hypothesis
import psycopg
import pytest

from tests.installing import Beforehand
from tests.reported import LINES

# How long an example takes, or the finding of one, says something about the machine.
hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")


# Each has a stack or a devnet of its own, which is gone before the next one starts.
PACKAGES = ("tests/wire/", "tests/stack/", "tests/devnet/", "tests/crash/")
_beforehand: list[Beforehand] = []


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """These packages go first, each in one piece."""
    items.sort(
        key=lambda item: next(
            (place for place, package in enumerate(PACKAGES) if package in item.nodeid), len(PACKAGES)
        )
    )


def pytest_collection_finish(session: pytest.Session) -> None:
    """What the selected tests need from the registries is fetched from now on. By one of several runners."""
    runner = getattr(session.config, "workerinput", {}).get("workerid", "gw0")
    if runner == "gw0" and not session.config.option.collectonly:
        _beforehand.append(Beforehand({item.module for item in session.items if isinstance(item, pytest.Function)}))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """One of several runners hands its lines to the one that prints the summary."""
    for one in _beforehand:
        one.end()
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["measured"] = LINES


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A runner is done: what it measured."""
    LINES.extend(getattr(node, "workeroutput", {}).get("measured", ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was measured, also when every test has passed and its output is not shown."""
    if LINES:
        terminalreporter.section("measured")
        for line in LINES:
            terminalreporter.write_line(line)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With more runners than one: see tests/runners.py."""
    from tests.runners import SystemsApart

    return SystemsApart(config, log)


@pytest.fixture(scope="session", autouse=True)
def quick_flush() -> None:
    """A test's rows go without Django's slow flush."""
    from tests.flush import install

    install()


@pytest.fixture(autouse=True)
def no_kept_connection() -> Iterator[None]:
    """The database can be dropped after the last test."""
    from requests_app.api.waiting import watch
    from requests_app.store.bands import close_kept_connections

    watch._idle_seconds = 0.05
    yield
    close_kept_connections()
    if poller := watch._poller:
        poller.join(10)


@pytest.fixture(autouse=True)
def look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests change jobs behind the queue's back and take the turn again at once: no scan of the queue is put off."""
    monkeypatch.setattr("requests_app.store.turns.SCAN_SHARE", 1.0)


@pytest.fixture(autouse=True)
def no_known_depths() -> None:
    """Nothing is known of an earlier test's queues."""
    from requests_app.depths import forget

    forget()


@pytest.fixture
def conn(transactional_db: None) -> Iterator[psycopg.Connection]:
    """A raw autocommit connection with a worker's time-outs, in the test database."""
    from requests_app.store.session import connect

    with connect("worker") as connection:
        yield connection


@pytest.fixture
def two_conns(transactional_db: None) -> Iterator[tuple[psycopg.Connection, psycopg.Connection]]:
    """Two such connections, for whatever must hold between two workers."""
    from requests_app.store.session import connect

    with connect("worker") as first, connect("worker") as second:
        yield first, second
