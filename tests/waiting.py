"""Bounded waits on a condition, for tests that watch other processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")


def wait_until(predicate: Callable[[], Value], timeout: float, what: str = "") -> Value:
    """The first true value of `predicate`, asked every 10 ms; AssertionError after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {timeout} s: {what or predicate}")
        time.sleep(0.01)
