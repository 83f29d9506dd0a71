"""A second host beside a stack: web, watchdog with both clusters, listener, with lines of its own that can be cut."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from requests_app.sockets import free_port
from tests.faults.proxy import FaultProxy
from tests.faults.tcp import CutLine
from tests.stack.harness import ROOT, Stack, plain_environment
from tests.waiting import wait_until
from workers.devnet.demo import Api
from workers.devnet.layout import HOST_CHAIN_ID

NAME = "second"


class Host:
    """Uses the stack's database over TCP and its chains over proxies. `line` and `chains` are what can be cut."""

    def __init__(self, stack: Stack) -> None:
        self.line = CutLine(_socket_of(stack))
        self.chains = [
            FaultProxy(url) for url in (stack.deployment.gateway["rpc_urls"][0], stack.deployment.host["rpc_url"])
        ]
        port = free_port()
        environment = {
            **plain_environment(),
            "RELAYER_VAR": str(stack.var),
            "RELAYER_HOST_NAME": NAME,
            "DATABASE_URL": f"postgresql://postgres@127.0.0.1:{self.line.port}/relayer",
            "GATEWAY_RPC_URLS": self.chains[0].url,
            "HOST_RPC_URLS": f"{HOST_CHAIN_ID}={self.chains[1].url}",
            "API_PORT": str(port),
        }
        self._log = (stack.var / "second.log").open("w")
        commands = (
            ("worker", "manage.py", "relayer_watchdog"),
            ("worker", "manage.py", "relayer_listener"),
            ("web", "-m", "relayer_site.web"),
        )
        self._processes = [
            subprocess.Popen(
                [sys.executable, *command],
                env={**environment, "RELAYER_ROLE": role},
                cwd=ROOT,
                start_new_session=True,
                stdout=self._log,
                stderr=subprocess.STDOUT,
            )
            for role, *command in commands
        ]
        self.api = Api(f"http://127.0.0.1:{port}", stack.api_key)

    def wait_working(self, stack: Stack, seconds: float) -> None:
        """Until its web answers and all its slots beat."""

        def working() -> bool:
            with stack.database() as conn:
                row = conn.execute(
                    "SELECT count(*) FROM worker_beat WHERE resource LIKE %s AND at > clock_timestamp() - interval '2 seconds'",
                    (f"shift:%{NAME}%",),
                ).fetchone()
            return row is not None and row[0] >= 4

        self.api.wait_ready(seconds)
        wait_until(working, seconds, "the second host's slots beat")

    def cut(self, *, silently: bool) -> None:
        """Neither database nor chain for this host. `silently`: the database's line hangs instead of breaking."""
        if silently:
            self.line.hold()
        else:
            self.line.cut()
        for chain in self.chains:
            chain.cut()

    def mend(self) -> None:
        """Everything as before."""
        for chain in self.chains:
            chain.listen()
        self.line.mend()

    def stop(self) -> None:
        """End its processes in order."""
        self.mend()
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._log.close()
        for chain in self.chains:
            chain.close()
        self.line.cut()


def _socket_of(stack: Stack) -> Path:
    from relayer_site.embedded import EmbeddedPostgres

    return EmbeddedPostgres(stack.var).socket_directory / ".s.PGSQL.5432"
