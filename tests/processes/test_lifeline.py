"""Processes that end with their parent, and whatever their parent's end was."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.processes.children import Child, is_running, wait_gone
from tests.waiting import wait_until
from workers import lifeline


def _start_command(number: int) -> Callable[[Callable[[str], None]], None]:
    def work(say: Callable[[str], None]) -> None:
        with subprocess.Popen(lifeline.command("sleep", "60", number=number)) as process:
            say(str(process.pid))
            signal.pause()

    return work


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_command_ends_with_its_killed_parent(number: int) -> None:
    parent = Child(_start_command(number))
    pid = int(parent.hear())
    wait_until(lambda: psutil.Process(pid).name() == "sleep", 60, "exec")
    parent.signal(signal.SIGKILL)
    wait_gone([pid], 60)


def test_forks_of_forks_end_with_the_first_of_them() -> None:
    def work(say: Callable[[str], None]) -> None:
        lifeline.tie_every_fork()
        Child(lambda _say: (say(_family_of_two()), signal.pause())[1])
        signal.pause()

    def _family_of_two() -> str:
        grandchild = Child(lambda _say: signal.pause())
        return f"{psutil.Process().pid} {grandchild.pid}"

    parent = Child(work)
    pids = [int(word) for word in parent.hear().split()]
    assert all(is_running(pid) for pid in pids)
    parent.signal(signal.SIGKILL)
    wait_gone(pids, 60)


def test_parent_that_has_ended_already_counts() -> None:
    child = Child(lambda _say: lifeline.die_with_parent(signal.SIGTERM, parent=1))
    assert child.end() == -signal.SIGTERM


def test_directory_is_emptied_first(tmp_path: Path) -> None:
    (tmp_path / "metrics").mkdir()
    (tmp_path / "metrics" / "counter_1.db").write_text("old")
    line = lifeline.command(sys.executable, "-c", "print('ran')", empty=str(tmp_path / "metrics"))
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert done.stdout == "ran\n"
    assert list((tmp_path / "metrics").iterdir()) == []
