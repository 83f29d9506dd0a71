"""Bounded waits on a condition, for tests that watch other processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")

SHORTEST_PAUSE, LONGEST_PAUSE, PAUSE_SHARE = 0.01, 0.1, 0.05


def wait_until(
    predicate: Callable[[], Value], timeout: float, what: str = "", *, longest_pause: float = LONGEST_PAUSE
) -> Value:
    """The first true value of `predicate`; AssertionError after `timeout` seconds.

    Asked every 10 ms at first, more rarely the longer it takes (a twentieth of the time so far, `longest_pause` at most): many conditions
    cost a connection to the database or an exchange over HTTP, and would take the processor from those who are waited for.
    """
    began = time.monotonic()
    while True:
        value = predicate()
        if value:
            return value
        taken = time.monotonic() - began
        if taken >= timeout:
            raise AssertionError(f"not within {timeout} s: {what or predicate}")
        time.sleep(min(longest_pause, max(SHORTEST_PAUSE, PAUSE_SHARE * taken)))
