"""How long a client should wait before it asks again: whole seconds for the Retry-After header (fhevm_http 11).

Deviation, on purpose: `receipt_received` looks up the back-off table with the time really spent in that state (by the
database's clock), where upstream always passes 0; and a request in review answers the largest value.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from django.conf import settings

from requests_app.errors import ConfigurationError
from requests_app.states import Kind, Status

_U32_MAX: Final = 2**32 - 1
_UNBOUNDED_MS: Final = 300_000  # a rate or concurrency of 0 never drains: the longest wait


@dataclass(frozen=True, slots=True)
class Pace:
    """The parameters of the formulas; times in the units of their names. Defaults are the contract's."""

    min_seconds: int = 1
    max_seconds: int = 300
    safety_margin: float = 0.2
    readiness_check_seconds: int = 4
    input_proof_processing_seconds: int = 2
    user_decrypt_processing_seconds: int = 6
    public_decrypt_processing_seconds: int = 6
    tx_confirmation_ms: int = 250
    backoff: tuple[tuple[int, int], ...] = ((0, 4), (60, 10), (120, 30), (300, 60), (900, 300))
    tx_per_second: int = 20
    readiness_concurrency: int = 250
    rate_limited_seconds: int = 4

    def __post_init__(self) -> None:
        if not 0 < self.min_seconds < self.max_seconds:
            raise ConfigurationError("Retry-After: min_seconds must be positive and below max_seconds")
        if not 0 <= self.safety_margin <= 1:
            raise ConfigurationError("Retry-After: safety_margin must lie between 0 and 1")
        thresholds = [elapsed for elapsed, _ in self.backoff]
        if not thresholds or thresholds != sorted(set(thresholds)):
            raise ConfigurationError("Retry-After: back-off thresholds must ascend")

    def processing_ms(self, kind: Kind) -> int:
        """The nominal time from the send to the answer."""
        seconds = {
            Kind.INPUT_PROOF: self.input_proof_processing_seconds,
            Kind.USER_DECRYPT: self.user_decrypt_processing_seconds,
            Kind.PUBLIC_DECRYPT: self.public_decrypt_processing_seconds,
        }[kind]
        return seconds * 1000

    def finish(self, raw_ms: int) -> int:
        """Add the margin, round up to seconds, clamp. The margin is a float32 widened to double, as upstream."""
        margin = struct.unpack("f", struct.pack("f", self.safety_margin))[0]
        padded = min(math.ceil(min(raw_ms, _U32_MAX) * (1.0 + margin)), _U32_MAX)
        return self.clamp(math.ceil(padded / 1000))

    def clamp(self, seconds: int) -> int:
        """Within the configured bounds."""
        return max(self.min_seconds, min(seconds, self.max_seconds))

    def tx_wait_ms(self, size: int) -> int:
        """Until `size` transactions have been sent."""
        if self.tx_per_second == 0:
            return _UNBOUNDED_MS
        return math.ceil(size / self.tx_per_second * 1000)

    def readiness_wait_ms(self, size: int) -> int:
        """Until `size` requests have been checked, in whole batches."""
        if self.readiness_concurrency == 0:
            return _UNBOUNDED_MS
        return math.ceil(size / self.readiness_concurrency) * self.readiness_check_seconds * 1000

    def after_submit(self, kind: Kind, readiness_size: int, tx_size: int) -> int:
        """Seconds for a POST's 202, and for a GET of a queued request."""
        raw = self.tx_wait_ms(tx_size) + self.processing_ms(kind) + self.tx_confirmation_ms
        if kind is not Kind.INPUT_PROOF:
            # Even with nothing waiting, nominal readiness is one check; ceil(0 / c) * R is 0 and P covers it.
            raw += self.readiness_wait_ms(readiness_size)
        return self.finish(raw)

    def after_poll(
        self, kind: Kind, status: Status, readiness_size: int, tx_size: int, elapsed_seconds: float
    ) -> int | None:
        """Seconds for a GET's 202; None for a final state, which carries no header."""
        if status is Status.QUEUED:
            return self.after_submit(kind, readiness_size, tx_size)
        if status is Status.PROCESSING:
            return self.finish(self.processing_ms(kind) + self.tx_confirmation_ms)
        if status is Status.TX_IN_FLIGHT:
            return self.finish(self.processing_ms(kind))
        if status is Status.RECEIPT_RECEIVED:
            return self.clamp(_step(self.backoff, elapsed_seconds))
        return self.max_seconds if status is Status.NEEDS_REVIEW else None


def _step(backoff: Sequence[tuple[int, int]], elapsed_seconds: float) -> int:
    """The interval of the last threshold that has passed; the first one before that."""
    interval = backoff[0][1]
    for threshold, seconds in backoff:
        if elapsed_seconds >= threshold:
            interval = seconds
    return interval


@lru_cache(maxsize=1)
def pace() -> Pace:
    """The pace of this process, from the setting RETRY_AFTER (a dict of Pace's fields; absent means defaults)."""
    given: dict[str, Any] = dict(getattr(settings, "RETRY_AFTER", {}) or {})
    if "backoff" in given:
        given["backoff"] = tuple((int(elapsed), int(seconds)) for elapsed, seconds in given["backoff"])
    return Pace(**given)
