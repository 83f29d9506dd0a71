"""JSON log lines with secrets removed.

One line a record: time (UTC, milliseconds), level, logger, message, action, request_id when a web request is being
served, then whatever the caller passed in ``extra``. Redaction works on values that are known to be secret (signer
keys, the Django secret, API keys), on names that say so (signature, authorization, ...), and on shapes (URLs keep
scheme and host only; hex longer than a hash is a signature, a share or a signed transaction and is cut).
"""

from __future__ import annotations

import json
import logging
import re
import traceback
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import orjson

current_request_id: ContextVar[str | None] = ContextVar("relayer_request_id", default=None)

REDACTED = "[redacted]"
_SECRET_NAME = re.compile(
    r"(?i)(^|[_\-.])(private_?key|api_?key|x-api-key|secret(_key)?|password|passwd|token|authorization|cookie|signature"
    r"|signatures|raw_tx|database_url|signer_keys?)$"
)
_SECRET_ASSIGNMENT = re.compile(
    r"(?i)(x-api-key|authorization|private[_ ]?key|api[_ ]?key|password|signature)([\"']?\s*[:=]\s*[\"']?)"
    r"((?:bearer\s+)?[^\s\"',;}]+)"
)
_URL = re.compile(r"(?i)\b(?:https?|wss?|postgres(?:ql)?|redis|sqs)://[^\s\"'<>]+")
_LONG_HEX = re.compile(r"(?i)\b(0x)?[0-9a-f]{66,}\b")
_RESERVED = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


def _url_without_secrets(match: re.Match[str]) -> str:
    try:
        parts = urlsplit(match.group(0))
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return REDACTED
    return f"{parts.scheme}://{parts.hostname or ''}{port}/..."


@lru_cache(maxsize=1024)
def _is_secret_name(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None


def _hex_stub(match: re.Match[str]) -> str:
    text = match.group(0)
    return f"{text[:10]}...({len(text.removeprefix('0x')) // 2} bytes)"


class Redactor:
    """Removes secrets from text and from nested values.

    ``secrets`` are exact texts that must never appear (with or without their 0x prefix); texts shorter than eight
    characters are ignored because replacing them would mangle every line.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        bare = {secret.lower().removeprefix("0x") for secret in secrets if len(secret) >= 8}
        alternatives = sorted((re.escape(secret) for secret in bare), key=len, reverse=True)
        self._known = re.compile(rf"(?i)(?:0x)?(?:{'|'.join(alternatives)})") if alternatives else None

    def text(self, value: str) -> str:
        """Return ``value`` with known secrets, key assignments, URL details and long hex removed."""
        if self._known is not None:
            value = self._known.sub(REDACTED, value)
        if "://" in value:
            value = _URL.sub(_url_without_secrets, value)
        if ":" in value or "=" in value:
            value = _SECRET_ASSIGNMENT.sub(rf"\1\2{REDACTED}", value)
        return _LONG_HEX.sub(_hex_stub, value) if len(value) >= 66 else value

    def value(self, name: str, value: Any) -> Any:
        """Return a JSON-ready copy of ``value``; everything under a secret ``name`` becomes a placeholder."""
        if _is_secret_name(name):
            return REDACTED
        if value is None or isinstance(value, bool | float):
            return value
        if isinstance(value, int):
            # JSON numbers above 2**53 are not safe for readers; wei amounts and uint256 ids go out as text.
            return value if -(2**53) < value < 2**53 else str(value)
        if isinstance(value, bytes | bytearray | memoryview):
            return self.text("0x" + bytes(value).hex())
        if isinstance(value, Mapping):
            return {str(key): self.value(str(key), item) for key, item in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self.value("", item) for item in value]
        return self.text(str(value))


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON through a :class:`Redactor`."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        super().__init__()
        self._redactor = Redactor(secrets)

    def format(self, record: logging.LogRecord) -> str:
        redactor = self._redactor
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redactor.text(record.getMessage()),
        }
        request_id = current_request_id.get()
        if request_id is not None:
            line["request_id"] = request_id
        for name, value in record.__dict__.items():
            if name not in _RESERVED and name != "request":  # django.request attaches the whole request
                line[name] = redactor.value(name, value)
        if record.exc_info and record.exc_info[1] is not None:
            line["exception"] = redactor.text("".join(traceback.format_exception(record.exc_info[1])))
        try:
            return orjson.dumps(line).decode()
        except (
            TypeError
        ):  # a lone surrogate, as Python's own JSON reader lets through: the line must not be lost for it
            return json.dumps(line, separators=(",", ":"), default=str)


def logging_config(level: str = "INFO", secrets: Iterable[str] = ()) -> dict[str, Any]:
    """Return the ``LOGGING`` setting: JSON on standard error, secrets removed, third-party noise held down."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"json": {"()": "relayer_site.logging.JsonFormatter", "secrets": sorted(set(secrets))}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
        "root": {"handlers": ["stderr"], "level": "WARNING"},
        "loggers": {
            "relayer": {"level": level},
            "django": {"handlers": [], "level": "WARNING", "propagate": True},
            # 4xx are in the exchange line already; 5xx come with their traceback from here
            "django.request": {"handlers": [], "level": "ERROR", "propagate": True},
            "django.server": {"handlers": [], "level": "WARNING", "propagate": True},
            "django-q": {"handlers": [], "level": "INFO", "propagate": True},
        },
    }
