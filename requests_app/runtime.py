"""Runtime settings: parameters that operators change while everything runs (design 5.3.5, 5.3.6; fhevm_http 11, 15.4).

The registry is data: name, type, range, default, meaning. What differs from the defaults is in the database; every process
reads it again after FRESH_SECONDS. A stored value that this release does not accept is ignored, with a log line.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from threading import Lock
from types import MappingProxyType
from typing import Any, Final

import psycopg
from django.conf import settings
from django.db import DatabaseError, InterfaceError

from requests_app.errors import RelayerError
from requests_app.store import runtime as store
from requests_app.store.session import transaction

FRESH_SECONDS: Final = 2.0
RETRY_SECONDS: Final = 0.5
REASON_LENGTH: Final = 500
TABLE_ROWS: Final = 50
LONGEST_TEXT: Final = 1500  # also bounds the nesting, which the standard library's parser follows in C
DEFAULT: Final = "default"
_HOUR: Final = 3600
_log = logging.getLogger("relayer.runtime")

Values = Mapping[str, Any]


class SettingRefused(RelayerError):
    """The name, the value or the reason is not acceptable; the text is what `/admin/config` answers."""


class Type(StrEnum):
    """Kinds of values: whole numbers, fractions, and the back-off table [[elapsed s, retry s], ...]."""

    U32 = "u32"
    F32 = "f32"
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter. `setting` names what gives its default; `http`: `/admin/config` offers it too."""

    name: str
    type: Type
    low: float
    high: float
    setting: str
    default: Any
    meaning: str
    http: bool

    @property
    def pascal(self) -> str:
        """The name as `GET /admin/config` prints it."""
        return "".join(part.capitalize() for part in self.name.split("_"))

    def initial(self) -> Any:
        """The value without a change in the database: Django's setting, else the contract's default.

        `RETRY_AFTER.<key>` is an entry of that dictionary. Raises SettingRefused when it is out of range.
        """
        name, _, key = self.setting.partition(".")
        given = settings.RETRY_AFTER.get(key) if key else getattr(settings, name, None)
        if given is None:
            return self.default
        return self.check(float(given) if self.type is Type.F32 else given)

    def check(self, value: Any) -> Any:
        """The value in its stored form. Raises SettingRefused with the texts of fhevm_http 15.4."""
        if self.type is Type.TABLE:
            return _table(self, value)
        found = {int: "u32", float: "f32"}.get(type(value), type(value).__name__)
        if found == "u32" and not 0 <= value < 1 << 32:
            found = "f32"  # as the original reads it: what is no u32 is a fraction
        if found != self.type.value:
            raise SettingRefused(f"Type mismatch: expected {self.type}, got {found}")
        if self.type is Type.F32 and not self.low <= value <= self.high:
            raise SettingRefused(f"Value {value} is out of range [{self.low}, {self.high}]")
        if value < self.low:
            raise SettingRefused(f"{self.name} must be greater than {int(self.low) - 1}")
        if value > self.high:
            raise SettingRefused(f"{self.name} must be less than or equal to {int(self.high)}")
        return value


def _table(parameter: Parameter, value: Any) -> list[list[int]]:
    problem = SettingRefused(
        f"{parameter.name} must be [[elapsed seconds, retry seconds], ...] with ascending first members"
    )
    if not isinstance(value, list | tuple) or not 0 < len(value) <= TABLE_ROWS:
        raise problem
    rows = []
    for row in value:
        if not isinstance(row, list | tuple) or len(row) != 2 or any(type(number) is not int for number in row):
            raise problem
        if not 0 <= row[0] <= 365 * 86_400 or not parameter.low <= row[1] <= parameter.high:
            raise problem
        rows.append(list(row))
    thresholds = [row[0] for row in rows]
    if thresholds != sorted(set(thresholds)):
        raise problem
    return rows


def _u32(name: str, low: int, high: int, setting: str, default: int, meaning: str, *, http: bool = True) -> Parameter:
    return Parameter(name, Type.U32, low, high, setting, default, meaning, http)


_SENT: Final = "transactions a second that Retry-After assumes for"
_TIME: Final = "seconds from the send to the answer that Retry-After assumes for"
BACKOFF: Final = [[0, 4], [60, 10], [120, 30], [300, 60], [900, 300]]

