"""The queue's figures: `make bench-jobs`. Bars P1 and P10 of the design: no-op jobs, leased and acknowledged in batches of 100.

Compared in the same run with a bare psycopg loop, pgqueuer, procrastinate and django-q2's own broker. Runs on an embedded PostgreSQL of
its own with default durability, in a directory that is removed afterwards.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from time import perf_counter, sleep
from typing import Any, Final

import psycopg

from bench.envelope_scene import Connection
from bench.ground import own_database
from bench.table import Table, leave, publish

BATCH: Final = 100
SLICE: Final = 3000
ROUNDS: Final = 8
SNAPSHOT_SECONDS: Final = 600.0
_FILL: Final = (
    "INSERT INTO queue_job (queue, job_key, kind, subject_id, tenant_id, visible_at) "
    "SELECT 'send', %s || g, 4, g, g %% %s, clock_timestamp() + %s * interval '1 hour' FROM generate_series(1, %s) g"
)


def fill(conn: Connection, count: int, *, tenants: int = 1, prefix: str = "live", delayed: bool = False) -> None:
    """Put jobs into the queue, evenly over tenants."""
    conn.execute(_FILL, (f"{prefix}-", tenants, int(delayed), count))


def clear(conn: Connection) -> None:
    """An empty queue, as after a vacuum."""
    conn.execute("TRUNCATE queue_job")


@cache
def turns() -> Any:
    """What the one process that works here remembers of its queue, from drain to drain."""
    from requests_app.store import queue
    from requests_app.store.turns import Turns

    return Turns(queue.SEND)


def drain_ours(conn: Connection, jobs: int) -> float:
    """Jobs a second through the product's lease and acknowledgement."""
    from requests_app.store import queue

    known, done, started = turns(), 0, perf_counter()
    while done < jobs:
        batch = queue.lease_jobs(conn, queue.SEND, BATCH, "bench", 30.0, turns=known)
        queue.ack_jobs(conn, [delivery.receipt for delivery in batch])
        done += len(batch)
    return jobs / (perf_counter() - started)


def drain_raw(conn: Connection, jobs: int) -> float:
    """Jobs a second through the plainest statements that lease and acknowledge a batch."""
    lease = (
        "WITH c AS MATERIALIZED (SELECT id FROM queue_job WHERE queue = 'send' AND visible_at <= clock_timestamp() "
        "ORDER BY queue, priority, tenant_id, id LIMIT %s FOR UPDATE SKIP LOCKED) UPDATE queue_job j SET attempt = attempt + 1, "
        "visible_at = clock_timestamp() + interval '30 seconds', leased_by = 'raw' FROM c WHERE j.id = c.id "
        "RETURNING j.id, j.attempt"
    )
    ack = "DELETE FROM queue_job j USING unnest(%s::bigint[], %s::int[]) a(id, attempt) WHERE j.id = a.id AND j.attempt = a.attempt"
    done, started = 0, perf_counter()
    while done < jobs:
        rows = conn.execute(lease, (BATCH,)).fetchall()
        conn.execute(ack, ([row[0] for row in rows], [row[1] for row in rows]))
        done += len(rows)
    return jobs / (perf_counter() - started)


def q2(jobs: int) -> float:
    """django-q2's ORM broker and one worker, tuned: no saved successes, bulk 100, persistent connections."""
    script = (
        "import django; django.setup()\n"
        "from django_q.cluster import Cluster\nfrom django_q.models import OrmQ\nfrom django_q.tasks import async_task\nimport time\n"
        f"for _ in range({jobs}): async_task('math.floor', 1.5)\n"
        "from django.db import connections\nconnections.close_all()\n"
        "cluster = Cluster(); started = time.perf_counter(); cluster.start()\n"
        "while OrmQ.objects.count(): time.sleep(0.02)\n"
        f"print('RATE', {jobs} / (time.perf_counter() - started)); cluster.stop()\n"
    )
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "bench.q2_settings"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120)
    line = next((line for line in done.stdout.splitlines() if line.startswith("RATE")), None)
    if line is None:
        raise RuntimeError(done.stderr[-2000:])
    return float(line.split()[1])


