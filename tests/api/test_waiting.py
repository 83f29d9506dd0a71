"""Long-poll: places, one statement for all, wake-ups."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import pytest

from requests_app.api import waiting
from requests_app.api.waiting import StatusWatch, Subject
from requests_app.states import Kind, Status
from tests.waiting import wait_until


class Table:
    """Statuses in memory, and what was asked of them."""

    def __init__(self) -> None:
        self.statuses: dict[Subject, Status | None] = {}
        self.asked: list[Sequence[Subject]] = []
        self.broken = False

    def __call__(self, subjects: Sequence[Subject]) -> dict[Subject, Status | None]:
        self.asked.append(subjects)
        if self.broken:
            raise RuntimeError("database away")
        return {subject: self.statuses.get(subject, Status.QUEUED) for subject in subjects}


@pytest.fixture(autouse=True)
def _no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "let_connection_go", lambda: None)


@pytest.fixture
def table() -> Table:
    return Table()


def start(watch: StatusWatch, subject: Subject, seconds: float = 20) -> tuple[threading.Thread, list[bool]]:
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(watch.wait(subject, seconds)), daemon=True)
    thread.start()
    return thread, answers


def test_a_final_state_wakes_only_its_own_waiters(table: Table) -> None:
    watch = StatusWatch(poll_seconds=0.005, idle_seconds=0.05, source=table)
    one, two = (Kind.USER_DECRYPT, 1), (Kind.USER_DECRYPT, 2)
    first, answers = start(watch, one)
    second, others = start(watch, two)
    wait_until(lambda: watch.waiting() == 2, 60)
    table.statuses[one] = Status.COMPLETED
    first.join(60)
    assert answers == [True]
    assert others == []
    table.statuses[two] = Status.FAILURE
    second.join(60)
    assert others == [True]


def test_a_row_that_disappeared_ends_the_wait(table: Table) -> None:
    table.statuses[(Kind.INPUT_PROOF, 9)] = None
    watch = StatusWatch(poll_seconds=0.005, idle_seconds=0.05, source=table)
    assert watch.wait((Kind.INPUT_PROOF, 9), 5)


def test_pending_states_wait_their_time(table: Table) -> None:
    table.statuses[(Kind.INPUT_PROOF, 9)] = Status.NEEDS_REVIEW
    watch = StatusWatch(poll_seconds=0.005, idle_seconds=0.05, source=table)
    started = time.monotonic()
    assert not watch.wait((Kind.INPUT_PROOF, 9), 0.1)
    assert time.monotonic() - started >= 0.1


def test_without_a_place_the_answer_is_at_once(table: Table) -> None:
    watch = StatusWatch(places=2, poll_seconds=0.005, idle_seconds=0.05, source=table)
    threads = [start(watch, (Kind.USER_DECRYPT, number))[0] for number in range(2)]
    wait_until(lambda: watch.waiting() == 2, 60)
    started = time.monotonic()
    assert not watch.wait((Kind.USER_DECRYPT, 3), 20)
    assert time.monotonic() - started < 15
    table.statuses.update({(Kind.USER_DECRYPT, number): Status.COMPLETED for number in range(2)})
    for thread in threads:
        thread.join(60)
    assert watch.wait((Kind.USER_DECRYPT, 0), 5)  # the places are free again


def test_one_statement_asks_for_everybody(table: Table) -> None:
    watch = StatusWatch(poll_seconds=0.02, idle_seconds=0.05, source=table)
    subjects = [(Kind.USER_DECRYPT, number) for number in range(10)]
    threads = [start(watch, subject)[0] for subject in subjects + subjects[:5]]
    wait_until(lambda: watch.waiting() == 15, 60)
    wait_until(lambda: table.asked and sorted(table.asked[-1]) == subjects, 60)
    table.statuses.update(dict.fromkeys(subjects, Status.COMPLETED))
    for thread in threads:
        thread.join(60)
    assert watch.waiting() == 0


def test_a_failing_database_is_survived(table: Table) -> None:
    watch = StatusWatch(poll_seconds=0.005, idle_seconds=0.05, source=table)
    table.broken = True
    thread, answers = start(watch, (Kind.USER_DECRYPT, 1))
    wait_until(lambda: len(table.asked) >= 3, 60)
    table.statuses[(Kind.USER_DECRYPT, 1)] = Status.TIMED_OUT
    table.broken = False
    thread.join(60)
    assert answers == [True]


def test_the_poller_ends_when_idle_and_comes_back(table: Table) -> None:
    watch = StatusWatch(poll_seconds=0.005, idle_seconds=0.02, source=table)
    table.statuses[(Kind.USER_DECRYPT, 1)] = Status.COMPLETED
    assert watch.wait((Kind.USER_DECRYPT, 1), 5)
    wait_until(lambda: watch._poller is None, 60)
    assert watch.wait((Kind.USER_DECRYPT, 1), 5)
