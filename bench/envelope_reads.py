"""Reading, applying, making and dropping bands: P8, T8 to T11, T14."""

from __future__ import annotations

import json
import os
import threading
from time import perf_counter

from bench.envelope_scene import Connection, median, percentile, repeat, source, timed
from bench.table import Table


def reads(conn: Connection, table: Table) -> None:
    """P8 and T8: the bounded read with 1 and with 200 bands."""
    import psycopg

    from requests_app import sql
    from requests_app.store import envelopes
    from requests_app.store.appending import Item, append
    from requests_app.store.readers import read_window

    figures: dict[int, tuple[float, float, int]] = {}
    windows: dict[int, tuple[int, int, int]] = {}
    for number, bands in ((306, 1), (307, 200)):
        source(conn, number, band_blocks=1)
        for band in range(bands):
            envelopes.ensure_band(conn, number, band << 20)
        first = (bands - 1) << 20
        with conn.transaction():
            append(conn, number, [Item(first + n, 5, os.urandom(500), ref=b"t" * 32) for n in range(500)])
        for leaf in ("meta", "blob"):
            conn.execute(f"ANALYZE envelope_{leaf}_s{number}_b{bands - 1}")
        upto = first + (1 << 20) - 1
        windows[bands] = (number, first - 1, upto)
        text = "EXPLAIN (ANALYZE, FORMAT JSON) " + sql.statement("readers", "read_window", topics="")
        plans = []
        for _ in range(15):
            with conn.transaction(), psycopg.ClientCursor(conn) as cursor:
                found = cursor.execute(text, {"source": number, "first": first, "upto": upto, "limit": 100}).fetchone()
                locks = conn.execute(
                    "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND relation::regclass::text LIKE 'envelope%'"
                ).fetchone()
            assert found is not None
            assert locks is not None
            document = found[0] if isinstance(found[0], list) else json.loads(found[0])
            plans.append((document[0]["Planning Time"], document[0]["Execution Time"], locks[0]))
        figures[bands] = (median([p[0] for p in plans]), median([p[1] for p in plans]), plans[-1][2])
    walls: dict[int, list[float]] = {1: [], 200: []}
    for _ in range(200):  # in turn, so that a busy machine is busy for both
        for bands, window in windows.items():
            walls[bands].append(timed(lambda: read_window(conn, *window, [], 100)) * 1000)  # noqa: B023
    for bands, (planning, execution, locks) in figures.items():
        table.most(
            f"read 100 rows, {bands} bands: wall p50",
            median(walls[bands]),
            "ms",
            note=f"planning {planning:.3f}, execution {execution:.3f}, locks {locks}",
        )
    table.most("P8 read with 200 bands / with 1", median(walls[200]) / median(walls[1]), "x", 1.5)
    table.most("T8 planning at 200 bands", figures[200][0], "ms", 0.2, note=f"with 1 band {figures[1][0]:.2f}")
    table.most("T8 relation locks of the two tables", figures[200][2], "locks", 20)
    from requests_app.store.consumers import read_page

    first = 199 << 20
    pages = repeat(lambda n: read_page(conn, 307, first - 1, first + (1 << 20) - 1, 500), 60)
    table.most("T8 applier page of 500 at the tip, 200 bands: p50", median(pages), "ms", 3)


def drops(conn: Connection, table: Table, count: int) -> None:
    """T10: one band of 200,000 rows dropped, against rows deleted."""
    from requests_app.store import envelopes, retirement
    from requests_app.store.session import connect

    fill = (
        "INSERT INTO envelope_meta (source_id, position, kind, ref, contract, block_hash, tx_hash, digest) SELECT 308, %(lo)s + n, 5, sha256(n::text::bytea), '', '', '', sha256(n::text::bytea) FROM generate_series(1, %(n)s) n",
        "INSERT INTO envelope_blob SELECT 308, %(lo)s + n, decode(repeat(md5(n::text), 32), 'hex') FROM generate_series(1, %(n)s) n",
    )
    source(conn, 308, band_blocks=1)
    conn.execute("SET statement_timeout = 0")
    for band in (0, 1):
        envelopes.ensure_band(conn, 308, band << 20)
        for statement in fill:
            conn.execute(statement, {"lo": band << 20, "n": count})

    def delete() -> None:
        for name in ("envelope_blob", "envelope_meta"):
            conn.execute(f"DELETE FROM {name} WHERE source_id = 308 AND position < %s", (1 << 20,))

    def drop() -> None:
        with connect("maintenance") as own:
            for base in (retirement.BLOB, retirement.META):
                retirement.remove_partition(own, base, 308, 1)

    table.most(f"{count:,} rows: DELETE by key range", timed(delete) * 1000, "ms")
    table.most(f"T10 {count:,} rows: DETACH CONCURRENTLY + DROP", timed(drop) * 1000, "ms", 250)
    conn.execute("SET statement_timeout = '10s'")


