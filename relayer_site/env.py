"""Environment of the process: typed readers, secrets from files, defaults from the devnet's deployment file.

Every setting NAME may also be given as NAME_FILE, a path whose content is the value (Docker and Kubernetes secrets).
"""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any

import environ

ROOT = Path(__file__).resolve().parent.parent

env = environ.FileAwareEnv()
if (ROOT / ".env").is_file():
    environ.Env.read_env(ROOT / ".env")

VAR = Path(os.environ.get("RELAYER_VAR") or ROOT / "var").expanduser().resolve()


def text(name: str, default: str = "") -> str:
    """One string, without surrounding white space (files end in a newline)."""
    return str(env.str(name, default=default)).strip()


def number(name: str, default: int) -> int:
    """One integer. Raises ImproperlyConfigured for anything else."""
    return int(env.int(name, default=default))


def seconds(name: str, default: float) -> float:
    """A duration in seconds."""
    return float(env.float(name, default=default))


def flag(name: str, default: bool) -> bool:
    """A switch: true/false, 1/0, yes/no, on/off."""
    return bool(env.bool(name, default=default))


def items(name: str, default: list[str]) -> list[str]:
    """A list, separated by commas or white space."""
    raw = text(name)
    return raw.replace(",", " ").split() if raw else default


def document(name: str, default: Any) -> Any:
    """A JSON value."""
    raw = text(name)
    return json.loads(raw) if raw else default


def deployment(path: Path) -> dict[str, Any]:
    """The deployment file written by `relayer_devnet deploy`, or an empty dictionary when there is none."""
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    return content if isinstance(content, dict) else {}


def kept_secret(path: Path) -> str:
    """A secret made once and kept in `path` (mode 0600), for installations that configure none.

    Several processes may start at once: the first one to link the file wins, the others read it.
    """
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as handle:
        handle.write(secrets.token_urlsafe(50))
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
    return path.read_text().strip()