# fmt: off
REGISTRY: Final[dict[str, Parameter]] = {parameter.name: parameter for parameter in (
    _u32("input_proof_throttler_tps", 1, 1000, "RETRY_AFTER.input_proof_tps", 20, f"{_SENT} input proofs"),
    _u32("user_decrypt_throttler_tps", 1, 1000, "RETRY_AFTER.user_decrypt_tps", 20, f"{_SENT} user decrypts"),
    _u32("public_decrypt_throttler_tps", 1, 1000, "RETRY_AFTER.public_decrypt_tps", 20, f"{_SENT} public decrypts"),
    _u32("nominal_readiness_check_seconds", 1, _HOUR, "RETRY_AFTER.readiness_check_seconds", 4,
         "seconds that Retry-After assumes for one round of readiness checks"),
    _u32("nominal_input_proof_processing_seconds", 1, _HOUR, "RETRY_AFTER.input_proof_processing_seconds", 2,
         f"{_TIME} input proofs"),
    _u32("nominal_user_decrypt_processing_seconds", 1, _HOUR, "RETRY_AFTER.user_decrypt_processing_seconds", 6,
         f"{_TIME} user decrypts"),
    _u32("nominal_public_decrypt_processing_seconds", 1, _HOUR, "RETRY_AFTER.public_decrypt_processing_seconds", 6,
         f"{_TIME} public decrypts"),
    _u32("nominal_tx_confirmation_ms", 1, 60_000, "RETRY_AFTER.tx_confirmation_ms", 250,
         "milliseconds that Retry-After assumes for the confirmation of a transaction"),
    _u32("retry_after_min_seconds", 1, _HOUR, "RETRY_AFTER.min_seconds", 1, "smallest Retry-After"),
    _u32("retry_after_max_seconds", 1, _HOUR, "RETRY_AFTER.max_seconds", 300, "largest Retry-After"),
    Parameter("retry_after_safety_margin", Type.F32, 0.0, 1.0, "RETRY_AFTER.safety_margin", 0.2,
              "share that Retry-After adds to every estimate", True),
    _u32("user_decrypt_additional_shares", 0, 100, "USER_DECRYPT_ADDITIONAL_SHARES", 0,
         "shares beyond the threshold that a completed user decrypt waits for; 0 = off"),
    _u32("user_decrypt_additional_shares_timeout_secs", 0, _HOUR, "USER_DECRYPT_ADDITIONAL_SHARES_TIMEOUT_SECS", 5,
         "seconds that it waits for them at most; 0 = off"),
    _u32("api_retry_after_seconds", 1, _HOUR, "RETRY_AFTER.rate_limited_seconds", 4, "Retry-After of a 429", http=False),
    _u32("readiness_check_concurrency", 0, 100_000, "RETRY_AFTER.readiness_concurrency", 250,
         "checks a round that Retry-After assumes; 0 = never drains", http=False),
    Parameter("retry_after_backoff", Type.TABLE, 1, _HOUR, "RETRY_AFTER.backoff", BACKOFF,
              "Retry-After while the answer of the gateway is awaited, by seconds waited", False),
    Parameter("readiness_interval_seconds", Type.F32, 0.1, float(_HOUR), "READINESS_INTERVAL_SECONDS", 3.0,
              "seconds between two readiness checks of one decrypt", False),
    _u32("readiness_checks_per_call", 1, 1000, "READINESS_CHECKS_PER_CALL", 200,
         "readiness checks in one request to the gateway", http=False),
    _u32("readiness_calls_per_interval", 1, 10_000, "READINESS_CALLS_PER_INTERVAL", 50,
         "requests to the gateway for repeated readiness checks in one interval, of one worker group", http=False),
)}
# fmt: on


def check_together(values: Values) -> None:
    """Rules over more than one parameter. Raises SettingRefused."""
    if values["retry_after_min_seconds"] > values["retry_after_max_seconds"]:
        raise SettingRefused("retry_after_min_seconds must not be greater than retry_after_max_seconds")


