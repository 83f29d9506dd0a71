"""Times of the workers' statements in a seeded database, as JSON rows for bench.scale. Every one is rolled back."""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any

import psycopg

from bench.scale_pages import Work, statements

LEAST_MILLISECONDS = 300.0
MOST_ROUNDS = 300


def row(conn: psycopg.Connection[Any], name: str, work: Work, rounds: int) -> dict[str, Any]:
    """One statement's times in milliseconds, after one run that does not count. Short ones are repeated until they have taken a while."""
    taken: list[float] = []
    while len(taken) <= rounds or (sum(taken) < LEAST_MILLISECONDS and len(taken) < MOST_ROUNDS):
        with conn.transaction(force_rollback=True):
            began = time.perf_counter()
            work(conn)
            taken.append((time.perf_counter() - began) * 1000)
    taken = sorted(taken[1:])
    worst = taken[min(len(taken) - 1, int(len(taken) * 0.95))]
    return {
        "group": "workers",
        "name": name,
        "p50": round(statistics.median(taken), 2),
        "p95": round(worst, 2),
        "cpu": None,
    }


def main() -> None:
    """Measure all of them."""
    import django

    django.setup()
    from requests_app.store.session import connect

    with connect("worker") as conn:
        found = [row(conn, name, work, int(sys.argv[1])) for name, work in statements().items()]
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
