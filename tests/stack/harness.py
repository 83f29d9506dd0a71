"""The whole relayer, started as a stranger would start it, watched from outside: HTTP, its database, its processes, its chain."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg.rows import namedtuple_row

from relayer_site.embedded import EmbeddedPostgres
from requests_app.sockets import free_port
from tests.faults.proxy import FaultProxy
from tests.faults.rules import Rule
from tests.installing import share_tools
from tests.processes.children import command_line
from tests.waiting import wait_until
from workers.devnet.demo import Api
from workers.devnet.deployment import Deployment, wait_for_deployment
from workers.devnet.layout import HOST_CHAIN_ID
from workers.devnet.traffic import Submission
from workers.devnet.verify import REQUEST_EVENTS

ROOT = Path(__file__).resolve().parent.parent.parent
OBSERVER = "test-observer"
START_SECONDS = 180
POSTERS = 8

_ROWS = " UNION ALL ".join(
    f"SELECT '{table}' AS kind, id, ext_job_id, status, gw_reference_id, gw_req_tx_hash, fail_detail FROM {table}"
    for table in ("user_decrypt_req", "public_decrypt_req", "input_proof_req")
)


@dataclass(frozen=True, slots=True)
class ChainProxies:
    """A fault proxy before each chain of a devnet whose ports are chosen here, before it exists."""

    gateway: FaultProxy
    host: FaultProxy
    gateway_port: int
    host_port: int

    @classmethod
    def make(cls, seed: int = 0) -> ChainProxies:
        """Both proxies, listening, on the way to two free ports."""
        ports = free_port(), free_port()
        gateway, host = (FaultProxy(f"http://127.0.0.1:{port}", seed=seed + n) for n, port in enumerate(ports))
        return cls(gateway, host, *ports)

    def environment(self) -> dict[str, str]:
        """What relayer_up needs to put the proxies between relayer and devnet."""
        return {
            "DEVNET": "1",
            "DEVNET_GATEWAY_PORT": str(self.gateway_port),
            "DEVNET_HOST_PORT": str(self.host_port),
            "GATEWAY_RPC_URLS": self.gateway.url,
            "HOST_RPC_URLS": f"{HOST_CHAIN_ID}={self.host.url}",
        }

    def add(self, *rules: Rule) -> None:
        """The same rules on both ways."""
        self.gateway.add(*rules)
        self.host.add(*rules)

    def clear(self) -> None:
        """No faults from now on."""
        self.gateway.clear()
        self.host.clear()

    def close(self) -> None:
        """Cut both ways."""
        self.gateway.close()
        self.host.close()


class Stack:
    """`manage.py relayer_up` in its own var directory. The installed tools of the last run are kept, nothing else.

    `through`: a proxy before each chain, between the relayer's own processes (not the bots, not `rpc`) and the devnet.
    `environment`: further settings of the stack.
    """

    def __init__(
        self, var: Path, *, through: ChainProxies | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        self.var = var
        _forget_all_but_tools(var)
        share_tools(var)
        self.output = var / "up.log"
        with self.output.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, str(ROOT / "manage.py"), "relayer_up"],
                env={
                    **plain_environment(),
                    "RELAYER_VAR": str(var),
                    **(through.environment() if through else {}),
                    **(environment or {}),
                },
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            wait_until(lambda: self._serving(), START_SECONDS, f"relayer_up, see {self.output}")
            access = json.loads((var / "demo.json").read_text())
            self.url = f"http://127.0.0.1:{(var / 'api-port').read_text().strip()}"
            self.api_key: str = access["api_key"]
            self.api = Api(self.url, self.api_key)
            self.api.wait_ready(60)
            self.deployment: Deployment = wait_for_deployment(var / "devnet" / "deployment.json", 10)
            self.rpc = self.deployment.gateway_rpc()
        except BaseException:
            self.stop()
            raise

    def _serving(self) -> bool:
        assert self.process.poll() is None, f"relayer_up ended:\n{self.output.read_text()[-4000:]}"
        return "Press Ctrl-C" in self.output.read_text()

    def stop(self) -> None:
        """End everything as Ctrl-C does; SIGKILL for whatever is left."""
        rpc = getattr(self, "rpc", None)
        if rpc is not None:
            rpc.close()
        family = self.family() if self.process.poll() is None else []
        self.process.terminate()
        try:
            self.process.wait(60)
        finally:
            _, alive = psutil.wait_procs(family, timeout=10)
            for process in alive:
                process.kill()

    def connect(self) -> psycopg.Connection[Any]:
        """A new observer's connection to the stack's database."""
        return psycopg.connect(EmbeddedPostgres(self.var).url(), autocommit=True, application_name=OBSERVER)

    @contextmanager
    def database(self) -> Iterator[psycopg.Connection[Any]]:
        """An observer's connection for one block."""
        with self.connect() as conn:
            yield conn

    def rows(self, conn: psycopg.Connection[Any], job_ids: Sequence[str]) -> list[Any]:
        """The rows of these jobs, of whatever kind."""
        with conn.cursor(row_factory=namedtuple_row) as cursor:
            return cursor.execute(
                f"SELECT * FROM ({_ROWS}) r WHERE ext_job_id = ANY(%s::uuid[])", (list(job_ids),)
            ).fetchall()

    def counts(self, conn: psycopg.Connection[Any], job_ids: Sequence[str]) -> dict[str, int]:
        """How many of these jobs are in each status."""
        found: dict[str, int] = {}
        for row in self.rows(conn, job_ids):
            found[row.status] = found.get(row.status, 0) + 1
        return found

    def post_all(self, submissions: Sequence[Submission], api: Api | None = None) -> list[str]:
        """POST every body over HTTP, a few at a time, again after a refused connection; their job ids in order.

        `api`: another web server of the same database.
        """
        with ThreadPoolExecutor(POSTERS) as pool:
            return list(pool.map(lambda submission: self._post(submission, api or self.api), submissions))

    def _post(self, submission: Submission, api: Api) -> str:
        def attempt() -> str | None:
            try:
                answer = api.post(submission.path, submission.body)
            except OSError:
                return None  # the web process may be the one that was killed; a POST of the same content joins its row
            assert answer.status in (202, 503, 500), answer
            return str(answer.body["result"]["jobId"]) if answer.status == 202 else None

        job_id = wait_until(attempt, 120, f"POST {submission.path}")
        assert job_id is not None
        return job_id

    def wait_final(self, job_ids: Sequence[str], timeout: float) -> list[Any]:
        """The rows once all of them are final."""

        def final() -> list[Any] | None:
            try:
                with self.database() as conn:
                    rows = self.rows(conn, job_ids)
            except psycopg.OperationalError:
                return None  # the database may be the one that was killed
            done = [row for row in rows if row.status in ("completed", "failure", "timed_out", "needs_review")]
            return done if len(done) == len(job_ids) else None

        try:
            found = wait_until(final, timeout)
        except AssertionError:
            with self.database() as conn:
                raise AssertionError(f"not final after {timeout} s: {self.counts(conn, job_ids)}") from None
        assert found is not None
        return found

    def request_events(self, from_block: int = 0) -> list[dict[str, Any]]:
        """Every request event on the gateway, one for each request."""
        topics = sorted(set(REQUEST_EVENTS.values()))
        found: list[dict[str, Any]] = self.rpc.call(
            "eth_getLogs", {"fromBlock": hex(from_block), "toBlock": "latest", "topics": [topics]}
        )
        return found

    def block(self) -> int:
        """The gateway's head."""
        return self.rpc.head()

    def family(self) -> list[psutil.Process]:
        """Every process of the stack but the database server, which is not a child."""
        if not psutil.pid_exists(self.process.pid):
            return []
        return psutil.Process(self.process.pid).children(recursive=True)

    def find(self, *words: str) -> list[psutil.Process]:
        """Processes of the stack whose command line holds all the words, parents first."""
        found = []
        for process in self.family():
            line = command_line(process)
            if all(word in line for word in words) and "workers.lifeline" not in line:
                found.append(process)
        return found

    def first(self, *words: str) -> psutil.Process:
        """The parent of those: waited for, because a test before may have killed it."""
        return wait_until(lambda: self.find(*words), 60, f"a process {words}")[0]


def _forget_all_but_tools(var: Path) -> None:
    var.mkdir(parents=True, exist_ok=True)
    for entry in var.iterdir():
        if entry.name != "node":
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()


def plain_environment() -> dict[str, str]:
    """The environment without what the test run itself set for Django."""
    dropped = ("DJANGO_SETTINGS_MODULE", "RELAYER_ROLE", "PROMETHEUS_MULTIPROC_DIR", "PYTEST_CURRENT_TEST")
    return {key: value for key, value in os.environ.items() if key not in dropped}


def kill(process: psutil.Process) -> None:
    """kill -9."""
    os.kill(process.pid, signal.SIGKILL)


def poll(condition: Callable[[], Any], timeout: float, what: str) -> Any:
    """`wait_until`, where a database that is away counts as not yet."""

    def asked() -> Any:
        try:
            return condition()
        except psycopg.OperationalError:
            return None

    return wait_until(asked, timeout, what)
