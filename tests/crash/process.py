"""A relayer process in miniature, forked from the loaded test process: it plays a scene and ends where it is told.

One process does what web, settle, sweep and listener do in production, so that every point can be reached in the order of a
request's life. The fork keeps no connection of its parent. It starts up, waits for its orders, and works until it is stopped.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

import psycopg
from django.db import connections

from requests_app import crash_points
from requests_app.crash_points import EXIT_CODE
from workers.lifeline import die_with_parent

if TYPE_CHECKING:
    from tests.crash.scene import Scene

LEASE_SECONDS = 1.5
POLL_SECONDS = 0.02
LONGEST_SECONDS = 400.0
Orders = Mapping[str, str]
"""Crash point -> how the process ends there.

exit: `os._exit` at the point, as kill -9. pause: SIGSTOP there, and the process goes on when it is woken. cut: its database
sessions are ended by the server at that moment, and the process goes on.
"""


_own: list[psycopg.Connection[Any]] = []  # made by this process
_kept: list[Any] = []  # the parent's


class Child:
    """The parent's side of one process: its orders go in, the points where it ended come out."""

    def __init__(self, scene: Scene) -> None:
        told, tell = os.pipe()
        ordered, order = os.pipe()
        self.pid = _fork(lambda: _live(scene, ordered, tell), keep=(tell, ordered))
        os.close(tell)
        os.close(ordered)
        self._told, self._order = told, order
        self._text = ""
        self.code: int | None = None

    def go(self, orders: Orders) -> None:
        """Let it work."""
        os.write(self._order, json.dumps(dict(orders)).encode() + b"\n")

    def event(self, seconds: float) -> str | None:
        """The point where it met its end, waited for; None when there was none yet. Notices the end of the process."""
        if "\n" not in self._text and select.select([self._told], [], [], seconds)[0]:
            read = os.read(self._told, 4096)
            self._text += read.decode()
            if not read and self.code is None:
                self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        line, newline, rest = self._text.partition("\n")
        if not newline:
            return None
        self._text = rest
        return line

    def stop(self) -> None:
        """Ask it to end in order."""
        with suppress(BrokenPipeError):
            os.write(self._order, b"stop\n")

    def wake(self) -> None:
        """Let a paused process go on."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """End it, however it is, and forget it."""
        if self.code is None:
            for number in (signal.SIGKILL, signal.SIGCONT):
                with suppress(ProcessLookupError):
                    os.kill(self.pid, number)
            with suppress(ChildProcessError):
                self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        for end in (self._told, self._order):
            with suppress(OSError):
                os.close(end)


def _fork(work: Callable[[], None], keep: tuple[int, ...]) -> int:
    """Run `work` in a child; its process id. The child ends without any of the parent's clean-up."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        die_with_parent(signal.SIGKILL, parent)
        gc.freeze()  # no time is spent on the parent's objects
        _note_sessions()
        for connection in connections.all(initialized_only=True):
            _kept.append(connection.connection)
            connection.connection = None  # psycopg leaves a connection alone in a process that did not make it
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _live(scene: Scene, ordered: int, tell: int) -> None:
    """The whole life of the process: start, wait for orders, take turns until told to stop."""
    from workers.leases import LeaseKeeper
    from workers.shift import ShiftContext, TurnLoop, new_instance

    instance = new_instance("crash")
    over = monotonic() + LONGEST_SECONDS
    told_to_stop = [False]

    def stopping() -> bool:
        told_to_stop[0] = told_to_stop[0] or monotonic() >= over or bool(select.select([ordered], [], [], 0)[0])
        return told_to_stop[0]

    keeper = LeaseKeeper(instance, LEASE_SECONDS)
    with closing(keeper), closing(ShiftContext(instance, keeper, stopping)) as context:
        keeper.beat_as(f"worker:{instance}")  # its session, and the loop's, are there before the orders
        context.conn.execute("SELECT 1")
        arm(json.loads(_line(ordered)), tell)
        with closing(TurnLoop(context, scene.turns(), POLL_SECONDS, over=stopping)) as loop:
            loop.run()


def _line(pipe: int) -> str:
    text = b""
    while not text.endswith(b"\n"):
        read = os.read(pipe, 1)
        if not read:
            os._exit(0)  # the parent has no more use for it
        text += read
    return text.decode()


def arm(orders: Orders, tell: int) -> None:
    """Make `crash_point` of every loaded module act on the orders, and say so."""
    left = dict(orders)

    def crash_point(name: str) -> None:
        how = left.pop(name, None)
        if how is None:
            return
        os.write(tell, f"{name}\n".encode())
        if how != "cut":
            left.clear()  # a paused one that wakes up has met its end already
        _die(how)

    for name, module in sys.modules.copy().items():
        if name.startswith(("workers", "requests_app")) and hasattr(module, "crash_point"):
            module.crash_point = crash_point  # type: ignore[attr-defined]
    crash_points.crash_point = crash_point


def _die(how: str) -> None:
    if how == "exit":
        os._exit(EXIT_CODE)
    if how == "pause":
        os.kill(os.getpid(), signal.SIGSTOP)
        return
    pids = _own_sessions()
    with psycopg.connect(**target(), autocommit=True) as conn:
        conn.execute("SELECT pg_terminate_backend(pid) FROM unnest(%s::int[]) pid", (pids,))


def _note_sessions() -> None:
    """Remember the connections that this process makes."""
    make = psycopg.Connection.__init__

    def noting(self: psycopg.Connection[Any], *arguments: Any, **more: Any) -> None:
        make(self, *arguments, **more)
        _own.append(self)

    psycopg.Connection.__init__ = noting  # type: ignore[method-assign]


def _own_sessions() -> list[int]:
    """The server processes behind the connections that this process has made itself."""
    return [one.info.backend_pid for one in _own if not one.closed]


def target() -> dict[str, Any]:
    """Where the test database is, for a connection of one's own."""
    settings = connections["default"].settings_dict
    return {"dbname": settings["NAME"], "user": settings["USER"] or None, "host": settings["HOST"] or None}
