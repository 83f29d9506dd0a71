"""Faults for single requests: a call fails when its parameters hold the request's own bytes (a handle, a ciphertext).

Many scenarios can so run at once before one node, each with its own faults.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson

from tests.faults.proxy import FaultProxy


@dataclass
class Aim:
    """Calls of `method` whose parameters hold all `marks` (hex without 0x) get `error`; the first `times`, or every one.

    `silence`: the connection ends instead, without an answer to anything that was asked with them.
    """

    method: str
    marks: tuple[str, ...]
    error: dict[str, Any] = field(default_factory=dict)
    times: int | None = None
    silence: bool = False
    hits: int = 0

    def meets(self, call: dict[str, Any]) -> bool:
        if call["method"] != self.method or (self.times is not None and self.hits >= self.times):
            return False
        text = orjson.dumps(call["params"]).decode().lower()
        return all(mark in text for mark in self.marks)


class AimedProxy(FaultProxy):
    """A fault proxy with aimed errors beside its rules. Aimed calls never reach the node."""

    def __init__(self, target: str) -> None:
        self._aims: list[Aim] = []
        self._aims_lock = threading.Lock()
        super().__init__(target)

    @contextmanager
    def aimed(self, aim: Aim) -> Iterator[Aim]:
        """The aim in force for one block."""
        with self._aims_lock:
            self._aims.append(aim)
        try:
            yield aim
        finally:
            with self._aims_lock:
                self._aims.remove(aim)

    def _forward(self, upstream: http.client.HTTPConnection, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
        hit = {place: error for place, call in enumerate(calls) if (error := self._error(call)) is not None}
        rest = [call for place, call in enumerate(calls) if place not in hit]
        answered = iter(super()._forward(upstream, rest) if rest else ())
        return [
            {"jsonrpc": "2.0", "id": call["id"], "error": hit[place]} if place in hit else next(answered)
            for place, call in enumerate(calls)
        ]

    def _error(self, call: dict[str, Any]) -> dict[str, Any] | None:
        with self._aims_lock:
            for aim in self._aims:
                if aim.meets(call):
                    aim.hits += 1
                    if aim.silence:
                        raise ConnectionAbortedError
                    return aim.error
        return None


def internal(message: str = "Internal error") -> dict[str, Any]:
    """An error object that says nothing about the transaction."""
    return {"code": -32603, "message": message}


def reverted(data: str) -> dict[str, Any]:
    """A revert with these bytes (0x text) as geth reports it."""
    return {"code": 3, "message": "execution reverted", "data": data}
