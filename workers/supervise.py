"""The whole relayer on one machine under supervisord: which programs, how they are started, stopped, restarted.

supervisord restarts single children and kills whole process groups. Every child is tied to it by `workers.lifeline`, so that its death
by SIGKILL leaves nothing behind: anvil gets SIGTERM and saves its chain, everything else SIGKILL, and the embedded server stops with
its last user. Production runs one process a container instead (Procfile).
"""

from __future__ import annotations

import http.client
import logging
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import xmlrpc.client
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from requests_app.sockets import free_port, is_free
from workers import lifeline

log = logging.getLogger("relayer.supervise")

STOP_SECONDS = 20.0


class StackError(Exception):
    """The stack does not start, or has ended by itself."""


@dataclass(frozen=True, slots=True)
class Program:
    """One supervised process. `early`: started with the supervisor, before migrations and contracts are in place."""

    name: str
    command: tuple[str, ...]
    early: bool = False
    role: str = "worker"
    on_supervisor_death: int = signal.SIGKILL
    stop_seconds: int = 5
    stop_group: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)


def programs(root: Path, *, embedded: bool, devnet: bool, api_port: int) -> list[Program]:
    """The programs of this machine: with the keeper of the embedded server, and the devnet, where they are wanted."""
    manage = (sys.executable, str(root / "manage.py"))
    parts = (sys.executable, "-m", "workers.devnet")  # the same as `manage.py relayer_devnet`, two seconds sooner
    found: list[Program] = []
    if embedded:
        found.append(Program("postgres", (*manage, "relayer_postgres"), early=True))
    if devnet:
        found += [
            Program(
                f"anvil-{chain}",
                (*parts, "anvil", chain),
                early=True,
                on_supervisor_death=signal.SIGTERM,
                stop_seconds=10,
            )
            for chain in ("gateway", "host")
        ]
        found.append(Program("storage", (*parts, "storage"), early=True))
        found += [Program(name, (*parts, name)) for name in ("kms", "coprocessors")]
    # granian ends its own workers in order; a signal to the whole group would look to it like crashes.
    web = (sys.executable, "-m", "relayer_site.web")
    found.append(Program("web", web, role="web", stop_group=False, environment={"API_PORT": str(api_port)}))
    found.append(Program("watchdog", (*manage, "relayer_watchdog"), stop_seconds=15))
    found.append(Program("listener", (*manage, "relayer_listener")))
    return found


def kept_port(path: Path, configured: str, address: str = "127.0.0.1") -> int:
    """The API's port: from the environment, else the one kept in `path`, else a free one, which is kept from then on.

    A kept port that something else has taken meanwhile is replaced. Raises StackError for what is no port.
    """
    if configured.strip():
        return _port(configured, "API_PORT")
    kept = _port(path.read_text(), str(path)) if path.exists() else 0
    port = kept if kept and is_free(kept, address) else free_port(address)
    path.write_text(f"{port}\n")
    return port


def _port(text: str, source: str) -> int:
    if not (text.strip().isascii() and text.strip().isdigit() and len(text.strip()) <= 5 and int(text) < 1 << 16):
        raise StackError(f"{source} is no port: {text.strip()[:20]!r}")
    return int(text)


def configuration(var: Path, root: Path, wanted: Sequence[Program]) -> str:
    """The text of supervisord.conf."""
    logs = var / "log"
    sections = [
        "[unix_http_server]",
        f"file={_value(str(socket_path(var)))}",
        "chmod=0700",
        "[rpcinterface:supervisor]",
        "supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface",
        "[supervisorctl]",
        f"serverurl=unix://{_value(str(socket_path(var)))}",
        "[supervisord]",
        "nodaemon=true",
        "silent=true",
        f"directory={_value(str(root))}",
        f"logfile={_value(str(logs / 'supervisord.log'))}",
        f"pidfile={_value(str(var / 'supervisor' / 'supervisord.pid'))}",
        f"childlogdir={_value(str(logs))}",
    ]
    if os.geteuid() == 0:
        sections.append("user=root")  # said on purpose: without it supervisord complains about being root
    for program in wanted:
        sections += _program(var, program)
    return "\n".join(sections) + "\n"


def socket_path(var: Path) -> Path:
    """Where supervisord listens for supervisorctl: under `var` when the path is short enough for a socket."""
    path = var / "supervisor" / "control.sock"
    if len(os.fsencode(path)) <= 90:
        return path
    return Path(tempfile.gettempdir()) / f"relayer-{sha256(os.fsencode(var)).hexdigest()[:12]}.sock"


