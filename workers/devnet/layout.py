"""Where the devnet keeps its files and which ports it uses. One devnet a `RELAYER_VAR` directory.

Ports are chosen free once and kept in `ports.json`, so that a second start serves the same addresses; the environment
(`DEVNET_GATEWAY_PORT`, `DEVNET_HOST_PORT`, `DEVNET_STORAGE_PORT`) wins.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from requests_app.sockets import free_port, is_free

ADDRESS: Final = "127.0.0.1"
GATEWAY_CHAIN_ID: Final = 654321
HOST_CHAIN_ID: Final = 8009
SERVICES: Final = ("gateway", "host", "storage")


@dataclass(frozen=True, slots=True)
class Ports:
    """TCP ports on 127.0.0.1."""

    gateway: int
    host: int
    storage: int

    @property
    def gateway_url(self) -> str:
        return f"http://{ADDRESS}:{self.gateway}"

    @property
    def host_url(self) -> str:
        return f"http://{ADDRESS}:{self.host}"

    @property
    def storage_url(self) -> str:
        """What the KMS context on chain names as storage; objects lie under `<url>/<prefix>/<kind>/<id>`."""
        return f"http://{ADDRESS}:{self.storage}/kms-public"


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths of one devnet."""

    var: Path

    @property
    def home(self) -> Path:
        return self.var / "devnet"

    @property
    def deployment(self) -> Path:
        configured = os.environ.get("RELAYER_DEPLOYMENT")
        return Path(configured) if configured else self.home / "deployment.json"

    def state(self, service: str) -> Path:
        """The file that anvil loads at its start and writes at its end."""
        return self.home / f"{service}-state.json"

    def cursor(self, bot: str) -> Path:
        return self.home / f"{bot}-cursor.json"

    @property
    def control(self) -> Path:
        """How the bots behave; see `workers.devnet.control`."""
        return self.home / "bots-control.json"

    def ports(self, renew: bool = False) -> Ports:
        """The kept ports; missing ones are chosen free and kept. `renew` replaces kept ones that are taken now.

        Only a start of the whole devnet may renew: afterwards "taken" means "our own service listens".
        """
        path = self.home / "ports.json"
        with self._lock():
            kept: dict[str, int] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
            chosen = {name: _port(name, kept.get(name), renew) for name in SERVICES}
            if chosen != kept:
                write_atomically(path, json.dumps(chosen))
        return Ports(**chosen)

    def kept(self) -> list[Path]:
        """What a reset forgets: both chains, the deployment, the bots' places and behaviour."""
        patterns = ("*-state.json", "*-cursor.json", "*-control.json")
        found = [path for pattern in patterns for path in sorted(self.home.glob(pattern))]
        return [*found, *(path for path in (self.deployment, self.home / "tmp") if path.exists())]

    def reset(self) -> None:
        """Forgets what is kept. The database must be reset with it."""
        for path in self.kept():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        self.home.mkdir(parents=True, exist_ok=True)
        with (self.home / "ports.lock").open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield


def write_atomically(path: Path, text: str) -> None:
    """Readers see the old file or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def _port(name: str, kept: int | None, renew: bool) -> int:
    configured = os.environ.get(f"DEVNET_{name.upper()}_PORT")
    if configured:
        return int(configured)
    if kept and (not renew or is_free(kept, ADDRESS)):
        return kept
    return free_port(ADDRESS)
