"""Counters and histograms of the domain, by the names of fhevm_http 15.5 and fhevm_internals 9.1.

Where PROMETHEUS_MULTIPROC_DIR is set they live in files, which the scrape of `relayer_site.metrics` adds up, those of the
workers of this machine too. Label values come from closed lists.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Final

from prometheus_client import Counter, Histogram

from requests_app.states import DeliveryVerb, IntentState, Kind, Status

LABELS: Final[dict[Kind, str]] = {kind: kind.name.lower() for kind in Kind}
_DATABASE: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0)
_STATE: Final = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
_ETA: Final = (1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 20.0, 40.0, 80.0, 160.0, 300.0)

query_seconds = Histogram(
    "relayer_db_query_duration_seconds", "Time of one statement, by its table or topic", ("table",), buckets=_DATABASE
)
query_errors = Counter("relayer_db_errors_total", "Statements that failed, by their table or topic", ("table",))
status_seconds = Histogram(
    "relayer_request_status_duration_seconds",
    "How long a request stayed in a state that it has left",
    ("req_type", "previous_status"),
    buckets=_STATE,
)
raw_eta_seconds = Histogram(
    "relayer_retry_after_raw_eta_seconds", "Retry-After of POSTs before margin and bounds", ("req_type",), buckets=_ETA
)
prechecks = Counter(
    "relayer_user_decrypt_signature_precheck_total",
    "Signature checks of v3 user decrypts: accepted, rejected, host_call_failed, too_many",
    ("outcome",),
)
spare_shares = Histogram(
    "relayer_user_decrypt_spare_shares",
    "Shares beyond the threshold in an answer of a user decrypt",
    buckets=(0, 1, 2, 3, 4, 6, 8, 12),
)
request_cache = Counter(
    "relayer_request_cache_total",
    "POSTs that met a live row with their content (hit) or not (miss)",
    ("req_type", "result"),
)
invariant_violations = Counter(
    "relayer_invariant_violations_total",
    "Rows that broke an invariant of the books when they were looked at",
    ("invariant",),
)
DELIVERY_OUTCOMES: Final[dict[DeliveryVerb, str]] = {
    DeliveryVerb.DELIVER: "delivered",
    DeliveryVerb.POSTPONE: "postponed",
    DeliveryVerb.GIVE_UP: "failed",
    DeliveryVerb.EXPIRE: "failed",
}
desk_logins = Counter(
    "relayer_desk_logins_total", "Tries to log in to the desk: succeeded, failed, refused", ("outcome",)
)
webhook_deliveries = Counter(
    "relayer_webhook_deliveries_total", "Attempts to deliver to webhooks, by what they came to", ("outcome",)
)


@lru_cache(maxsize=256)
def _query(table: str) -> Histogram:
    """The series of a table, remembered: the library takes a lock and builds a tuple of texts at each look-up."""
    return query_seconds.labels(table)


@contextmanager
def timed_query(table: str) -> Iterator[None]:
    """Time one statement."""
    started = time.perf_counter()
    try:
        yield
    except Exception:
        query_errors.labels(table).inc()
        raise
    finally:
        _query(table).observe(time.perf_counter() - started)


@lru_cache(maxsize=64)
def _status(kind: Kind, status: str) -> Histogram:
    known = IntentState(status).value if kind is Kind.PAYMENT else Status(status).value
    return status_seconds.labels(LABELS[kind], known)


def observe_status(kind: Kind, previous: str, seconds: float) -> None:
    """A request left `previous` after so many seconds."""
    _status(kind, previous).observe(max(0.0, seconds))


def observe_deliveries(counts: Mapping[DeliveryVerb, int]) -> None:
    """Deliveries of webhooks, by what happened to them."""
    for verb, number in counts.items():
        if number:
            webhook_deliveries.labels(DELIVERY_OUTCOMES[verb]).inc(number)
