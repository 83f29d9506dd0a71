"""What tests install from the package registries, once for every var directory that tests use.

`python -m tests.installing NAME ...` installs what is missing of it. A test module that needs some says so in INSTALLS, and a run that has
selected such a module starts that program beside its first tests: whole systems take a while before anybody needs more than their chain.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from workers.devnet.toolchain import anvil_binary, find_node, install_packages

ROOT = Path(__file__).resolve().parent.parent
SDK = ROOT / "tests" / "sdk"
FUZZ = ROOT / "tests" / "fuzz"


def tools() -> Path:
    """The `node` directory of every var directory of tests: the devnet's programs, and the published clients."""
    return Path(os.environ.get("RELAYER_STACK_VAR", ROOT / "var" / "stack")) / "node"


def share_tools(var: Path) -> None:
    """Whoever works in this var directory finds what is installed, or installs it for all."""
    shared, link = tools(), var / "node"
    for directory in (shared, var):
        directory.mkdir(parents=True, exist_ok=True)
    if not link.exists():
        link.symlink_to(shared.resolve())


def install_anvil() -> Path:
    """The devnet's node. Under the common path: a var directory that is gone tomorrow must not be on record."""
    return anvil_binary(tools().parent)


def relayer_sdk() -> Path:
    """Where @zama-fhe/relayer-sdk 0.4.3 is installed."""
    return _packages(tools() / "relayer-sdk-0.4.3", SDK)


def fhevm_sdk() -> Path:
    """Where @fhevm/sdk 1.0.0-alpha.5 is installed."""
    return _packages(tools() / "fhevm-sdk-1.0.0-alpha.5", SDK / "fhevm")


def schemathesis() -> Path:
    """schemathesis of the pinned version in an environment of its own (RELAYER_FUZZ_VENV)."""
    home, wanted = Path(os.environ.get("RELAYER_FUZZ_VENV", ROOT / "var" / "fuzz")), FUZZ / "requirements.txt"
    with _missing(home, wanted) as missing:
        if missing:
            subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
            pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            subprocess.run([*pip, "--require-hashes", "-r", str(wanted)], check=True)
    return home / "bin" / "schemathesis"


INSTALLERS: Mapping[str, Callable[[], Path]] = {
    one.__name__: one for one in (install_anvil, relayer_sdk, fhevm_sdk, schemathesis)
}


def _packages(home: Path, source: Path) -> Path:
    with _missing(home, source / "package-lock.json") as missing:
        if missing:
            for name in ("package.json", "package-lock.json"):
                shutil.copy(source / name, home)
            install_packages(find_node(), home)
    return home


@contextmanager
def _missing(home: Path, wanted: Path) -> Iterator[bool]:
    """Whether a directory lacks what the file asks for; nobody else looks or installs meanwhile. It is complete after the block."""
    home.mkdir(parents=True, exist_ok=True)
    digest, stamp = hashlib.sha256(wanted.read_bytes()).hexdigest(), home / ".installed"
    with home.with_name(home.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        missing = not (stamp.exists() and stamp.read_text() == digest)
        yield missing
        if missing:
            stamp.write_text(digest)


class Beforehand:
    """The program above beside a test run: whoever is earlier than it waits for it, or installs what it has not come to."""

    def __init__(self, modules: Iterable[Any]) -> None:
        wanted = {name for module in modules for name in getattr(module, "INSTALLS", ())}
        names = [name for name in INSTALLERS if name in wanted]
        self._process = (
            subprocess.Popen(
                [sys.executable, "-m", "tests.installing", *names],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            if names
            else None
        )

    def end(self) -> None:
        """It has long ended when a whole run has."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()


if __name__ == "__main__":
    os.nice(10)  # what the run does now is more urgent
    for name in sys.argv[1:]:
        INSTALLERS[name]()
