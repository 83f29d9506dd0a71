"""A token bucket: how many calls a process may make at an endpoint, so that all processes together stay below its limit."""

from __future__ import annotations

import time
from collections.abc import Callable


class TokenBucket:
    """`rate` calls a second, saved up for at most `burst`. A rate of 0 sets no limit. Not thread-safe; never sleeps.

    More calls than are saved may be taken at once when any are left: the debt is worked off before the next ones.
    """

    def __init__(self, rate: float, burst: float | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, max(1.0, rate if burst is None else burst), clock
        self._saved, self._at = self._burst, clock()

    @property
    def ready_at(self) -> float:
        """The moment on the clock from which a call may be made."""
        if self._rate <= 0:
            return 0.0
        self._fill()
        return self._at if self._saved >= 1 else self._at + (1 - self._saved) / self._rate

    def take(self, calls: int) -> bool:
        """Spend `calls`; False, with nothing spent, when none is left."""
        if self._rate <= 0:
            return True
        self._fill()
        if self._saved < 1:
            return False
        self._saved -= calls
        return True

    def _fill(self) -> None:
        now = self._clock()
        self._saved = min(self._burst, self._saved + (now - self._at) * self._rate)
        self._at = now
