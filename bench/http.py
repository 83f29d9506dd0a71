"""P4 and P5 (design 4.1): POST and GET of the product against a DRF echo of the same body on the same server.

`make bench-http`. Its own database and web server (granian, 2 workers) under a temporary RELAYER_VAR, which is removed. Rounds of the
kinds alternate, so that a busy machine disturbs all alike; the medians are compared. CPU is that of the web processes and of
PostgreSQL, per request.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from bench.table import Table, leave, publish

ROOT = Path(__file__).resolve().parent.parent
CONNECTIONS = 16
Make = Callable[[], bytes]
COMPLETE = """
import json, sys, django
django.setup()
from requests_app.store.session import connect
answer = json.dumps({"decrypted_value": "0x2a", "signatures": ["0x11"], "extra_data": "0x00"})
connect("maintenance").execute(
    "UPDATE public_decrypt_req SET status = 'completed', completed_at = now(), deadline_at = NULL, res = %s "
    "WHERE id = (SELECT request_id FROM request_client WHERE ext_job_id = %s)", (answer, sys.argv[1]))
"""


@dataclass
class Series:
    """What the rounds of one kind measured: requests a second and CPU milliseconds a request."""

    rates: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """The median."""
        return statistics.median(self.rates)


def request(method: str, path: str, key: str, body: Any = None) -> bytes:
    """The bytes of one HTTP/1.1 request."""
    raw = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\nx-api-key: {key}\r\ncontent-type: application/json\r\ncontent-length: {len(raw)}\r\n\r\n"
    return head.encode() + raw


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, raw: bytes) -> int:
    """Send one request, read its answer: the status."""
    writer.write(raw)
    head = await reader.readuntil(b"\r\n\r\n")
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            await reader.readexactly(int(line.split(b":")[1]))
    return int(head[9:12])


async def drive(port: int, make: Make, expected: int, seconds: float, rate: float = 0.0) -> tuple[int, list[float]]:
    """Requests for `seconds`, as fast as CONNECTIONS take them or at `rate` a second: (count, latencies in seconds)."""
    latencies: list[float] = []
    began = time.perf_counter()
    end, due = began + seconds, [began]

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while True:
            start = time.perf_counter()
            if rate:
                start, due[0] = due[0], due[0] + 1 / rate
                await asyncio.sleep(max(0.0, start - time.perf_counter()))
            if start >= end:
                break
            status = await exchange(reader, writer, make())
            if status != expected:
                raise SystemExit(f"{status} instead of {expected}")
            latencies.append(time.perf_counter() - start)
        writer.close()

    await asyncio.gather(*(one() for _ in range(CONNECTIONS)))
    return len(latencies), latencies


def cpu_seconds(processes: list[psutil.Process]) -> float:
    """User and system time of the processes."""
    total = 0.0
    for process in processes:
        try:
            used = process.cpu_times()
            total += used.user + used.system
        except psutil.Error:
            continue
    return total


def prepare(var: Path) -> tuple[str, dict[str, str]]:
    """A migrated database with one account: (its key, environment of the server)."""
    chain = {
        "GATEWAY_CHAIN_ID": "654321",
        "GATEWAY_RPC_URLS": "http://127.0.0.1:9",
        "DECRYPTION_ADDRESS": "0x" + "d0" * 20,
        "INPUT_VERIFICATION_ADDRESS": "0x" + "e0" * 20,
        "HOST_CHAINS": json.dumps([{"chain_id": 8009, "url": "http://127.0.0.1:9", "acl_address": "0x" + "ac" * 20}]),
    }
    environment = {
        **os.environ,
        "RELAYER_VAR": str(var),
        "DJANGO_SETTINGS_MODULE": "bench.settings",
        "LOG_LEVEL": "INFO",
        **chain,
    }
    environment |= {"QUEUE_CAPACITY": "1001000", "API_PORT": os.environ.get("BENCH_PORT", "8971"), "WEB_WORKERS": "2"}
    manage = [sys.executable, str(ROOT / "manage.py")]
    subprocess.run([*manage, "migrate", "-v0"], env=environment, cwd=ROOT, check=True)
    made = subprocess.run(
        [*manage, "relayer_account", "--json", "create", "bench"],
        env=environment,
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    return str(json.loads(made.stdout)["key"]), environment


def fresh() -> dict[str, Any]:
    """A new input proof, as large as those that the SDK sends for one value are not: the parser is not what is measured."""
    return {
        "contractAddress": "0x" + "11" * 20,
        "userAddress": "0x" + "22" * 20,
        "ciphertextWithInputVerification": os.urandom(512).hex(),
        "contractChainId": "8009",
        "extraData": "0x00",
    }


def jobs(environment: dict[str, str], port: int, key: str) -> tuple[str, str]:
    """Ids of a pending and of a completed public decrypt."""
    import http.client

    found = []
    for _ in range(2):
        link = http.client.HTTPConnection("127.0.0.1", port)
        body = {"ciphertextHandles": ["0x" + os.urandom(22).hex() + "0000000000001f490400"], "extraData": "0x00"}
        link.request("POST", "/v2/public-decrypt", json.dumps(body), {"x-api-key": key})
        found.append(json.loads(link.getresponse().read())["result"]["jobId"])
        link.close()
    program = [sys.executable, "-c", COMPLETE, found[1]]
    subprocess.run(program, env=environment, cwd=ROOT, check=True)
    return found[0], found[1]


def kinds(key: str, pending: str, completed: str) -> Iterator[tuple[str, Make, int]]:
    """(name, request maker, expected status)."""
    yield "echo", lambda: request("POST", "/bench/echo", key, fresh()), 200
    yield "post", lambda: request("POST", "/v2/input-proof", key, fresh()), 202
    get_pending, get_completed = (request("GET", f"/v2/public-decrypt/{job}", key) for job in (pending, completed))
    yield "get pending", lambda: get_pending, 202
    yield "get completed", lambda: get_completed, 200


def measure(environment: dict[str, str], key: str, rounds: int, seconds: float) -> dict[str, Any]:
    """Start the server, run the rounds, print nothing: the figures."""
    port = int(environment["API_PORT"])
    server = subprocess.Popen([sys.executable, "-m", "relayer_site.web"], env=environment, cwd=ROOT)
    try:
        _wait(port)
        pending, completed = jobs(environment, port, key)
        made = list(kinds(key, pending, completed))
        series = {name: Series() for name, _, _ in made}
        for number in range(rounds + 1):
            for name, make, expected in made:
                watched = [
                    psutil.Process(server.pid),
                    *psutil.Process(server.pid).children(recursive=True),
                    *database_processes(environment),
                ]
                before = cpu_seconds(watched)
                count, _ = asyncio.run(drive(port, make, expected, seconds))
                if number:  # the first round warms up
                    series[name].rates.append(count / seconds)
                    series[name].cpu.append((cpu_seconds(watched) - before) / count * 1000)
        _, latencies = asyncio.run(drive(port, made[1][1], 202, max(5.0, seconds), rate=series["post"].rate / 2))
    finally:
        server.terminate()
        server.wait(15)
    latencies.sort()
    return {
        "series": series,
        "p50_ms": latencies[len(latencies) // 2] * 1000,
        "p99_ms": latencies[int(len(latencies) * 0.99)] * 1000,
    }


def database_processes(environment: dict[str, str]) -> list[psutil.Process]:
    """Every process of this run's database server."""
    found = []
    for process in psutil.process_iter(["name", "cmdline"]):
        line = " ".join(process.info["cmdline"] or [])
        if "postgres" in (process.info["name"] or "") and environment["RELAYER_VAR"] in line:
            found += [process, *process.children(recursive=True)]
    return found


