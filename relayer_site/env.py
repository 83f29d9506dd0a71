"""Environment of the process: typed readers, secrets from files, defaults from the devnet's deployment file.

Every setting NAME may also be given as NAME_FILE, a path whose content is the value (Docker and Kubernetes secrets).
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import environ
from django.core.exceptions import ImproperlyConfigured

ROOT = Path(__file__).resolve().parent.parent

env = environ.FileAwareEnv()
if (ROOT / ".env").is_file():
    environ.Env.read_env(ROOT / ".env")

VAR = Path(os.environ.get("RELAYER_VAR") or ROOT / "var").expanduser().resolve()


_WORDS = {
    **dict.fromkeys(("true", "on", "ok", "y", "yes", "1"), True),
    **dict.fromkeys(("false", "off", "n", "no", "0", ""), False),
}


def text(name: str, default: str = "") -> str:
    """One string, without surrounding white space (files end in a newline)."""
    return str(env.str(name, default=default)).strip()


def number(name: str, default: int) -> int:
    """One integer. Raises ImproperlyConfigured for anything else."""
    return int(_read(name, "a whole number", lambda: env.int(name, default=default)))


def seconds(name: str, default: float) -> float:
    """A duration in seconds. Raises ImproperlyConfigured for anything that is no number."""
    return float(_read(name, "a number of seconds", lambda: env.float(name, default=default)))


def _read(name: str, what: str, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except ValueError:
        raise ImproperlyConfigured(f"{name} must be {what}") from None


def flag(name: str, default: bool) -> bool:
    """A switch: true/false, 1/0, yes/no, on/off; nothing is off. Raises ImproperlyConfigured: a misspelled switch must not be off."""
    word = str(env.str(name, default=str(default))).strip().lower()
    if word not in _WORDS:
        raise ImproperlyConfigured(f"{name} must be true or false")
    return _WORDS[word]


def items(name: str, default: list[str]) -> list[str]:
    """A list, separated by commas or white space."""
    raw = text(name)
    return raw.replace(",", " ").split() if raw else default


def document(name: str, default: Any) -> Any:
    """A JSON object or list, as the default is. Raises ImproperlyConfigured, without the text: it may hold a key."""
    raw = text(name)
    if not raw:
        return default
    try:
        found = json.loads(raw)
    except json.JSONDecodeError as error:
        raise ImproperlyConfigured(f"{name} is not JSON: {error.msg} at character {error.pos + 1}") from None
    if not isinstance(found, type(default)):
        wanted = "an object" if isinstance(default, dict) else "a list"
        raise ImproperlyConfigured(f"{name} must be {wanted} in JSON")
    return found


def entries(name: str, default: list[dict[str, Any]], required: tuple[str, ...]) -> list[dict[str, Any]]:
    """A JSON list of objects, each with the `required` members. Raises ImproperlyConfigured."""
    found: list[dict[str, Any]] = document(name, default)
    for place, entry in enumerate(found, 1):
        if not isinstance(entry, dict):
            raise ImproperlyConfigured(f"{name}: entry {place} is not an object")
        missing = [member for member in required if member not in entry]
        if missing:
            raise ImproperlyConfigured(f"{name}: entry {place} lacks {', '.join(missing)}")
    return found


def pairs(name: str) -> dict[str, str]:
    """NAME=VALUE entries, separated by commas or white space. Raises ImproperlyConfigured."""
    found = items(name, [])
    if not all("=" in entry for entry in found):
        raise ImproperlyConfigured(f"{name}: every entry must be KEY=VALUE")
    return dict(entry.split("=", 1) for entry in found)


def database_url(name: str) -> str:
    """The address of a PostgreSQL, or nothing. Raises ImproperlyConfigured, without the text: it holds a password."""
    raw = text(name)
    if raw and not re.match(r"(postgres|postgresql|psql|pgsql)://", raw):
        raise ImproperlyConfigured(
            f"{name} must be postgres://user:password@host:port/database (PostgreSQL 14 or newer)"
        )
    return raw


def deployment(path: Path) -> dict[str, Any]:
    """The deployment file written by `relayer_devnet deploy`, or an empty dictionary when there is none. Raises ImproperlyConfigured."""
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except ValueError:
        raise ImproperlyConfigured(f"{path} is not JSON") from None
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
