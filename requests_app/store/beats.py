"""Signs of life of loops and processes: written by their beat thread, read by the watchdog and the console."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from psycopg import Connection

from requests_app import sql
from requests_app.store.session import fetch_all, run


class Beat(NamedTuple):
    """A loop as the watchdog sees it. Ages are seconds; None: it has never given a sign of life."""

    resource: str
    age_seconds: float | None
    stuck_seconds: float | None
    epoch: int


def write_beat(conn: Connection[Any], resource: str, instance: str, *, turn_age: float, pid: int, host: str) -> None:
    """Record that `instance` lives, and that its loop last came round `turn_age` seconds ago."""
    params = {"resource": resource, "instance": instance, "turn_age": turn_age, "pid": pid, "host": host}
    run(conn, "beats", "write_beat", params)


def beat_and_look(
    conn: Connection[Any], resource: str, instance: str, resources: Sequence[str], *, pid: int, host: str
) -> list[Beat]:
    """Record that `instance` lives, and look at others: one row for each of the `resources`, in order of its name."""
    params = {"resource": resource, "instance": instance, "turn_age": 0.0, "pid": pid, "host": host}
    beat = sql.statement("beats", "write_beat")
    rows = fetch_all(conn, "beats", "beat_and_look", {**params, "resources": list(resources)}, write_beat=beat)
    return [Beat(*row) for row in rows]


def forget_beats(conn: Connection[Any], resources: Sequence[str]) -> None:
    """Remove the rows of loops that have ended on purpose."""
    run(conn, "beats", "forget_beats", {"resources": list(resources)})


def forget_silent(conn: Connection[Any], seconds: float) -> int:
    """Remove the rows of loops that have given no sign of life for so long; how many."""
    return run(conn, "beats", "forget_silent", {"seconds": seconds})
