"""Prometheus: exchange counters of all web workers, and gauges read from the database at scrape time.

Counters live in files shared by the worker processes (PROMETHEUS_MULTIPROC_DIR, set before Python starts), so any
worker's answer holds the sum. Under the supervisor each program has its own folder below RELAYER_VAR/metrics, and all of them are
added up: a scrape of the web server shows the workers of this machine too. The gauges come from `relayer_site.metrics_sql`. Label values are taken from closed
lists only: no address, id or raw path ever becomes a label (style_and_ecosystem B.6; names of fhevm_http 15.5).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Final, TypeVar

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe
from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

ENDPOINTS: Final = frozenset(
    f"/{name}"
    for name in [
        "input-proof",
        "public-decrypt",
        "user-decrypt",
        "delegated-user-decrypt",
        "keyurl",
        "payment-intents",
        "envelopes",
        "usage",
        "requests",
        "webhooks",
    ]
)
OPERATIONS: Final = frozenset({"/liveness", "/healthz", "/version", "/metrics", "/docs", "/openapi.json"})
VERSIONS: Final = frozenset({"v1", "v2", "v3"})
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
UNKNOWN: Final = "unknown"
OTHER: Final = "other"
SDK_NAME: Final = "@zama-fhe/relayer-sdk"
SDK_VERSIONS: Final = frozenset({"0.4", "0.5"})
SECONDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
Metric = TypeVar("Metric", Counter, Histogram)
_TRIES: Final = 3
_MAJOR_MINOR = re.compile(r"(\d{1,3}\.\d{1,3})(?:[.\-+].*)?")

# A creation time a series doubles what is scraped and tells nothing that the counters do not.
disable_created_metrics()  # type: ignore[no-untyped-call]

requests_total = Counter(
    "relayer_http_requests_total",
    "HTTP requests received",
    ("endpoint", "method", "version", "relayer_sdk_name", "relayer_sdk_version"),
)
responses_total = Counter(
    "relayer_http_responses_total", "HTTP responses sent", ("endpoint", "method", "version", "status")
)
request_seconds = Histogram(
    "relayer_http_request_duration_seconds",
    "Time from the first middleware to the response",
    ("endpoint", "method", "version"),
    buckets=SECONDS,
)


def endpoint_of(path: str, method: str) -> tuple[str, str]:
    """Return the (endpoint, version) labels of a path; everything not on the lists is ``other``.

    A GET on the delegated route counts as ``/user-decrypt``: both read the same rows.
    """
    parts = path.split("/", 3)
    if len(parts) >= 3 and parts[1] in VERSIONS:
        endpoint = f"/{parts[2]}"
        if endpoint in ENDPOINTS:
            if endpoint == "/delegated-user-decrypt" and method != "POST":
                endpoint = "/user-decrypt"
            return endpoint, parts[1]
        return OTHER, parts[1]
    if path in OPERATIONS:
        return path, "none"
    return ("/admin" if path.startswith("/admin") else OTHER), "none"


def sdk_of(name: str, version: str) -> tuple[str, str]:
    """Return the SDK labels of the two zama-sdk headers, ``unknown`` for what is not on the lists."""
    if name != SDK_NAME:
        return UNKNOWN, UNKNOWN
    match = _MAJOR_MINOR.fullmatch(version)
    short = match.group(1) if match else UNKNOWN
    return SDK_NAME, short if short in SDK_VERSIONS else UNKNOWN


@lru_cache(maxsize=4096)
def _child(metric: Metric, *labels: str) -> Metric:
    """`metric.labels(...)`, remembered: the library takes a lock and builds a tuple of texts at each look-up."""
    return metric.labels(*labels)


def observe_exchange(request: HttpRequest, status: int, seconds: float) -> None:
    """Count one finished exchange."""
    method = request.method if request.method in METHODS else OTHER
    endpoint, version = endpoint_of(request.path, method)
    sdk = sdk_of(request.META.get("HTTP_ZAMA_SDK_NAME", ""), request.META.get("HTTP_ZAMA_SDK_VERSION", ""))
    _child(requests_total, endpoint, method, version, *sdk).inc()
    _child(responses_total, endpoint, method, version, str(status)).inc()
    _child(request_seconds, endpoint, method, version).observe(seconds)


class MachineCollector(Collector):
    """The counters of every process that writes to `folder`, or to its sisters under RELAYER_VAR/metrics."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterable[Family]:
        """All files added up, families as they are. A program that starts anew removes its files: the list is read again then."""
        for _ in range(_TRIES):
            try:
                merged: Iterable[Family] = MultiProcessCollector.merge(self._files(), accumulate=True)  # type: ignore[no-untyped-call]
            except FileNotFoundError:
                continue
            return merged
        return []

    def _files(self) -> list[str]:
        together = self._folder.parent == Path(settings.RELAYER_VAR) / "metrics"
        found = self._folder.parent.glob("*/*.db") if together else self._folder.glob("*.db")
        return [str(path) for path in found if path.stat().st_size]


def scrape_registry(database: Collector) -> CollectorRegistry:
    """Build the registry of one scrape: the counters of every process plus the gauges of the database."""
    registry = CollectorRegistry(auto_describe=False)
    if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        registry.register(MachineCollector(Path(os.environ["PROMETHEUS_MULTIPROC_DIR"])))
    else:
        registry.register(REGISTRY)
    registry.register(database)
    return registry


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Answer a scrape with the text exposition format."""
    from relayer_site.metrics_sql import DATABASE  # the counters above must not need the database layer

    return HttpResponse(generate_latest(scrape_registry(DATABASE)), content_type=CONTENT_TYPE_LATEST)