def band_races(conn: Connection, table: Table) -> None:
    """T11: 120 bands made by 6 threads at once."""
    from bench.envelope_writers import deadlocks
    from requests_app.store import envelopes
    from requests_app.store.session import connect

    source(conn, 309, band_blocks=1)
    before, errors = deadlocks(conn), 0

    def work() -> None:
        nonlocal errors
        with connect("worker") as own:
            for band in range(120):
                try:
                    envelopes.ensure_band(own, 309, band << 20)
                except Exception:
                    errors += 1

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    table.most("T11 dead-locks and errors in 120 band creations by 6", deadlocks(conn) - before + errors, "count", 0)


def consuming(conn: Connection, table: Table) -> None:
    """T9 as the reference measured it (6.5): read a page, one upsert for the reference of each row, move the cursor, commit."""
    from bench.envelope_scene import rows
    from requests_app.states import Kind
    from requests_app.store import answers, consumers
    from requests_app.store.envelopes import last_position, record_range

    fence = source(conn, 310)
    envelopes_a_page, pages = 1000, 20
    for n in range(pages):
        lo = 1 + n * envelopes_a_page
        record_range(conn, 310, lo, lo + envelopes_a_page - 1, rows(lo, envelopes_a_page), fence, None)
    upto = last_position(pages * envelopes_a_page)

    def consume(page: int) -> tuple[float, float]:
        """Everything from the beginning, for a new consumer; rows a second by the median page and by the fastest tenth."""
        conn.execute("DELETE FROM gateway_ref")
        conn.execute(
            "INSERT INTO consumer_cursor (consumer, source_id, position, required, updated_at) VALUES (%s, 310, -1, false, clock_timestamp())",
            (f"bench-{page}",),
        )
        spent: list[float] = []
        at = -1
        while at < upto:
            began = perf_counter()
            found = consumers.read_page(conn, 310, at, upto, page)
            end = found[-1].position if found else upto
            with conn.transaction():
                assert consumers.move_consumer(conn, 310, at, end, f"bench-{page}")
                answers.absorb(conn, [], [], [(one.ref or b"", Kind.PUBLIC_DECRYPT) for one in found])
            if len(found) == page:
                spent.append(perf_counter() - began)
            at = end
        return page / median(spent), page / percentile(spent, 0.1)

    for page in (500, 1000):
        rate, calm = consume(page)
        name = f"T9 page of {page}, an upsert a row's reference, cursor"
        table.least(name, rate, "rows/s", 40_000, note=f"fastest tenth {calm:,.0f}")


def applying(conn: Connection, table: Table) -> None:
    """The whole applier on shares of foreign references (decode, store, count), which T9 does not ask for; T14 with it."""
    from requests_app.store.session import connect
    from tests.listen import world

    source(conn, world.SOURCE)
    conn.execute("UPDATE exec_lease SET instance = 'test' WHERE resource = 'listener:1'")
    applier = world.applier()
    for first, kind, refs in ((1, "every share a new reference", 1), (101, "13 shares a reference", 13)):
        names = [os.urandom(32) for _ in range(5000 // refs + 1)]
        shares = [world.share(names[n // refs], n % 13, (first + n // 100, n % 100)) for n in range(5000)]
        world.record(conn, first, first + 99, shares)
        spent = timed(lambda: applier.catch_up(conn))
        table.least(f"whole applier, pages of 1000, {kind}", 5000 / spent, "rows/s")
    with connect("worker") as own:

        def one(n: int) -> None:
            block = 260 + n
            event = [world.share(os.urandom(32), 1, (block, 0))]
            world.record(own, block, block, event)
            applier.offer(own, event, block, block)

        world.record(own, 201, 258, [])
        applier.catch_up(own)
        ms = repeat(one, 60)
    table.most("T14 one event: record to applied and committed, p50", median(ms), "ms", 10)
    table.most("T14 p99", percentile(ms, 0.99), "ms", 50)
