"""How long a client should wait before it asks again: whole seconds for the Retry-After header (fhevm_http 11).

Depths come from SQL with the row; the parameters are runtime settings. They only feed this header: what is really sent is
limited by signer windows and endpoint budgets (design 5.3.5).

Deviations, on purpose: `receipt_received` looks up the back-off table with the time really spent in that state (by the
database's clock), where upstream always passes 0; and a request in review answers the largest value.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from requests_app import runtime
from requests_app.errors import ConfigurationError
from requests_app.states import Kind, Status
from requests_app.store.session import web_connection

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
    input_proof_tps: int = 20
    user_decrypt_tps: int = 20
    public_decrypt_tps: int = 20
    readiness_concurrency: int = 250
    rate_limited_seconds: int = 4

    def __post_init__(self) -> None:
        if not 0 < self.min_seconds <= self.max_seconds:
            raise ConfigurationError("Retry-After: min_seconds must be positive and not above max_seconds")
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

    def tx_wait_ms(self, kind: Kind, size: int) -> int:
        """Until `size` transactions of the kind have been sent."""
        rate = {
            Kind.INPUT_PROOF: self.input_proof_tps,
            Kind.USER_DECRYPT: self.user_decrypt_tps,
            Kind.PUBLIC_DECRYPT: self.public_decrypt_tps,
        }[kind]
        return math.ceil(size / rate * 1000) if rate else _UNBOUNDED_MS

    def readiness_wait_ms(self, size: int) -> int:
        """Until `size` requests have been checked, in whole batches."""
        if self.readiness_concurrency == 0:
            return _UNBOUNDED_MS
        return math.ceil(size / self.readiness_concurrency) * self.readiness_check_seconds * 1000

    def submit_raw_ms(self, kind: Kind, readiness_size: int, tx_size: int) -> int:
        """The estimate behind a POST's header, without margin and bounds."""
        raw = self.tx_wait_ms(kind, tx_size) + self.processing_ms(kind) + self.tx_confirmation_ms
        if kind is not Kind.INPUT_PROOF:
            # Even with nothing waiting, nominal readiness is one check; ceil(0 / c) * R is 0 and P covers it.
            raw += self.readiness_wait_ms(readiness_size)
        return raw

    def after_submit(self, kind: Kind, readiness_size: int, tx_size: int) -> int:
        """Seconds for a POST's 202, and for a GET of a queued request."""
        return self.finish(self.submit_raw_ms(kind, readiness_size, tx_size))

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


# The last parameters read and the pace made of them: `runtime.values` gives the same object until it has read anew.
_made: tuple[runtime.Values, Pace] | None = None


def pace() -> Pace:
    """The pace by the runtime settings as this process knows them now."""
    global _made
    values = runtime.values(web_connection)
    known = _made
    if known is None or known[0] is not values:
        known = _made = (values, pace_of(values))
    return known[1]


def pace_of(values: runtime.Values) -> Pace:
    """The pace of a set of runtime settings."""
    return Pace(
        min_seconds=values["retry_after_min_seconds"],
        max_seconds=values["retry_after_max_seconds"],
        safety_margin=values["retry_after_safety_margin"],
        readiness_check_seconds=values["nominal_readiness_check_seconds"],
        input_proof_processing_seconds=values["nominal_input_proof_processing_seconds"],
        user_decrypt_processing_seconds=values["nominal_user_decrypt_processing_seconds"],
        public_decrypt_processing_seconds=values["nominal_public_decrypt_processing_seconds"],
        tx_confirmation_ms=values["nominal_tx_confirmation_ms"],
        backoff=tuple((elapsed, seconds) for elapsed, seconds in values["retry_after_backoff"]),
        input_proof_tps=values["input_proof_throttler_tps"],
        user_decrypt_tps=values["user_decrypt_throttler_tps"],
        public_decrypt_tps=values["public_decrypt_throttler_tps"],
        readiness_concurrency=values["readiness_check_concurrency"],
        rate_limited_seconds=values["api_retry_after_seconds"],
    )
