"""Eight writers at once, two an originator over the same positions, into one band each or into new ones all the time."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from time import monotonic, perf_counter
from typing import Any

from bench.envelope_scene import Connection, percentile

WRITERS, ORIGINATORS, BATCH, PROBE = 8, 4, 1000, 299
WIDTH = 1 << 20


@dataclass(slots=True)
class Outcome:
    """What a phase of all writers did."""

    rows: int
    seconds: float
    ms: list[float]
    probe_ms: list[float]
    errors: list[str]

    @property
    def rate(self) -> float:
        """Distinct envelopes a second."""
        return self.rows / self.seconds

    @property
    def p99_ms(self) -> float:
        """Of the writers' batches."""
        return percentile(self.ms or [0.0], 0.99)

    @property
    def probe_p99_ms(self) -> float:
        """Of another originator's single envelopes."""
        return percentile(self.probe_ms or [0.0], 0.99)

    def __add__(self, other: Outcome) -> Outcome:
        """Both phases as one."""
        return Outcome(
            self.rows + other.rows, self.seconds + other.seconds, self.ms + other.ms, self.probe_ms + other.probe_ms,
            self.errors + other.errors,
        )  # fmt: skip


def run(conn: Connection, first_source: int, seconds: float, *, new_bands: bool, payer: int) -> Outcome:
    """One phase in processes of its own, with a probe on another originator beside it."""
    from bench.envelope_scene import source

    for number in (*range(first_source, first_source + ORIGINATORS), PROBE):
        source(conn, number, band_blocks=1 if number != PROBE else 131_072)
    jobs = [(first_source + n % ORIGINATORS, n // ORIGINATORS, "new" if new_bands else "one") for n in range(WRITERS)]
    jobs.append((PROBE, first_source, "probe"))
    name = str(conn.info.dbname)
    began = monotonic()
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "bench.envelope_writers", name, str(number), str(seed), mode, str(seconds), str(payer)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for number, seed, mode in jobs
    ]  # fmt: skip
    reports: list[dict[str, Any]] = []
    errors: list[str] = []
    for child in children:
        out, err = child.communicate(timeout=seconds + 120)
        if child.returncode:
            errors.append(err.strip().splitlines()[-1] if err.strip() else f"exit {child.returncode}")
        else:
            reports.append(json.loads(out.splitlines()[-1]))
    spans = [(one["began"], one["ended"]) for one in reports]
    elapsed = max(end for _, end in spans) - min(start for start, _ in spans) if spans else monotonic() - began
    stored = conn.execute(
        "SELECT count(*) FROM envelope_meta WHERE source_id BETWEEN %s AND %s",
        (first_source, first_source + ORIGINATORS - 1),
    ).fetchone()
    assert stored is not None
    writers = [ms for one in reports if not one["probe"] for ms in one["ms"]]
    probe = [ms for one in reports if one["probe"] for ms in one["ms"]]
    return Outcome(stored[0], elapsed, writers, probe, errors)


def exact(conn: Connection, first_source: int) -> tuple[int, int, int]:
    """(distinct envelopes, envelopes counted as usage, envelopes counted as congestion) of a phase."""
    last = first_source + ORIGINATORS - 1
    conn.execute("SET statement_timeout = 0")  # a minute of eight writers is millions of rows
    # Of tables that nobody analysed yet the planner expects few groups, and spills a hash of millions for minutes; the keys are sorted.
    conn.execute("SET enable_hashagg = off")
    row = conn.execute(
        "SELECT (SELECT count(*) FROM (SELECT DISTINCT source_id, position FROM envelope_meta WHERE source_id BETWEEN %(a)s AND %(b)s) d),"
        " (SELECT coalesce(sum(messages), 0)::bigint FROM usage_unsettled WHERE source_id BETWEEN %(a)s AND %(b)s),"
        " (SELECT coalesce(sum(messages), 0)::bigint FROM originator_congestion WHERE source_id BETWEEN %(a)s AND %(b)s)",
        {"a": first_source, "b": last},
    ).fetchone()
    assert row is not None
    return row[0], row[1], row[2]


def deadlocks(conn: Connection) -> int:
    """Dead-locks of this database since its statistics began."""
    row = conn.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").fetchone()
    assert row is not None
    return int(row[0])


def child(name: str, number: int, seed: int, mode: str, seconds: float, payer: int) -> None:
    """One writer, or the probe, until its time is over; prints what it measured."""
    import django

    django.setup()
    from django.db import connections

    connections["default"].settings_dict["NAME"] = name
    from requests_app.prices import Prices
    from requests_app.store.appending import Item, append
    from requests_app.store.session import connect

    price, noise = Prices(base=1), bytes(200)  # the same for twins: their rows are duplicates, not conflicts
    size = 1 if mode == "probe" else BATCH
    ms: list[float] = []
    with connect("worker", name="writer") as conn:
        began = monotonic()
        step = 0
        while monotonic() - began < seconds:
            # Twins go over the same ranges: every row is a duplicate for one of them.
            base = (
                (step // 3) * WIDTH + step % 3 * size
                if mode == "new"
                else step * size + seed * 10_000_000 * (mode == "probe")
            )
            items = [Item(base + n, 1, noise, ref=noise[:32], payer=payer) for n in range(size)]
            at = perf_counter()
            with conn.transaction():
                append(conn, number, items, price=price)
            ms.append((perf_counter() - at) * 1000)
            step += 1
        print(json.dumps({"probe": mode == "probe", "ms": ms, "began": began, "ended": monotonic()}))


if __name__ == "__main__":
    child(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], float(sys.argv[5]), int(sys.argv[6]))
