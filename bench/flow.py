"""P3 and P6 (design 4.1): from POST to completed, through everything: `make bench-flow`.

A whole relayer with its devnet (blocks of 0.25 s) in a temporary directory. All three kinds of requests, mixed, at a fixed rate, each
sent when it is due whatever became of the others; the time of one is that from its POST to the database's `completed_at`. CPU is
that of the web, the workers and PostgreSQL; the chains, the bots and this client share the machine and are left out of it.
Statements are counted in the server's own log, at 30 user decrypts of 13 shares a second: BEGIN, COMMIT and idle polls too.
"""

from __future__ import annotations

import argparse
import http.client
import json
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import psutil

from bench.envelope_scene import percentile
from bench.http import cpu_seconds
from bench.table import Table, leave, publish
from tests.processes.children import command_line
from tests.stack.harness import Stack
from tests.stack.statements import logged_statements
from workers.devnet.traffic import Form, Submission, Traffic

BLOCK_SECONDS: Final = 0.25
FLOOR_SECONDS: Final = 2 * BLOCK_SECONDS
MIXED: Final[tuple[Form, ...]] = ("user_decrypt", "public_decrypt", "input_proof")
SENDERS: Final = 16
OUTSIDERS: Final = ("anvil", "workers.devnet")  # what is not the relayer's
ROLES: Final = {
    "relayer_site.web": "web",
    "relayer_cluster settle": "settle",
    "relayer_cluster sweep": "sweep",
    "relayer_listener": "listener",
}
TIMES = " UNION ALL ".join(
    f"SELECT ext_job_id::text, status, extract(epoch FROM completed_at)::float8 FROM {table} WHERE ext_job_id = ANY(%(ids)s::uuid[])"
    for table in ("user_decrypt_req", "public_decrypt_req", "input_proof_req")
)


class Client:
    """Posts on a kept connection a thread, as a client's pool does."""

    def __init__(self, url: str, api_key: str) -> None:
        self._at = urlsplit(url).netloc
        self._headers = {"content-type": "application/json", "x-api-key": api_key}
        self._own = threading.local()

    def post(self, submission: Submission, due: float) -> tuple[str, float]:
        """Wait until it is due, post: job id, and when it was sent (seconds since 1970)."""
        time.sleep(max(0.0, due - time.monotonic()))
        if not hasattr(self._own, "connection"):
            self._own.connection = http.client.HTTPConnection(self._at, timeout=30)
        sent = time.time()
        self._own.connection.request("POST", submission.path, json.dumps(submission.body), self._headers)
        answer = self._own.connection.getresponse()
        document = json.loads(answer.read())
        if answer.status != 202:
            raise SystemExit(f"{answer.status}: {document}")
        return str(document["result"]["jobId"]), sent


def cpu_by_role(stack: Stack) -> Counter[str]:
    """CPU seconds that PostgreSQL, the web, the clusters, the listener and whatever looks after them have used so far."""
    server = int((stack.var / "pg" / "postmaster.pid").read_text().split()[0])
    spent = Counter(PostgreSQL=cpu_seconds([psutil.Process(server), *psutil.Process(server).children(recursive=True)]))
    for process in stack.family():
        line = command_line(process)
        if line and not any(word in line for word in OUTSIDERS):
            role = next((name for word, name in ROLES.items() if word in line), "rest")
            spent[role] += cpu_seconds([process])
    return spent


def flow(stack: Stack, submissions: Sequence[Submission], rate: float) -> tuple[list[float], float, Counter[str]]:
    """Seconds from POST to completed of each, completed ones a second, CPU milliseconds a request by role.

    Loses nothing, or ends the run.
    """
    client = Client(stack.url, stack.api_key)
    before, began = cpu_by_role(stack), time.monotonic() + 0.2
    with ThreadPoolExecutor(SENDERS) as pool:
        posted = list(pool.map(client.post, submissions, [began + n / rate for n in range(len(submissions))]))
    ids = [job for job, _ in posted]
    ended = {row.status for row in stack.wait_final(ids, 120)}
    spent = cpu_by_role(stack) - before
    if ended != {"completed"}:
        raise SystemExit(f"not all completed: {ended}")
    with stack.database() as conn:
        done = {job: at for job, _, at in conn.execute(TIMES, {"ids": ids}).fetchall()}
    took = [done[job] - sent for job, sent in posted]
    lasted = max(done.values()) - min(sent for _, sent in posted)
    each = Counter({role: seconds / len(ids) * 1000 for role, seconds in spent.items()})
    return took, len(ids) / lasted, each


def measure(stack: Stack, table: Table, traffic: Traffic, rate: float, seconds: float) -> list[float]:
    """One rate: prints where the times lie; the times."""
    count = int(rate * seconds)
    submissions = traffic.build([MIXED[n % len(MIXED)] for n in range(count)])
    took, reached, cpu = flow(stack, submissions, rate)
    name = f"P6 at {rate:g} req/s"
    for share in (0.5, 0.95, 0.99):
        goal = (FLOOR_SECONDS + 0.15) * 1000 if share == 0.5 and rate == 30 else None
        note = f"floor {FLOOR_SECONDS * 1000:.0f} ms: two blocks"
        table.most(
            f"{name}, POST to completed, p{share * 100:.0f}", percentile(took, share) * 1000, "ms", goal, note=note
        )
    if rate > 30:
        # The last ones still need their two blocks: what was sent in the time must have been completed in little more.
        table.least(f"{name}, completed a second", reached, "req/s", 60, note=f"{count} of {count} completed")
        shares = ", ".join(f"{role} {milliseconds:.1f}" for role, milliseconds in cpu.most_common())
        table.most(f"{name}, CPU a request", cpu.total(), "ms", 8, note=shares)
    return took


def count_statements(stack: Stack, table: Table, traffic: Traffic, seconds: float) -> None:
    """What a user decrypt takes of the database, from POST to completed."""
    submissions = traffic.build(["user_decrypt"] * int(30 * seconds))
    with logged_statements(stack) as statements:
        flow(stack, submissions, 30)
    counts = statements.by_application()
    note = ", ".join(f"{who} {count / len(submissions):.1f}" for who, count in counts.most_common())
    table.most("P3 statements a user decrypt, 30 a second", counts.total() / len(submissions), "", 8, note=note)


def main() -> None:
    """Run everything and print the table; exit code 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="of each rate")
    parser.add_argument("--rates", default="30,66", help="requests a second, one run each")
    parser.add_argument("--json", help="also write the results there")
    options = parser.parse_args()
    table: Any = Table()
    var = Path(tempfile.mkdtemp(prefix="relayer-flow-"))
    try:
        stack = Stack(var, environment={"DEVNET_BLOCK_SECONDS": str(BLOCK_SECONDS)})
        traffic = Traffic(stack.deployment, operator=1)
        try:
            flow(stack, traffic.build([MIXED[n % 3] for n in range(60)]), 20)  # warm
            for rate in options.rates.split(","):
                measure(stack, table, traffic, float(rate), options.seconds)
            count_statements(stack, table, traffic, options.seconds)
        finally:
            traffic.close()
            stack.stop()
    finally:
        shutil.rmtree(var, ignore_errors=True)
    publish(table, options.json)
    leave(table)


if __name__ == "__main__":
    main()