def _program(var: Path, program: Program) -> list[str]:
    metrics = str(var / "metrics" / program.name)
    line = lifeline.command(*program.command, number=program.on_supervisor_death, empty=metrics)
    environment = {"RELAYER_ROLE": program.role, "PROMETHEUS_MULTIPROC_DIR": metrics, **program.environment}
    group = "true" if program.stop_group else "false"
    return [
        f"[program:{program.name}]",
        f"command={_value(shlex.join(line))}",
        "environment=" + ",".join(f'{key}="{_value(value)}"' for key, value in environment.items()),
        f"autostart={'true' if program.early else 'false'}",
        "autorestart=true",
        "startsecs=1",
        "startretries=1000000",
        f"stopwaitsecs={program.stop_seconds}",
        f"stopasgroup={group}",
        "killasgroup=true",
        "redirect_stderr=true",
        f"stdout_logfile={_value(str(var / 'log' / (program.name + '.log')))}",
        "stdout_logfile_maxbytes=20MB",
        "stdout_logfile_backups=2",
    ]


def _value(text: str) -> str:
    return text.replace("%", "%%")


class Supervisor:
    """supervisord as a child of this process, tied to it."""

    def __init__(self, var: Path, root: Path, wanted: Sequence[Program]) -> None:
        self._var, self._root = var, root
        self._wanted = list(wanted)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Write the configuration and start supervisord, and with it the early programs."""
        home = self._var / "supervisor"
        for directory in (home, self._var / "log", self._var / "metrics"):
            directory.mkdir(parents=True, exist_ok=True)
        path = home / "supervisord.conf"
        path.write_text(configuration(self._var, self._root, self._wanted))
        shutil.rmtree(self._var / "metrics", ignore_errors=True)
        socket_path(self._var).unlink(missing_ok=True)
        program = str(Path(sys.executable).with_name("supervisord"))
        self._process = subprocess.Popen(
            lifeline.command(program, "-n", "-c", str(path)),
            stdin=subprocess.DEVNULL,
            cwd=self._root,
            # Ctrl-C in a terminal goes to the whole foreground group; we pass it on ourselves, in order.
            start_new_session=True,
        )

    def start_web(self) -> None:
        """Start the web server, which had to wait for migrations and contracts; alone, so that it has the machine to itself."""
        proxy = self._proxy()
        self._until(lambda: _answers(proxy), 20, "supervisord does not answer")
        proxy.supervisor.startProcess("web", False)

    def start_rest(self) -> None:
        """Start every program that does not run yet."""
        supervisor = self._proxy().supervisor
        for program in self._wanted:
            if not program.early and program.name != "web":
                supervisor.startProcess(program.name, False)

    def wait_serving(self, port: int, timeout: float) -> None:
        """Wait until the API answers. Raises StackError."""
        self._until(lambda: _is_live(port), timeout, f"the API does not answer on port {port}, see var/log/web.log")

    def ended(self) -> bool:
        """Whether supervisord has ended."""
        return self._process is not None and self._process.poll() is not None

    def stop(self) -> None:
        """Stop every program, then supervisord."""
        if self._process is None or self._process.poll() is not None:
            return
        try:
            self._proxy().supervisor.stopAllProcesses(
                True
            )  # all at once; at its own end supervisord stops one after the other
        except (OSError, http.client.HTTPException, xmlrpc.client.Fault):
            log.debug("supervisord does not answer", extra={"action": "stack_stop"})
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _proxy(self) -> Any:
        from supervisor.xmlrpc import SupervisorTransport

        transport = SupervisorTransport(None, None, serverurl=f"unix://{socket_path(self._var)}")
        return xmlrpc.client.ServerProxy("http://127.0.0.1", transport=transport)

    def _until(self, condition: Callable[[], bool], timeout: float, what: str) -> None:
        deadline = monotonic() + timeout
        while not condition():
            if self.ended():
                raise StackError(f"supervisord has ended, see {self._var / 'log' / 'supervisord.log'}")
            if monotonic() >= deadline:
                raise StackError(what)
            sleep(0.05)


def _answers(proxy: Any) -> bool:
    try:
        return bool(proxy.supervisor.getState()["statename"] == "RUNNING")
    except (OSError, http.client.HTTPException):
        return False


def _is_live(port: int) -> bool:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=2)) as connection:
        try:
            connection.request("GET", "/liveness")
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
