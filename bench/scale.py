"""Issue 7's acceptance at size, and P9 of design 4.1: pages, API and workers' statements at 10 k and at 10 M finished rows.

`make bench-scale`. Databases are built by `relayer_seed` under SCALE_DATA (var/scale) and used again by later runs; `--remove` deletes
them afterwards. Each size has its own database server and web server (granian, 2 workers). Times are those of one client over a kept
connection, the 95th percentile of `--rounds`; "after a restart" is the first request that a fresh web server gets. The sizes are measured
in turn, `--passes` times: of a figure the lowest median counts (whatever else the machine did only adds to it), and the highest 95th
percentile. Exit code 1 when a limit is missed.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from bench.http import ROOT, cpu_seconds, database_processes
from bench.scale_pages import LIMITS, body_of
from bench.table import Table, leave, publish

RATIO = 1.3
GROWING = ("workers: ", "api: ", "queue: ")  # the groups that P9 names
CHAIN = {
    "GATEWAY_CHAIN_ID": "654321",
    "GATEWAY_RPC_URLS": "http://127.0.0.1:9",
    "DECRYPTION_ADDRESS": "0x" + "d0" * 20,
    "INPUT_VERIFICATION_ADDRESS": "0x" + "e0" * 20,
    "HOST_CHAINS": json.dumps([{"chain_id": 8009, "url": "http://127.0.0.1:9", "acl_address": "0x" + "ac" * 20}]),
    "LOG_LEVEL": "ERROR",
    "WEB_WORKERS": "2",
}
# While it is built the data need not survive anything; afterwards the server runs with its usual settings.
BUILDING = "-c fsync=off -c full_page_writes=off -c wal_level=minimal -c max_wal_senders=0 -c shared_buffers=512MB"


class Answer:
    """One measured exchange."""

    def __init__(self, milliseconds: float, status: int, rows: int) -> None:
        self.milliseconds = milliseconds
        self.status = status
        self.rows = rows  # of the tables of a page


def environment(var: Path, port: int, **more: str) -> dict[str, str]:
    """What every process of one size gets."""
    return {
        **os.environ,
        **CHAIN,
        "DJANGO_SETTINGS_MODULE": "relayer_site.settings",
        "RELAYER_VAR": str(var),
        "API_PORT": str(port),
        **more,
    }


def run(env: dict[str, str], *arguments: str, capture: bool = False) -> str:
    """Run Python to its end in this checkout; what it printed."""
    done = subprocess.run(
        [sys.executable, *arguments],
        env=env,
        cwd=ROOT,
        check=True,
        text=True,
        stdout=subprocess.PIPE if capture else None,
    )
    return done.stdout or ""


def build(var: Path, scale: str, live: str, port: int) -> dict[str, Any] | None:
    """Have a seeded database in `var`: what the seeding said, None when it was there already."""
    kept = var / "seeded.json"
    if kept.exists():
        run(environment(var, port), "manage.py", "migrate", "-v0")
        return None
    var.mkdir(parents=True, exist_ok=True)
    env = environment(var, port, RELAYER_PG_OPTIONS=BUILDING)
    run(env, "manage.py", "migrate", "-v0")
    said = run(env, "manage.py", "relayer_seed", "--scale", scale, "--live", live, "--json", capture=True)
    kept.write_text(said)
    found: dict[str, Any] = json.loads(said)
    return found


@contextmanager
def served(env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A web server that answers; ended with the block."""
    server = subprocess.Popen([sys.executable, "-m", "relayer_site.web"], env=env, cwd=ROOT)
    try:
        _wait(int(env["API_PORT"]), server)
        yield server
    finally:
        server.terminate()
        server.wait(15)


