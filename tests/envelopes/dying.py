"""A process that dies: forked from the loaded test process, ended by `os._exit` at a crash point or by SIGKILL while the server works."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from threading import Event
from time import monotonic

from django.db import connections

from requests_app.crash_points import EXIT_CODE
from requests_app.store.session import connect
from tests.envelopes.scene import Connection

Work = Callable[[Connection], object]
SESSIONS = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'"


def dies_at(conn: Connection, point: str, work: Work, nth: int = 1) -> None:
    """Run `work` in a child that ends at its `nth` pass over the point. Returns when its sessions are gone too.

    Raises AssertionError when it came to another end.
    """
    before = sessions(conn)
    ended = os.waitstatus_to_exitcode(os.waitpid(_fork(lambda: _armed(point, nth), work), 0)[1])
    assert ended == EXIT_CODE, f"the child ended with {ended} instead of dying at {point}"
    until_gone(conn, before)


def killed_waiting(conn: Connection, hold: str, work: Work) -> None:
    """Run `work` in a child that is killed while its statement waits for the row locks that `hold` takes; the server goes on with it."""
    before = sessions(conn)
    with connect("worker", name="holder") as holder, holder.transaction():
        holder.execute(hold)
        own = before | {holder.info.backend_pid}
        child = _fork(lambda: None, work)
        _until(lambda: any(_blocked(conn, pid) for pid in sessions(conn) - own), "the child does not wait for the lock")
        os.kill(child, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    until_gone(conn, before)


def sessions(conn: Connection) -> set[int]:
    """The server processes of all sessions."""
    return {row[0] for row in conn.execute(SESSIONS)}


def until_gone(conn: Connection, before: set[int]) -> None:
    """Returns when no session is left but those of `before`."""
    _until(lambda: not sessions(conn) - before, "a session of the dead process stays")


def _blocked(conn: Connection, pid: int) -> bool:
    return conn.execute("SELECT cardinality(pg_blocking_pids(%s)) > 0", (pid,)).fetchone() == (True,)


def _until(found: Callable[[], bool], otherwise: str, seconds: float = 60) -> None:
    over = monotonic() + seconds
    while monotonic() < over:
        if found():
            return
        Event().wait(0.01)
    raise AssertionError(otherwise)


def _fork(prepare: Callable[[], None], work: Work) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        for one in connections.all(initialized_only=True):
            one.connection = None  # the parent's: psycopg leaves a connection alone in a process that did not make it
        prepare()
        with connect("worker", name="doomed") as own:
            work(own)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def _armed(point: str, nth: int) -> None:
    left = nth

    def crash_point(name: str) -> None:
        nonlocal left
        left -= name == point
        if left == 0:
            os._exit(EXIT_CODE)

    for name, module in sys.modules.copy().items():
        if name.startswith(("workers.", "requests_app.")) and hasattr(module, "crash_point"):
            module.crash_point = crash_point  # type: ignore[attr-defined]
