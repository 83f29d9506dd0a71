"""The queues of other projects, with no-op jobs: what `bench.jobs` compares itself with. Runs in an environment of its own.

python bench/peers.py pgqueuer|procrastinate URL JOBS prints jobs a second.
"""

from __future__ import annotations

import asyncio
import sys
from time import perf_counter
from typing import Any


async def pgqueuer(url: str, jobs: int) -> float:
    """pgqueuer on asyncpg and uvloop in drain mode, with batches of 100: its best configuration."""
    import asyncpg
    from pgqueuer import PgQueuer
    from pgqueuer.db import AsyncpgDriver
    from pgqueuer.types import QueueExecutionMode

    connection = await asyncpg.connect(url)
    queuer = PgQueuer(AsyncpgDriver(connection))
    await queuer.qm.queries.install()

    @queuer.entrypoint("nothing")
    async def nothing(_: Any) -> None:
        """Do nothing."""

    for start in range(0, jobs, 1000):
        count = min(1000, jobs - start)
        await queuer.qm.queries.enqueue(["nothing"] * count, [None] * count, [0] * count)
    started = perf_counter()
    await queuer.qm.run(batch_size=100, mode=QueueExecutionMode.drain)
    rate = jobs / (perf_counter() - started)
    await queuer.qm.queries.uninstall()
    return rate


async def procrastinate(url: str, jobs: int) -> float:
    """procrastinate with ten jobs at a time, deleted when done: its best configuration."""
    from procrastinate import App, PsycopgConnector

    app = App(connector=PsycopgConnector(conninfo=url))

    @app.task(name="nothing")
    async def nothing(n: int) -> None:
        """Do nothing."""

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        for start in range(0, jobs, 1000):
            await nothing.batch_defer_async(*[{"n": n} for n in range(start, min(start + 1000, jobs))])
        started = perf_counter()
        await app.run_worker_async(concurrency=10, wait=False, delete_jobs="always")
        return jobs / (perf_counter() - started)


def main() -> None:
    """Run one peer."""
    name, url, jobs = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if name == "pgqueuer":
        import uvloop

        print(uvloop.run(pgqueuer(url, jobs)))
    else:
        print(asyncio.run(procrastinate(url, jobs)))


if __name__ == "__main__":
    main()