def peer(name: str, url: str, jobs: int) -> float:
    """Another project's queue, in its own environment (PEERS names its Python)."""
    command = [os.environ["PEERS"], str(Path(__file__).parent / "peers.py"), name, url, str(jobs)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return float(done.stdout.split()[-1])


def paired(conn: Connection, first: Callable[[], float], second: Callable[[], float]) -> tuple[float, float, float]:
    """Medians of two rates and of their ratio, measured in turn so that the machine's moods hit both."""
    pairs = [(first(), second()) for _ in range(ROUNDS)]
    return (
        statistics.median(one for one, _ in pairs),
        statistics.median(two for _, two in pairs),
        statistics.median(one / two for one, two in pairs),
    )


def filled(conn: Connection, drain: Callable[[Connection, int], float], tenants: int) -> Callable[[], float]:
    """A measurement that fills the queue first."""

    def measure() -> float:
        clear(conn)
        fill(conn, SLICE, tenants=tenants)
        conn.execute("ANALYZE queue_job")
        return drain(conn, SLICE)

    return measure


def p1(conn: Connection, table: Table, url: str) -> None:
    """Against the bare loop and the peers."""
    ours, raw, ratio = paired(conn, filled(conn, drain_ours, 1), filled(conn, drain_raw, 1))
    table.least("P1 lease + ack, one tenant", ours, "jobs/s")
    table.least("bare psycopg loop", raw, "jobs/s")
    table.least("P1 one tenant / bare loop", ratio, "x", 0.9)
    many, _, ratio = paired(conn, filled(conn, drain_ours, 100), filled(conn, drain_raw, 1))
    table.least("P1 lease + ack, 100 tenants", many, "jobs/s")
    table.least("P1 100 tenants / bare loop", ratio, "x", 0.6)
    clear(conn)
    if os.environ.get("PEERS"):
        rate = peer("pgqueuer", url, 20_000)
        table.least("P1 / pgqueuer (asyncpg, batches of 100)", ours / rate, "x", 2, note=f"{rate:,.0f} jobs/s")
        rate = peer("procrastinate", url, 3_000)
        table.least("P1 / procrastinate (10 at a time)", ours / rate, "x", 40, note=f"{rate:,.0f} jobs/s")
    rate = q2(3_000)
    table.least("P1 / django-q2 (bulk 100, nothing saved)", ours / rate, "x", note=f"{rate:,.0f} jobs/s")


def with_delayed(conn: Connection) -> Callable[[], float]:
    """100,000 jobs that are put off, half older and half younger than the live ones."""

    def measure() -> float:
        clear(conn)
        fill(conn, 50_000, prefix="older", delayed=True)
        fill(conn, SLICE)
        fill(conn, 50_000, prefix="younger", delayed=True)
        conn.execute("ANALYZE queue_job")
        return drain_ours(conn, SLICE)

    return measure


@contextlib.contextmanager
def snapshot(url: str) -> Iterator[None]:
    """A transaction that keeps what it saw, as a forgotten report does."""
    with psycopg.connect(url) as held:
        held.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        held.execute("SELECT count(*) FROM queue_job")
        yield
        held.rollback()


def p10(conn: Connection, table: Table, url: str, seconds: float) -> None:
    """With a backlog of delayed jobs, and under an old snapshot while work goes on."""
    late, plain, ratio = paired(conn, with_delayed(conn), filled(conn, drain_ours, 1))
    table.least(
        "P10 with 100,000 delayed jobs / empty backlog", ratio, "x", 0.8, note=f"{late:,.0f} and {plain:,.0f} jobs/s"
    )
    clear(conn)
    with snapshot(url):
        opened, number, moved = perf_counter(), 0, 0
        while perf_counter() - opened < seconds:  # the steady work of a busy relayer: what leaves dead entries behind
            number += 1
            fill(conn, 1000, prefix=f"steady-{number}")
            drain_ours(conn, 1000)
            moved += 1000
            sleep(0.5)
        rates = []
        for turn in range(ROUNDS):
            fill(conn, SLICE, prefix=f"last-{turn}")
            rates.append(drain_ours(conn, SLICE))
    rate = statistics.median(rates)
    note = f"{rate:,.0f} jobs/s after {moved:,} jobs"
    table.least(f"P10 under a snapshot of {seconds:.0f} s / none", rate / plain, "x", 0.8, note=note)


def main() -> None:
    """Run everything and print the table; exit code 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--snapshot", type=float, default=SNAPSHOT_SECONDS, help="age of the open snapshot in seconds")
    parser.add_argument("--json", help="also write the results there")
    options = parser.parse_args()
    table = Table()
    with own_database() as conn:
        conn.execute("SET statement_timeout = 0")
        info = conn.info
        url = f"postgresql://{info.user}:{info.password}@/{info.dbname}?host={info.host}&port={info.port}"
        p1(conn, table, url)
        p10(conn, table, url, options.snapshot)
        publish(table, options.json)
    leave(table)


if __name__ == "__main__":
    main()