def _wait(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and server.poll() is None:
        try:
            link = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
            link.request("GET", "/liveness")
            if link.getresponse().status == 200:
                return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the web server does not answer")


def exchange(link: http.client.HTTPConnection, method: str, target: str, headers: dict[str, str]) -> Answer:
    """One request over a kept connection, to the end of its answer."""
    body = json.dumps(body_of(target)) if method == "POST" else None
    sent = {**headers, "content-type": "application/json"} if body else headers
    began = time.perf_counter()
    link.request(method, target, body, sent)
    answer = link.getresponse()
    text = answer.read()
    return Answer((time.perf_counter() - began) * 1000, answer.status, text.count(b"<tr"))


def p95(values: list[float]) -> float:
    """The value that nineteen of twenty do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]


class Meter:
    """Collects the rows of one size."""

    def __init__(self, env: dict[str, str]) -> None:
        self.env = env
        self.rows: list[dict[str, Any]] = []

    def add(self, group: str, name: str, answers: list[float], cpu: float | None = None, lines: int = 0) -> None:
        """A row: p50 and p95 in milliseconds, CPU milliseconds of web and database a request, lines of the page's tables."""
        self.rows.append(
            {
                "group": group,
                "name": name,
                "p50": round(statistics.median(answers), 2),
                "p95": round(p95(answers), 2),
                "cpu": round(cpu, 2) if cpu is not None else None,
                "lines": lines,
            }
        )

    def repeat(
        self,
        server: subprocess.Popen[bytes],
        group: str,
        name: str,
        method: str,
        targets: list[str],
        expected: int,
        headers: dict[str, str],
        rounds: int,
    ) -> None:
        """Measure one target, or several in turn, after requests that do not count: of several, the first look at each is a row of its own."""
        link = http.client.HTTPConnection("127.0.0.1", int(self.env["API_PORT"]), timeout=60)
        warmed = [exchange(link, method, target, headers) for target in (targets if len(targets) > 1 else targets * 2)]
        if len(targets) > 1:
            self.add(f"{group}, first look", name, [one.milliseconds for one in warmed])
        watched = [
            psutil.Process(server.pid),
            *psutil.Process(server.pid).children(recursive=True),
            *database_processes(self.env),
        ]
        before = cpu_seconds(watched)
        found = [exchange(link, method, targets[turn % len(targets)], headers) for turn in range(rounds)]
        spent = (cpu_seconds(watched) - before) * 1000 / rounds
        wrong = {one.status for one in found} - {expected}
        if wrong:
            raise SystemExit(f"{name}: {wrong} instead of {expected}: {targets[0]}")
        self.add(group, name, [one.milliseconds for one in found], spent, found[-1].rows)
        link.close()


def measure(var: Path, port: int, rounds: int, restarts: int) -> list[dict[str, Any]]:
    """Every row of one size."""
    env = environment(var, port)
    known = json.loads(run(env, "-m", "bench.scale_pages", capture=True))
    meter, desk, api = Meter(env), {"cookie": known["cookie"]}, {"x-api-key": known["key"]}
    firsts = {
        group: next(page for page in known["pages"] if page["group"] == group)
        for group in ("first page", "queue", "case", "search", "request")
    }
    for group, page in firsts.items():
        taken = []
        for _ in range(restarts):
            with served(env):
                link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                taken.append(exchange(link, "GET", page["url"], desk).milliseconds)
        meter.add(group, f"first request after a restart: {page['name']}", taken)
    with served(env) as server:
        for page in known["pages"]:
            meter.repeat(server, page["group"], page["name"], "GET", [page["url"]], 200, desk, rounds)
        for call in known["calls"]:
            meter.repeat(
                server, "api", call["name"], call["method"], call["targets"], call["expected"], api, rounds * 4
            )
    meter.rows += json.loads(run(env, "-m", "bench.scale_statements", str(rounds), capture=True))
    return meter.rows


def merged(passes: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Of each row of the last pass: the lowest median and CPU time of all passes, the highest 95th percentile."""
    rows = []
    for row in passes[-1]:
        same = [one for rows_ in passes if (one := _same(row, rows_))]
        spent = [one["cpu"] for one in same if one["cpu"] is not None]
        lowest, highest = min(one["p50"] for one in same), max(one["p95"] for one in same)
        rows.append({**row, "p50": lowest, "p95": highest, "cpu": min(spent, default=None)})
    return rows


def report(results: dict[str, list[dict[str, Any]]]) -> Table:
    """Print every row, sizes side by side; then the worst of each group against its limit, and P9: the largest size against the smallest.

    A page that shows three cases in one and a hundred in the other says nothing of growth: P9 compares pages of equally many lines.
    """
    table = Table()
    first, last = next(iter(results)), list(results)[-1]
    print(f"{'':62}" + "".join(f"{size:>10} p50 {'p95':>8} {'CPU':>7}" for size in results) + "   ratio of p50")
    grown: dict[str, float] = {}
    for row in results[last]:
        same = [_same(row, rows) for rows in results.values()]
        line = f"{row['group'] + ': ' + row['name']:62.62}" + "".join(_figures(one) for one in same)
        base = same[0]
        if base and base["p50"] and first != last:
            line += f"   {row['p50'] / base['p50']:.2f}"
            if _alike(base, row):
                grown[f"{row['group']}: {row['name']}"] = row["p50"] / base["p50"]
            else:
                line += f", {base['lines']} lines became {row['lines']}"
        print(line)
    for group, limit in LIMITS.items():
        worst = max((one for one in results[last] if one["group"] == group), key=lambda one: one["p95"])
        table.most(f"{group} at {last} finished rows, worst p95", worst["p95"], "ms", limit, note=worst["name"])
    for name, ratio in grown.items():
        if name.startswith(GROWING) and "after a restart" not in name:
            table.most(f"P9 {name}, {last} / {first}", ratio, "x", RATIO)
    return table


def _same(row: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    return next((one for one in rows if (one["group"], one["name"]) == (row["group"], row["name"])), None)


def _alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    few, many = sorted((one.get("lines", 0), other.get("lines", 0)))
    return bool(many <= 1.1 * few)


def _figures(row: dict[str, Any] | None) -> str:
    if row is None:
        return f"{'-':>14} {'-':>8} {'-':>7}"
    return f"{row['p50']:14.1f} {row['p95']:8.1f} {row['cpu'] if row['cpu'] is not None else '-':>7}"


def main() -> None:
    """Build what is missing, measure each size, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="10k,10M")
    parser.add_argument("--live", default="100k")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--restarts", type=int, default=2)
    parser.add_argument("--json", help="also write the results there")
    parser.add_argument("--rows", help="write every measured row to this file")
    parser.add_argument("--remove", action="store_true", help="delete the databases afterwards")
    options = parser.parse_args()
    data = Path(os.environ.get("SCALE_DATA", ROOT / "var" / "scale"))
    port = int(os.environ.get("BENCH_PORT", "8973"))
    sizes = options.sizes.split(",")
    built = {size: build(data / size, size, options.live, port) for size in sizes}
    passes: dict[str, list[list[dict[str, Any]]]] = {size: [] for size in sizes}
    for _ in range(options.passes):
        for size in sizes:
            passes[size].append(measure(data / size, port, options.rounds, options.restarts))
    if options.remove:
        for size in sizes:
            _remove(data / size)
    results = {size: merged(found) for size, found in passes.items()}
    table = report(results)
    if options.rows:
        Path(options.rows).write_text(json.dumps({"built": built, "results": results}, indent=1))
    publish(table, options.json)
    leave(table)


def _remove(var: Path) -> None:
    """Delete a database once its server has ended, soon after its last user."""
    for _ in range(300):
        if not database_processes({"RELAYER_VAR": str(var)}):
            break
        time.sleep(0.1)
    shutil.rmtree(var, ignore_errors=True)


if __name__ == "__main__":
    main()
