"""Writing: P8, T1 to T7, T13."""

from __future__ import annotations

import subprocess
import sys
from time import perf_counter
from typing import Any

from bench.envelope_scene import Connection, client_cpu, median, percentile, repeat, rows, source, timed
from bench.table import Table

ROUNDS = 40
BARE = """WITH meta AS (
  INSERT INTO envelope_meta (source_id, position, kind, ref, contract, block_hash, tx_hash, digest)
  SELECT 301, * FROM unnest(%(positions)b::bigint[], %(kinds)b::smallint[], %(refs)b::bytea[], %(contracts)b::bytea[],
    %(block_hashes)b::bytea[], %(tx_hashes)b::bytea[], %(digests)b::bytea[]))
INSERT INTO envelope_blob (source_id, position, payload) SELECT 301, * FROM unnest(%(positions)b::bigint[], %(payloads)b::bytea[])"""


def writes(conn: Connection, table: Table) -> None:
    """P8, T1, T3 to T6, T13."""
    from requests_app.store import envelopes
    from requests_app.store.envelopes import record_range
    from requests_app.store.session import connect

    fence = source(conn, 300)
    source(conn, 301)
    for number in (300, 301):
        envelopes.ensure_band(conn, number, 1 << 20)
    conn.execute("CREATE TABLE plain (LIKE gateway_envelope)")
    copied, bare, sealed = [], [], []
    cpu = 0.0
    for n in range(ROUNDS):  # turn by turn, so that a busy machine is busy for all three
        batch = rows(1 + n * 1000, 1000)
        copied.append(timed(lambda: _copy(conn, batch)))  # noqa: B023
        columns = envelopes._columns(batch)
        bare.append(timed(lambda: psycopg_cursor(conn).execute(BARE, columns)))  # noqa: B023
        spent = perf_counter()
        cpu += client_cpu(lambda: record_range(conn, 300, 1 + n * 1000, (n + 1) * 1000, batch, fence, None))  # noqa: B023
        sealed.append(perf_counter() - spent)
    copy_rate, bare_rate, full_rate = (1000 / median(one) for one in (copied, bare, sealed))
    calm = [
        1000 / percentile(one, 0.1) for one in (copied, bare, sealed)
    ]  # what a machine with other work gives at best
    table.least("COPY into one plain table, 1000 rows a commit", copy_rate, "rows/s")
    table.least("meta + blob, bare, 1000", bare_rate, "rows/s")
    table.least("P8 bare / COPY", bare_rate / copy_rate, "x", 0.4, note=f"fastest tenth {calm[1] / calm[0]:.2f}")
    table.least(
        "P8 record_range with seal, usage, congestion / COPY", full_rate / copy_rate, "x", 0.3,
        note=f"fastest tenth {calm[2] / calm[0]:.2f}",
    )  # fmt: skip
    table.least(
        "T1 record_range, 1000 rows, 1 source", full_rate, "rows/s", 30_000, note=f"fastest tenth {calm[2]:,.0f}"
    )
    table.most("T1 p99", percentile(sealed, 0.99) * 1000, "ms", 80)
    table.most("T13 client CPU per 1000 rows", cpu / ROUNDS * 1000, "ms", 6)
    at = ROUNDS * 1000 + 1
    replayed = rows(1, 1000)
    first = conn.execute("SELECT 1").fetchone()
    assert first is not None

    def hundred(n: int) -> None:
        lo = at + (n + 1) * 100
        record_range(conn, 300, lo, lo + 99, rows(lo, 100), fence, None)

    hundreds = repeat(hundred, 60)
    table.least("T3 record_range, 100 rows", 100_000 / median(hundreds), "rows/s", 10_000)
    table.most("T3 p50", median(hundreds), "ms", 8)
    at += 61 * 100

    def single(n: int) -> None:
        record_range(conn, 300, at + n + 1, at + n + 1, rows(at + n + 1, 1), fence, None)

    singles = repeat(single, 300)
    table.least("T4 record_range, 1 row", 1000 / median(singles), "calls/s", 400)
    table.most("T4 p99", percentile(singles, 0.99), "ms", 10)
    with connect("worker") as other:
        fence2 = source(other, 302)
        envelopes.ensure_band(other, 302, 1 << 20)
        record_range(other, 302, 1, 1000, replayed, fence2, None)
        again = repeat(lambda n: record_range(other, 302, 1, 1000, replayed, fence2, None), 15)
        table.most("T5 replay of 1000 known rows", median(again), "ms", 25)
        empty = repeat(lambda n: record_range(other, 302, 1001, 1002 + n, [], fence2, None), 100)
        table.most("T6 empty range", median(empty), "ms", 2)


def psycopg_cursor(conn: Connection) -> Any:
    """A plain cursor: binary arrays, server-side binding."""
    import psycopg

    return psycopg.Cursor(conn)


def _copy(conn: Connection, batch: list[Any]) -> None:
    with conn.cursor().copy(
        "COPY plain (source_id, position, kind, ref, contract, block_hash, tx_hash, digest, payload) FROM STDIN (FORMAT BINARY)"
    ) as copy:
        copy.set_types(["int4", "int8", "int2", *["bytea"] * 6])
        for one in batch:
            copy.write_row(
                (1, one.position, one.kind, one.ref, one.contract, one.block_hash, one.tx_hash, one.digest, one.payload)
            )


def two_processes(conn: Connection, table: Table) -> None:
    """T2: two sources, a process each."""
    code = (
        "import sys, django; django.setup()\n"
        "from django.db import connections; connections['default'].settings_dict['NAME'] = sys.argv[1]\n"
        "from bench.envelope_scene import rows, source; from time import monotonic\n"
        "from requests_app.store.envelopes import ensure_band, record_range\n"
        "from requests_app.store.session import connect\n"
        "conn = connect('worker'); n = int(sys.argv[2]); fence = source(conn, n); ensure_band(conn, n, 1 << 20)\n"
        "batches = [rows(1 + i * 1000, 1000) for i in range(30)]; print('ready', flush=True); sys.stdin.readline()\n"
        "began = monotonic()\n"
        "for i, batch in enumerate(batches): record_range(conn, n, 1 + i * 1000, (i + 1) * 1000, batch, fence, None)\n"
        "print(began, monotonic())"
    )
    children = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(conn.info.dbname), str(n)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in (303, 304)
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline().strip() == "ready"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    spans = [[float(word) for word in child.communicate(timeout=120)[0].split()] for child in children]
    elapsed = max(end for _, end in spans) - min(start for start, _ in spans)
    table.least("T2 record_range, 2 sources, 2 processes", 60_000 / elapsed, "rows/s", 45_000)


def single_inserts(conn: Connection, table: Table) -> None:
    """One envelope in a caller's transaction, into a band that exists and into one that does not; T7 with 200 bands."""
    from requests_app.store import envelopes
    from requests_app.store.appending import Item, append

    source(conn, 305, band_blocks=1)
    envelopes.ensure_band(conn, 305, 1)

    def put(position: int) -> None:
        with conn.transaction():
            append(conn, 305, [Item(position, 1, b"x" * 1000, ref=b"t" * 32)])

    table.most("append, 1 row, band exists", median(repeat(lambda n: put(n + 2), 200)), "ms")
    for band in range(1, 200):
        envelopes.ensure_band(conn, 305, band << 20)
    made = repeat(lambda n: put((201 + n) << 20), 40)
    table.most("T7 append, 1 row, new band, 200 bands: p50", median(made), "ms", 15,
               note=f"fastest tenth {percentile(made, 0.1):.1f}")  # fmt: skip
    table.most("T7 p99", percentile(made, 0.99), "ms", 60)
