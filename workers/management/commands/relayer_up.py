"""Everything on one machine with one command: `manage.py relayer_up`."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from requests_app.errors import ForeignChain
from requests_app.store.chain_identity import claim_identity
from requests_app.store.session import web_connection
from workers.supervise import StackError, Supervisor, kept_port, programs


def wants_devnet(environment: Mapping[str, str]) -> bool:
    """Whether the devnet runs here: DEVNET=1 or 0 says so, else it stands in where no gateway endpoint is configured.

    DEVNET=1 together with GATEWAY_RPC_URLS puts something between the relayer and the devnet's chains, such as a fault
    proxy; the bots keep to the deployment file.
    """
    switch = environment.get("DEVNET")
    return switch == "1" if switch else not environment.get("GATEWAY_RPC_URLS")


class Command(BaseCommand):
    """Prepares database and devnet, runs every process under a supervisor until Ctrl-C, SIGTERM, or the end of the demo."""

    help = "Prepare and run the whole relayer on this machine: database, devnet, web, workers, listener."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Whether to run the demo against the stack, and to stop after it."""
        parser.add_argument("--demo", action="store_true", help="submit the demo's requests once the API answers")
        parser.add_argument("--once", action="store_true", help="stop after that and exit with the demo's status")
        parser.add_argument("--serving-seconds", type=float, default=90.0, help="give up when the API does not answer")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the stack; the exit status is that of the demo."""
        self._stop = threading.Event()
        logging.getLogger("relayer").setLevel(
            logging.WARNING
        )  # a person reads this terminal; the programs keep their own logs
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._request_stop)
        var = Path(settings.RELAYER_VAR)
        var.mkdir(parents=True, exist_ok=True)
        with self._alone(var):
            try:
                status = self._run(var, options)
            except StackError as error:
                raise CommandError(str(error)) from error
            finally:
                self._leave_database()
        if status:
            sys.exit(status)

    def _run(self, var: Path, options: dict[str, Any]) -> int:
        began = monotonic()
        devnet = wants_devnet(os.environ)
        port = kept_port(var / "api-port", _configured("API_PORT"))
        os.environ["API_PORT"] = str(port)
        os.environ.pop("API_PORT_FILE", None)  # it would win
        if devnet:
            self.stdout.write("Preparing the devnet ...")
            call_command("relayer_devnet", "prepare", stdout=StringIO())
        embedded = hasattr(connection, "ensure_server")
        root = Path(settings.BASE_DIR)
        supervisor = Supervisor(var, root, programs(root, embedded=embedded, devnet=devnet, api_port=port))
        supervisor.start()
        try:
            with ThreadPoolExecutor(1) as beside:  # one waits for blocks, the other computes
                deployment = (
                    beside.submit(call_command, "relayer_devnet", "deploy", stdout=StringIO()) if devnet else None
                )
                self._migrate()
                if deployment is not None:
                    self.stdout.write("Deploying the contracts ...")
                    deployment.result()
                    self._bind_database()
            supervisor.start_web()
            supervisor.wait_serving(port, options["serving_seconds"])
            self.stdout.write(f"Serving on http://127.0.0.1:{port} after {monotonic() - began:.1f} s")
            supervisor.start_rest()
            return self._serve(supervisor, port, devnet, options)
        finally:
            supervisor.stop()
            self.stdout.write("Stopped.")

    def _serve(self, supervisor: Supervisor, port: int, devnet: bool, options: dict[str, Any]) -> int:
        url = f"http://127.0.0.1:{port}"
        access = self._seed() if devnet else {}
        status = self._demo(supervisor, url, access["api_key"]) if devnet and options["demo"] else 0
        if options["once"] or self._stop.is_set():
            return status
        self.stdout.write(f"API            {url}/v2/   documentation {url}/docs   metrics {url}/metrics")
        self.stdout.write(f"Admin          {url}/admin/")
        if access:
            self.stdout.write(f"Admin login    {access['admin_user']} / {access['admin_password']}")
            self.stdout.write(f"API key        {access['api_key']}   (header x-api-key)")
        self.stdout.write("Press Ctrl-C to stop.")
        while not self._stop.wait(0.5):
            self._check(supervisor)
        return status

    def _seed(self) -> dict[str, str]:
        answer = StringIO()
        call_command("relayer_seed_demo", json=True, stdout=answer)
        connection.close()
        access: dict[str, str] = json.loads(answer.getvalue())
        return access

    def _demo(self, supervisor: Supervisor, url: str, api_key: str) -> int:
        manage = str(Path(settings.BASE_DIR) / "manage.py")
        with subprocess.Popen([sys.executable, manage, "relayer_demo", "--url", url, "--api-key", api_key]) as demo:
            while demo.poll() is None and not self._stop.wait(0.1):
                self._check(supervisor)
            if demo.poll() is None:
                demo.terminate()
        return demo.returncode

    def _check(self, supervisor: Supervisor) -> None:
        if supervisor.ended():
            raise StackError("the supervisor has ended; its children have ended with it")

    def _migrate(self) -> None:
        executor = MigrationExecutor(connection)
        if executor.migration_plan(executor.loader.graph.leaf_nodes()):
            self.stdout.write("Migrating the database ...")
            call_command("migrate", interactive=False, verbosity=0)
        connection.close()

    def _bind_database(self) -> None:
        # The listener refuses a foreign chain too, but its refusal is in a log; whoever types `make demo` should read it here.
        gateway = json.loads(Path(settings.RELAYER_DEPLOYMENT).read_text())["gateway"]
        genesis = bytes.fromhex(gateway["genesis_hash"].removeprefix("0x"))
        try:
            claim_identity(web_connection(), int(gateway["chain_id"]), genesis)
        except ForeignChain as error:
            raise StackError(f"{error}. `make reset` forgets both.") from error
        finally:
            connection.close()

    def _leave_database(self) -> None:
        connection.close()
        release = getattr(connection, "release_server", None)
        if release is not None:
            release()

    def _request_stop(self, number: int, frame: FrameType | None) -> None:
        self._stop.set()

    @contextmanager
    def _alone(self, var: Path) -> Iterator[None]:
        with (var / "up.lock").open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise CommandError(f"another relayer_up runs with {var}; set RELAYER_VAR for a second one") from None
            yield


def _configured(name: str) -> str:
    """A variable of the environment, or of the file that NAME_FILE names; "" when neither is there. Raises StackError."""
    path = os.environ.get(f"{name}_FILE")
    if not path:
        return os.environ.get(name, "")
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise StackError(f"{name}_FILE cannot be read: {error.strerror}") from None
