"""The envelope log's figures: `make bench-envelopes`. Bars: P8 of the design, T1 to T14 of reference/envelopes.md 6.7.

Runs on an embedded PostgreSQL of its own with default durability, in a directory that is removed afterwards.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable

from bench.envelope_reads import applying, band_races, consuming, drops, reads
from bench.envelope_scene import Connection
from bench.envelope_writes import single_inserts, two_processes, writes
from bench.ground import own_database
from bench.table import Table, leave, publish


def writers(conn: Connection, table: Table, seconds: float) -> None:
    """Eight writers into existing bands, then with new bands all the time."""
    from bench import envelope_writers as eight

    row = conn.execute("INSERT INTO client_account (name, status) VALUES ('bench', 'active') RETURNING id").fetchone()
    assert row is not None
    before = eight.deadlocks(conn)
    # Half of the first kind before and half after the second, so that a machine that grows busier is busier for both.
    same = eight.run(conn, 320, seconds / 2, new_bands=False, payer=row[0])
    new = eight.run(conn, 330, seconds, new_bands=True, payer=row[0])
    same += eight.run(conn, 340, seconds / 2, new_bands=False, payer=row[0])
    name = f"8 writers, {seconds:g} s"
    table.least(f"{name}, one band an originator", same.rate, "rows/s", note=f"batch p99 {same.p99_ms:.0f} ms")
    table.least(f"{name}, new bands all the time", new.rate, "rows/s", note=f"batch p99 {new.p99_ms:.0f} ms")
    table.least("new bands / one band", new.rate / same.rate, "x", 0.5)
    table.most(
        "errors surfaced",
        len(same.errors) + len(new.errors),
        "count",
        0,
        note="; ".join([*same.errors, *new.errors])[:100],
    )
    table.most("dead-locks", eight.deadlocks(conn) - before, "count", 0)
    for phase, first in (("one band", 320), ("one band again", 340), ("new bands", 330)):
        distinct, usage, congestion = eight.exact(conn, first)
        table.most(
            f"{phase}: usage - distinct envelopes",
            abs(usage - distinct) + abs(congestion - distinct),
            "rows",
            0,
            note=f"{distinct:,} envelopes",
        )
    table.most("another originator's p99, new bands / one band", new.probe_p99_ms / max(same.probe_p99_ms, 0.001), "x", 1.5,
               note=f"{same.probe_p99_ms:.1f} and {new.probe_p99_ms:.1f} ms")  # fmt: skip


def bands(conn: Connection, table: Table, options: argparse.Namespace) -> None:
    """T10, T11, T12."""
    from workers.duties.bands_retire import ALARM_BANDS, MOST_BANDS

    band_races(conn, table)
    drops(conn, table, options.rows)
    table.most("T12 live bands: alarm", ALARM_BANDS, "bands", 64, note=f"error from {MOST_BANDS}")


PARTS: dict[str, Callable[[Connection, Table, argparse.Namespace], None]] = {
    "writes": lambda conn, table, _: writes(conn, table),
    "processes": lambda conn, table, _: two_processes(conn, table),
    "single": lambda conn, table, _: single_inserts(conn, table),
    "reads": lambda conn, table, _: reads(conn, table),
    "consuming": lambda conn, table, _: consuming(conn, table),
    "applying": lambda conn, table, _: applying(conn, table),
    "bands": bands,
    "writers": lambda conn, table, options: writers(conn, table, options.seconds),
}


def main() -> None:
    """Run everything and print the table; exit code 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5, help="length of each phase of the eight writers (full: 60)")
    parser.add_argument("--rows", type=int, default=200_000, help="rows of the dropped band")
    parser.add_argument("--json", help="also write the results there")
    parser.add_argument("--logs", action="store_true", help="show the log lines of missing bands")
    parser.add_argument("--only", nargs="*", help="parts to run (default: all): " + " ".join(PARTS))
    options = parser.parse_args()
    table = Table()
    with own_database() as conn:
        if not options.logs:
            logging.getLogger("relayer").setLevel(logging.ERROR)
        for name, part in PARTS.items():
            if not options.only or name in options.only:
                part(conn, table, options)
        publish(table, options.json)
    leave(table)


if __name__ == "__main__":
    main()
