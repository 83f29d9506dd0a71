"""Which program this is: name, version and the commit it was built from."""

from __future__ import annotations

import os
import subprocess
from functools import lru_cache
from pathlib import Path

DEFAULT_NAME = "gateway-relayer"
VERSION = "0.1.0"
_ROOT = Path(__file__).resolve().parent.parent


def application_name() -> str:
    """The deployment's name: APP_NAME, or the product's own."""
    return os.environ.get("APP_NAME") or DEFAULT_NAME


@lru_cache(maxsize=1)
def build() -> str:
    """The commit with ``-clean`` or ``-dirty``.

    A packaged release names its build in RELAYER_BUILD (an image has no .git). Without either, the parts that are
    unknown read ``no_git_hash`` and ``no_git_dirty``, as the wire contract has them (fhevm_http 15.3).
    """
    packaged = os.environ.get("RELAYER_BUILD")
    if packaged:
        return packaged
    commit = _git("rev-parse", "--short=12", "HEAD")
    if commit is None:
        return "no_git_hash-no_git_dirty"
    changes = _git("status", "--porcelain", "--untracked-files=no")
    if changes is None:
        return f"{commit}-no_git_dirty"
    return f"{commit}-{'dirty' if changes else 'clean'}"


def _git(*arguments: str) -> str | None:
    """Output of git in this checkout, or None when there is no git or no repository."""
    if not (_ROOT / ".git").exists():  # do not report the commit of a surrounding repository
        return None
    try:
        done = subprocess.run(
            ("git", "--no-optional-locks", *arguments),
            cwd=_ROOT,
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
