"""What can go wrong between us and a node, and the three shapes of an answer. No URL ever enters a text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from requests_app.errors import ForeignChain, RelayerError
from workers.chain.hexdata import MalformedHex, data

T = TypeVar("T")
TEXT_LIMIT = 500
_URL = re.compile(r"\b(?:https?|wss?)://[^\s\"'<>)]+", re.IGNORECASE)
_CREDENTIAL = re.compile(r"(?i)\b(api[_-]?key|token|secret|authorization)\b(\s*[=:]\s*)\S+")


def redact(text: str) -> str:
    """`text` without URLs and credentials (RPC URLs carry access keys), on one line, at most TEXT_LIMIT characters."""
    flat = " ".join(text.split())
    return _CREDENTIAL.sub(r"\1\2<redacted>", _URL.sub("<url>", flat))[:TEXT_LIMIT]


class RpcError(RelayerError):
    """The node answered the call with a JSON-RPC error object: it looked at the request and said no."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        self.code = code
        self.message = redact(message)
        self.data = data
        super().__init__(f"{self.message} (code {code})")

    @property
    def revert_data(self) -> bytes | None:
        """The ABI-encoded revert of a failed execution, wherever the node put it, or None."""
        return _find_revert(self.data, 0)


class RpcUnavailable(RelayerError):
    """No JSON-RPC answer came back. `sent` False: the request surely did not leave us; True: nobody knows."""

    def __init__(self, reason: str, *, sent: bool, answer_status: int | None = None) -> None:
        self.reason = redact(reason)
        self.sent = sent
        self.answer_status = answer_status
        super().__init__(self.reason)


class RpcRateLimited(RpcUnavailable):
    """The endpoint refused the request with HTTP 429 and did nothing with it."""

    def __init__(self, reason: str, retry_after: float | None) -> None:
        super().__init__(reason, sent=False, answer_status=429)
        self.retry_after = retry_after


class WrongChain(ForeignChain):
    """An endpoint serves another chain than the configured one."""

    def __init__(self, endpoint: str, expected: int, actual: int) -> None:
        self.endpoint, self.expected, self.actual = endpoint, expected, actual
        super().__init__(f"endpoint {endpoint} serves chain {actual}, configured is chain {expected}")


@dataclass(frozen=True, slots=True)
class Ok(Generic[T]):
    """The node's result."""

    value: T


@dataclass(frozen=True, slots=True)
class Failed:
    """The node's error object for this element."""

    error: RpcError


@dataclass(frozen=True, slots=True)
class Missing:
    """No usable answer for this element. `sent` as in RpcUnavailable."""

    reason: str
    sent: bool = True
    answer_status: int | None = None


Answer: TypeAlias = Ok[T] | Failed | Missing


def _find_revert(node: object, depth: int) -> bytes | None:
    """Revert bytes in `data`, "Reverted 0x..", or a nested {data: ..} / {originalError: {data: ..}}."""
    if isinstance(node, str):
        start = node.find("0x")
        try:
            found = data(node[start:]) if start >= 0 else b""
        except MalformedHex:
            return None
        return found if len(found) >= 4 else None
    if isinstance(node, Mapping) and depth < 4:
        for key in ("data", "originalError", "result", "cause"):
            found_below = _find_revert(node.get(key), depth + 1)
            if found_below is not None:
                return found_below
    return None
