"""Killing processes of the stack at random, with a record of what was done and when."""

from __future__ import annotations

import http.client
import os
import random
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

import psutil
import psycopg

from relayer_site.embedded import EmbeddedPostgres
from tests.processes.children import command_line
from tests.stack.harness import Stack, poll

# The chains are the world, not the relayer; relayer_up and supervisord are what a machine's init would be.
SPARED = ("anvil", "supervisord", "workers.lifeline")
NAMES = {
    "relayer_site.web": "web",
    "relayer_cluster settle": "settle cluster",
    "relayer_cluster sweep": "sweep cluster",
    "relayer_listener": "listener",
    "relayer_watchdog": "watchdog",
    "relayer_postgres": "postgres keeper",
    "workers.devnet kms": "kms bots",
    "workers.devnet coprocessors": "coprocessor bots",
}


def kind_of(process: psutil.Process) -> str | None:
    """What the process is in the stack, None for what is spared."""
    line = command_line(process)
    if any(word in line for word in SPARED):
        return None
    return next((name for words, name in NAMES.items() if words in line), None)


@dataclass
class Killer:
    """kill -9 of a random process every `pause` seconds until `stop`; a database backend is one of the choices.

    `patience`: how many seconds more a kill waits until everything beats again. On a loaded machine starting takes longer than
    two seconds, and nothing would ever work; without patience that is what is tested.
    """

    stack: Stack
    seed: int
    pause: float = 2.0
    patience: float = 0.0
    killed: Counter[str] = field(default_factory=Counter)
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._quit, self._hold = threading.Event(), threading.Event()
        self._spared: set[int] = set()
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Kill nobody any more."""
        self._quit.set()
        self._thread.join(10)

    def note(self, text: str) -> None:
        """Add a line with the time to the record."""
        self.log.append(f"{time.monotonic() - self._began:6.1f} s  {text}")

    def pause_owner(self, seconds: float) -> None:
        """SIGSTOP for the process that holds a signer, SIGCONT after `seconds`."""
        pid = _owner(self.stack)
        if pid is None:
            self.note("no signer owner to stop")
            return
        self._spared.add(pid)
        try:
            os.kill(pid, signal.SIGSTOP)
        except ProcessLookupError:
            self.note(f"{pid} has just been killed")
            return
        self.note(f"SIGSTOP of signer owner {pid}")
        self._quit.wait(seconds)
        try:
            os.kill(pid, signal.SIGCONT)
            self.note(f"SIGCONT of {pid}")
        except ProcessLookupError:
            self.note(f"{pid} was ended by its guards meanwhile")
        self._spared.discard(pid)

    def restart_database(self) -> None:
        """A fast shutdown of PostgreSQL; its keeper starts it again.

        Not while it recovers from a killed backend: PostgreSQL 18.4 was seen to hang in "shutting down" for ever then.
        """
        self._stop_kills_for_a_moment()
        EmbeddedPostgres(self.stack.var).stop()
        self.note("PostgreSQL stopped, to be started again by its users")

    def _stop_kills_for_a_moment(self) -> None:
        self._hold.set()
        poll(lambda: _one(self.stack, "SELECT 1"), 60, "the database takes connections")
        self._hold.clear()

    def _run(self) -> None:
        while not self._quit.wait(self.pause):
            until = time.monotonic() + self.patience
            while time.monotonic() < until and not self._quit.is_set() and not _beats(self.stack):
                self._quit.wait(0.25)
            if not self._hold.is_set() and not self._quit.is_set():
                self._kill_one()

    def _kill_one(self) -> None:
        found = [(kind, process) for process in self.stack.family() if (kind := kind_of(process)) is not None]
        choices: list[tuple[str, int]] = [
            (kind, process.pid) for kind, process in found if process.pid not in self._spared
        ]
        backend = _backend(self.stack)
        if backend is not None and self._random.random() < 0.1:
            choices = [("database backend", backend)]
        if not choices:
            return
        kind, pid = self._random.choice(choices)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self.killed[kind] += 1
        self.note(f"kill -9 {kind} {pid}")


def _one(stack: Stack, statement: str) -> int | None:
    try:
        with stack.database() as conn:
            row = conn.execute(statement).fetchone()  # type: ignore[call-overload]
        return int(row[0]) if row else None
    except psycopg.OperationalError:
        return None


def _beats(stack: Stack) -> bool:
    """Whether the API serves, and all four slots and the listener have given a sign of life in the last two seconds."""
    try:
        if stack.api.get("/healthz").status != http.HTTPStatus.OK:
            return False
    except (OSError, http.client.HTTPException, ValueError):
        return False
    beating = _one(
        stack,
        "SELECT count(*) FROM worker_beat WHERE at > clock_timestamp() - interval '2 seconds'"
        " AND (resource LIKE 'shift:%' OR resource LIKE 'listener:%')",
    )
    return beating is not None and beating >= 5


def _backend(stack: Stack) -> int | None:
    return _one(
        stack, "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'relayer-%' ORDER BY random() LIMIT 1"
    )


def _owner(stack: Stack) -> int | None:
    return _one(
        stack,
        "SELECT b.pid FROM exec_lease l JOIN worker_beat b ON b.instance = l.instance "
        "WHERE l.resource LIKE 'signer:%' AND l.lease_until > clock_timestamp() LIMIT 1",
    )
