"""Forked children of the test process, to be killed, stopped and continued. They cost milliseconds: the parent has everything loaded."""

from __future__ import annotations

import os
import select
import signal
import sys
import traceback
import warnings
from collections.abc import Callable

import psutil

from tests.waiting import wait_until


class Child:
    """One forked child. `say` in the child writes a line that `hear` in the parent reads."""

    def __init__(self, work: Callable[[Callable[[str], None]], None]) -> None:
        self._read, write = os.pipe()
        self._buffer = b""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # fork beside threads: the child uses none of them
            self.pid = os.fork()
        if self.pid:
            os.close(write)
            return
        code = 1
        try:
            work(lambda line: (os.write(write, line.encode() + b"\n"), None)[1])
            code = 0
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
        finally:
            os._exit(code)

    def hear(self, timeout: float = 60) -> str:
        """The next line the child said. AssertionError after `timeout` seconds or at its end."""
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], timeout)
            assert ready, "the child said nothing"
            piece = os.read(self._read, 4096)
            assert piece, "the child ended without a word"
            self._buffer += piece
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line.decode()

    def signal(self, number: int) -> None:
        """Send a signal; SIGKILL also waits for the end."""
        os.kill(self.pid, number)
        if number == signal.SIGKILL:
            self.end()

    def end(self) -> int:
        """Wait for the child; its exit status (negative: a signal)."""
        _, status = os.waitpid(self.pid, 0)
        os.close(self._read)
        return os.waitstatus_to_exitcode(status)


def wait_gone(pids: list[int], timeout: float) -> None:
    """Wait until none of these processes runs (a zombie does not run)."""
    wait_until(lambda: not [pid for pid in pids if is_running(pid)], timeout, f"end of {pids}")


def command_line(process: psutil.Process) -> str:
    """What the process was started with; empty for one that has ended, a zombie too: a family always has members that are just ending."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def is_running(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
