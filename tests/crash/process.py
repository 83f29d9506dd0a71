"""A relayer process in miniature, forked from the loaded test process: it posts, sends, listens, sweeps, and dies where it is told.

One process does what web, settle, sweep and listener do in production, so that every point can be reached in the order of a
request's life. The fork keeps no connection of its parent.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import psycopg
from django.db import connections

from requests_app import crash_points
from workers.devnet.traffic import Submission

_inherited: list[psycopg.Connection[Any]] = []  # of the parent: not this process's to end
Scene = Callable[[Any], None]
KINDS = ("exit", "pause", "cut")
EXIT_CODE = crash_points.EXIT_CODE
LEASE_SECONDS = 1.5


@dataclass(frozen=True)
class Death:
    """Where and how a process ends.

    exit: `os._exit` at the point, as kill -9. pause: SIGSTOP there, and the process goes on when it is woken. cut: its
    database sessions are ended by the server at that moment, and the process goes on.
    """

    point: str = ""
    kind: str = "exit"


def fork(work: Callable[[], None]) -> int:
    """Run `work` in a child; its process id. The child ends without any of the parent's clean-up."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        _inherited.extend(_connections())
        _inherited.extend(_connections())
        for connection in connections.all(initialized_only=True):
            connection.connection = None  # psycopg leaves a connection alone in a process that did not make it
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def live(
    home: Path,
    death: Death,
    posts: Sequence[Submission],
    key: str,
    *,
    seconds: float,
    scenes: Sequence[Scene] = (),
) -> None:
    """The whole life of the process: post everything, then take turns until `home/stop` exists or the time is over."""
    from requests_app.config import config
    from workers.leases import LeaseKeeper
    from workers.listener import ListenerTurn
    from workers.readiness import ReadinessTurn
    from workers.settle import SettleTurn
    from workers.shift import ShiftContext, TurnLoop, new_instance
    from workers.sweep import duties

    (home / "posted").unlink(missing_ok=True)
    config.cache_clear()
    arm(home, death)
    over = monotonic() + seconds
    instance = new_instance("crash")

    def stopping() -> bool:
        return monotonic() >= over or (home / "stop").exists()

    _post(posts, key)
    (home / "posted").touch()
    keeper = LeaseKeeper(instance, LEASE_SECONDS, beat=f"worker:{instance}")
    with closing(keeper), closing(ShiftContext(instance, keeper, stopping)) as context:
        for scene in scenes:
            scene(context)
        loop = TurnLoop(context, [ReadinessTurn(), SettleTurn(), ListenerTurn(), *duties()], 0.02, over=stopping)
        with closing(loop):
            loop.run()


def arm(home: Path, death: Death) -> None:
    """Make `crash_point` of every loaded module act, and record the points that are passed in `home/passed`."""
    record = os.open(home / "passed", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    seen: set[str] = set()
    done = [False]

    def crash_point(name: str) -> None:
        if name not in seen:
            seen.add(name)
            os.write(record, f"{name}\n".encode())
        if name == death.point and not done[0]:
            done[0] = True
            os.close(os.open(home / "died", os.O_CREAT | os.O_WRONLY))
            _die(death.kind)

    for name, module in list(sys.modules.items()):
        if name.startswith(("workers", "requests_app")) and hasattr(module, "crash_point"):
            module.crash_point = crash_point  # type: ignore[attr-defined]


def _die(kind: str) -> None:
    if kind == "exit":
        os._exit(EXIT_CODE)
    if kind == "pause":
        os.kill(os.getpid(), signal.SIGSTOP)
        return
    pids = _own_sessions()
    with psycopg.connect(**_target(), autocommit=True) as conn:
        conn.execute("SELECT pg_terminate_backend(pid) FROM unnest(%s::int[]) pid", (pids,))


def _connections() -> list[psycopg.Connection[Any]]:
    return [one for one in gc.get_objects() if isinstance(one, psycopg.Connection)]


def _own_sessions() -> list[int]:
    """The server processes behind the connections that this process has made itself."""
    parents = {id(one) for one in _inherited}
    return [one.info.backend_pid for one in _connections() if id(one) not in parents and not one.closed]


def _target() -> dict[str, Any]:
    settings = connections["default"].settings_dict
    return {"dbname": settings["NAME"], "user": settings["USER"] or None, "host": settings["HOST"] or None}


def _post(posts: Sequence[Submission], key: str) -> None:
    """As a client does: again until it is accepted."""
    from django.test import Client

    client = Client(raise_request_exception=False)
    for submission in posts:
        for _ in range(20):
            answer = client.post(
                submission.path,
                json.dumps(submission.body).encode(),
                content_type="application/json",
                headers={"x-api-key": key},
            )
            if answer.status_code == 202:
                break
        else:
            raise AssertionError(f"POST {submission.path}: {answer.status_code} {answer.content[:300]!r}")