def _wait(port: int) -> None:
    import http.client

    for _ in range(300):
        try:
            link = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
            link.request("GET", "/liveness")
            if link.getresponse().status == 200:
                return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the server does not answer")


BARS = (
    ("echo", "DRF echo of the POST's body", 0.0),
    ("post", "P4 POST", 0.45),
    ("get pending", "P5 GET of a pending job", 0.6),
    ("get completed", "P5 GET of a completed job", 0.6),
)


def main() -> None:
    """Measure and print the table; exit code 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--json", help="also write the results there")
    options = parser.parse_args()
    var = Path(tempfile.mkdtemp(prefix="relayer-bench-"))
    try:
        key, environment = prepare(var)
        figures = measure(environment, key, options.rounds, options.seconds)
    finally:
        for _ in range(300):  # the database server ends by itself, soon after its last user
            if not database_processes({"RELAYER_VAR": str(var)}):
                break
            time.sleep(0.1)
        shutil.rmtree(var, ignore_errors=True)
    series: dict[str, Series] = figures["series"]
    table = Table()
    for name, label, bar in BARS:
        table.least(
            label, series[name].rate, "req/s", note=f"{statistics.median(series[name].cpu):.2f} ms CPU a request"
        )
        if bar:
            table.least(f"{label} / echo", series[name].rate / series["echo"].rate, "x", bar)
    table.most("P4 POST at half load, p50", figures["p50_ms"], "ms")
    table.most("P4 POST at half load, p99", figures["p99_ms"], "ms", 25)
    publish(table, options.json)
    leave(table)


if __name__ == "__main__":
    main()
