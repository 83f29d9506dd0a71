"""Real processes of the relayer over the test database, for tests that kill them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg
from django.db import connection

from requests_app.states import Kind
from requests_app.store import queue
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parent.parent.parent
LEASE_SECONDS = 2.0


class Managed:
    """One `manage.py` command in its own session, with a short lease and short shifts."""

    def __init__(self, *arguments: str, host: str, **environment: str) -> None:
        target = connection.settings_dict
        values = {
            "DJANGO_SETTINGS_MODULE": "tests.processes.cluster_settings",
            "DATABASE_URL": f"postgresql://{target['USER']}@/{target['NAME']}?host={target['HOST']}",
            "RELAYER_HOST_NAME": host,
            "LEASE_SECONDS": str(LEASE_SECONDS),
            "SHIFT_SECONDS": "2",
            "RELAYER_ROLE": "worker",
            **environment,
        }
        self.process = subprocess.Popen(
            [sys.executable, str(ROOT / "manage.py"), *arguments],
            env={**os.environ, **values},
            cwd=ROOT,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def family(self) -> list[int]:
        """The process and everything below it."""
        me = psutil.Process(self.pid)
        return [self.pid, *(child.pid for child in me.children(recursive=True))]

    def stop(self, timeout: float) -> int:
        """SIGTERM and the exit status."""
        self.process.terminate()
        return self.process.wait(timeout)

    def destroy(self) -> None:
        """SIGKILL for whatever is left, at the end of a test."""
        if self.process.poll() is None:
            for pid in reversed(self.family()):
                with suppress(ProcessLookupError):  # it may be ending
                    os.kill(pid, signal.SIGKILL)
        self.process.wait()


def sentinel_of(parent: int) -> int:
    """The one child of a q2 parent."""
    (child,) = psutil.Process(parent).children()
    return int(child.pid)


def q2_workers(parent: int, count: int = 3) -> list[int]:
    """A group's workers: the sentinel starts them before monitor and pusher."""
    children = psutil.Process(sentinel_of(parent)).children()
    return sorted((child.pid for child in children), key=lambda pid: psutil.Process(pid).create_time())[:count]


def enqueue(conn: psycopg.Connection[Any], first: int, count: int) -> None:
    """Jobs without a request behind them; AckTurn takes them off."""
    subjects = [(queue.Subject(Kind.INPUT_PROOF, first + offset), 1) for offset in range(count)]
    assert queue.enqueue_jobs(conn, queue.SEND, subjects) == count


def backlog(conn: psycopg.Connection[Any]) -> int:
    """Jobs in the queue."""
    row = conn.execute("SELECT count(*) FROM queue_job").fetchone()
    assert row is not None
    return int(row[0])


def slots(conn: psycopg.Connection[Any], group: str) -> dict[str, tuple[int, int]]:
    """Epoch and process id of each slot of a group that gives signs of life."""
    rows = conn.execute(
        "SELECT l.resource, l.epoch, b.pid FROM exec_lease l JOIN worker_beat b USING (resource)"
        " WHERE starts_with(l.resource, %s) AND l.lease_until > clock_timestamp() AND b.instance = l.instance",
        (f"shift:{group}:",),
    ).fetchall()
    return {resource: (epoch, pid) for resource, epoch, pid in rows}


def wait_for_slots(conn: psycopg.Connection[Any], group: str, timeout: float = 60) -> dict[str, tuple[int, int]]:
    """Wait until both slots of a group are worked."""

    def both() -> dict[str, tuple[int, int]] | None:
        found = slots(conn, group)
        return found if len(found) == 2 else None

    found = wait_until(both, timeout, f"two shifts of {group}")
    assert found is not None
    return found
