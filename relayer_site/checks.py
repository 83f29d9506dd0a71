"""System checks over the settings: orders of durations that the design relies on, and what production must not forget.

`manage.py check` runs the errors (relayer.E0xx), `manage.py check --deploy` the warnings (relayer.W0xx) too.
"""

from __future__ import annotations

import math
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register

from requests_app.config import config
from requests_app.errors import ConfigurationError
from workers.slots import OVERTIME_SECONDS
from workers.sqs_client import queue_address
from workers.webhooks import LEASE_SECONDS as DELIVERY_LEASE

Apps = Sequence[AppConfig] | None


@register("relayer")
def durations(app_configs: Apps, **options: Any) -> list[CheckMessage]:
    """Durations must be in order: each pair's first must be shorter than its second."""
    return list(_disordered())


def _disordered() -> Iterator[CheckMessage]:
    cluster = settings.Q_CLUSTER
    idle = _interval(settings.DATABASE_ROLE_OPTIONS["worker"]["idle_in_transaction_session_timeout"])
    pairs = (
        ("E001", "the q2 timeout", cluster["timeout"], "the q2 retry", cluster["retry"],
         "q2 would deliver a shift again while it runs"),
        ("E002", "SHIFT_SECONDS with overtime", settings.SHIFT_SECONDS + OVERTIME_SECONDS, "the q2 timeout",
         cluster["timeout"], "q2 would kill shifts that wait out an outage"),
        ("E003", "the workers' idle_in_transaction_session_timeout", idle, "LEASE_SECONDS", settings.LEASE_SECONDS,
         "a stopped holder would keep its lease row locked past the lease"),
        ("E004", "twice RPC_TIMEOUT_SECONDS", 2 * settings.RPC_TIMEOUT_SECONDS, "JOB_LEASE_SECONDS",
         settings.JOB_LEASE_SECONDS, "jobs would be leased again while their first worker waits for the chain"),
        ("E005", "BEAT_STALE_SECONDS", settings.BEAT_STALE_SECONDS, "LEASE_SECONDS", settings.LEASE_SECONDS,
         "leases would expire before the watchdog acts"),
        ("E006", "QUEUE_SAFETY_MARGIN", settings.QUEUE_SAFETY_MARGIN, "QUEUE_CAPACITY", settings.QUEUE_CAPACITY,
         "every request would be refused"),
        ("E012", "twice WEBHOOK_TIMEOUT_SECONDS", 2 * settings.WEBHOOK_TIMEOUT_SECONDS, "the lease of a delivery", DELIVERY_LEASE,
         "deliveries would be taken up again while their first worker waits for the receiver"),
    )  # fmt: skip
    for number, low_name, low, high_name, high, consequence in pairs:
        if low >= high:
            yield Error(
                f"{low_name} ({low:g}) must be less than {high_name} ({high:g}): {consequence}.",
                id=f"relayer.{number}",
            )


@register("relayer")
def values(app_configs: Apps, **options: Any) -> list[CheckMessage]:
    """Settings with a closed set of values, and positive durations."""
    found: list[CheckMessage] = []
    if settings.API_AUTH not in ("required", "optional"):
        found.append(Error(f"API_AUTH is {settings.API_AUTH!r}; it may be required or optional.", id="relayer.E007"))
    for name in dir(settings):
        value = getattr(settings, name) if name.endswith("_SECONDS") and not name.startswith("SECURE_") else 1
        if not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
            found.append(Error(f"{name} must be a positive number of seconds, not {value!r}.", id="relayer.E008"))
    bounds = {
        "GATEWAY_FINALITY_DEPTH": 0,
        "TRUSTED_PROXIES": 0,
        "DESK_LOGIN_FAILURES": 1,
        "DESK_LOGIN_FAILURES_PER_ADDRESS": 1,
    }
    for name, least in bounds.items():
        if getattr(settings, name) < least:
            found.append(Error(f"{name} must be at least {least}.", id="relayer.E013"))
    if settings.QUEUE_URL:
        try:
            queue_address(settings.QUEUE_URL)
        except ConfigurationError as error:
            found.append(Error(f"{error}.", id="relayer.E011"))
    return found


@register("relayer")
def connections_are_not_shared(app_configs: Apps, **options: Any) -> list[CheckMessage]:
    """Only the web role may pool: under a q2 cluster the pool's sockets would be shared by forked processes."""
    pooled = "pool" in settings.DATABASES["default"].get("OPTIONS", {})
    if pooled and settings.RELAYER_ROLE != "web":
        return [
            Error(
                "A database pool is on outside the web role; forked processes would share its sockets.",
                id="relayer.E009",
            )
        ]
    return []


@register("relayer")
def metrics_directory(app_configs: Apps, **options: Any) -> list[CheckMessage]:
    """The directory of the shared counters must be writable before the first of them is made."""
    directory = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    if not directory:
        return []
    try:
        with tempfile.TemporaryFile(dir=directory):
            return []
    except OSError as error:
        return [Error(f"PROMETHEUS_MULTIPROC_DIR {directory} is not writable: {error.strerror}.", id="relayer.E010")]


@register(Tags.security, deploy=True)
def ready_for_production(app_configs: Apps, **options: Any) -> list[CheckMessage]:
    """What runs well on a laptop and must not reach production unnoticed."""
    found: list[CheckMessage] = []
    try:
        chains = config()
    except ConfigurationError as error:
        found.append(Warning(f"The chains are not configured: {error}.", id="relayer.W001"))
    else:
        urls = (*chains.gateway.rpc_urls, *(host.url for host in chains.host_chains.values()))
        if not all(re.match(r"https?://[^/]", url) for url in urls):
            found.append(Warning("An RPC endpoint is not an http or https URL with a host.", id="relayer.W006"))
        if not chains.gateway.signer_keys:
            found.append(Warning("No GATEWAY_SIGNER_KEYS: nothing will be sent.", id="relayer.W002"))
    if not settings.DATABASE_URL:
        found.append(Warning("No DATABASE_URL: the embedded PostgreSQL serves one machine only.", id="relayer.W003"))
    if settings.API_AUTH != "required":
        found.append(Warning("API_AUTH is not required: requests without a key are served.", id="relayer.W004"))
    if settings.RELAYER_DEPLOYMENT.exists():
        found.append(
            Warning(f"Chains and keys come from the devnet's file {settings.RELAYER_DEPLOYMENT}.", id="relayer.W005")
        )
    return found


def _interval(text: str) -> float:
    """Seconds of a PostgreSQL duration such as 5s or 200ms."""
    return float(text.removesuffix("ms")) / 1000 if text.endswith("ms") else float(text.removesuffix("s"))