def defaults() -> dict[str, Any]:
    """Every parameter without the database."""
    return {parameter.name: parameter.initial() for parameter in REGISTRY.values()}


def effective(stored: Mapping[str, Any]) -> Values:
    """Defaults with what is stored; what this release does not accept is left out."""
    found = defaults()
    for name, value in stored.items():
        try:
            found[name] = REGISTRY[name].check(value)
        except (KeyError, SettingRefused) as error:
            _log.warning(
                "stored setting ignored", extra={"action": "setting_ignored", "setting": name, "error": str(error)}
            )
    return MappingProxyType(found)


class _Memory:
    """The values of this process, read again when they are no longer fresh."""

    def __init__(self) -> None:
        self._values: Values | None = None
        self._until = 0.0
        self._lock = Lock()

    def read(self, connection: Callable[[], psycopg.Connection[Any]]) -> Values:
        known = self._values
        if known is not None and (time.monotonic() < self._until or not self._lock.acquire(blocking=False)):
            return known  # fresh, or somebody else is reading at this moment
        if known is None:
            self._lock.acquire()
        try:
            known = self._values = effective(store.load_settings(connection()))
            self._until = time.monotonic() + FRESH_SECONDS
        except (psycopg.Error, DatabaseError, InterfaceError):  # Django wraps what its own connection cannot open
            if known is None:
                raise
            _log.warning("runtime settings not read; the last ones stay", extra={"action": "settings_not_read"})
            self._until = time.monotonic() + RETRY_SECONDS
        finally:
            self._lock.release()
        return known  # not what the field holds: another thread may have been told to forget it meanwhile

    def forget(self) -> None:
        self._values, self._until = None, 0.0


_memory = _Memory()
forget = _memory.forget


def values(connection: Callable[[], psycopg.Connection[Any]]) -> Values:
    """Every parameter, FRESH_SECONDS old at most while the database answers. The same object as long as nothing was read anew.

    `connection` is called only when the database is asked. Raises psycopg.Error when it does not answer the first time.
    """
    return _memory.read(connection)


def parse(name: str, text: str) -> Any:
    """A value as a person types it: None for `default`, otherwise a number or a table. Raises SettingRefused."""
    if text.strip() == DEFAULT:
        return None
    try:
        value = json.loads(text) if len(text) <= LONGEST_TEXT else None
    except ValueError:
        value = None
    if value is None:
        raise SettingRefused(f"{text[:100]!r} is neither a number nor JSON nor `{DEFAULT}`") from None
    parameter = REGISTRY.get(name)
    fraction = parameter is not None and parameter.type is Type.F32
    return float(value) if fraction and type(value) is int else value


@dataclass(frozen=True, slots=True)
class Changed:
    """A change: effective values before and after, and whether anything was written."""

    name: str
    before: Any
    after: Any
    written: bool


def change(
    conn: psycopg.Connection[Any],
    name: str,
    value: Any,
    *,
    by: str | Callable[[psycopg.Connection[Any]], str],
    reason: str,
    dry_run: bool = False,
) -> Changed:
    """Set a parameter, or take it back to its default with None, with its history row, in one transaction.

    `by` says who (`account:…`, `admin:…`, `shell:…`), or finds it out in the transaction, where it may refuse whoever may not do this any
    more. Raises SettingRefused, and what `by` raises.
    """
    parameter = REGISTRY.get(name)
    if parameter is None:
        raise SettingRefused(f"Unknown configuration parameter: {name}")
    after = None if value is None else parameter.check(value)
    with transaction(conn, force_rollback=dry_run):
        author = by if isinstance(by, str) else by(conn)
        store.lock_settings(conn)
        stored = store.load_settings(conn)
        old, before = effective(stored), stored.get(name)
        new = effective(
            {**{key: kept for key, kept in stored.items() if key != name}, **({} if after is None else {name: after})}
        )
        check_together(new)
        if before != after:
            store.store_change(conn, name, before, after, author, reason.strip()[:REASON_LENGTH])
    if before != after and not dry_run:
        forget()
        _log.info("runtime setting changed", extra={"action": "setting_changed", "setting": name, "by": author})
    return Changed(name, old[name], new[name], before != after and not dry_run)
