"""Gauges that are read from the database when Prometheus scrapes."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import psycopg
from django.db import Error as DatabaseError
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from relayer_site.metrics_envelopes import envelope_metrics
from relayer_site.metrics_ledger import ledger_metrics
from relayer_site.metrics_payments import payment_metrics
from relayer_site.metrics_webhooks import webhook_metrics
from requests_app.models.commands import subject_name
from requests_app.overview import Overview, overview
from requests_app.states import Kind

_log = logging.getLogger("relayer.metrics")
# The wire contract's names of our two queues (fhevm_http 15.5): decrypts wait for readiness, everything waits to be sent.
_QUEUE_TYPES = {
    ("ready", Kind.USER_DECRYPT): "user_decrypt_readiness_throttler",
    ("ready", Kind.PUBLIC_DECRYPT): "public_decrypt_readiness_throttler",
    ("send", Kind.USER_DECRYPT): "user_decrypt_tx_throttler",
    ("send", Kind.PUBLIC_DECRYPT): "public_decrypt_tx_throttler",
    ("send", Kind.INPUT_PROOF): "input_proof_tx_throttler",
}


class DatabaseCollector(Collector):
    """Turns the overview into gauges. With the database away it reports only that, and the scrape still succeeds."""

    def __init__(self, read: Callable[[], Overview] = overview) -> None:
        self._read = read

    def describe(self) -> Iterable[Metric]:
        """Nothing ahead of time: describing must not ask the database."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield every gauge of the present picture."""
        reachable = GaugeMetricFamily("relayer_database_up", "1 when the scrape could read the database")
        try:
            now, log = self._read(), [*envelope_metrics(), *ledger_metrics(), *webhook_metrics()]
        except (DatabaseError, psycopg.Error) as error:
            _log.warning("metrics without database", extra={"action": "scrape_failed", "error": type(error).__name__})
            reachable.add_metric([], 0)
            yield reachable
            return
        reachable.add_metric([], 1)
        yield reachable
        yield from _requests(now)
        yield from payment_metrics(now)
        yield from _queues(now)
        yield from _workers(now)
        yield from _chain(now)
        yield from _signing(now)
        yield from _attention(now)
        yield from log


def _gauge(
    name: str, text: str, labels: tuple[str, ...], samples: Iterable[tuple[tuple[str, ...], float | None]]
) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, number in samples:
        if number is not None:
            family.add_metric(values, number)
    return family


def _requests(now: Overview) -> Iterator[Metric]:
    labels = ("req_type", "status")
    yield _gauge(
        "relayer_request_count",
        "Requests by kind and state",
        labels,
        [
            ((kind.name.lower(), status.value), rows)
            for kind, states in now.counts().items()
            for status, rows in states.items()
        ],
    )
    yield _gauge(
        "relayer_request_oldest_seconds",
        "Age in its state of the oldest waiting request",
        labels,
        [
            ((kind.name.lower(), status.value), age)
            for kind, states in now.oldest().items()
            for status, age in states.items()
        ],
    )
    yield _gauge(
        "relayer_request_overdue_count",
        "Waiting requests past their deadline",
        labels,
        [((Kind(row.kind).name.lower(), row.status), row.overdue) for row in now.live],
    )


def _queues(now: Overview) -> Iterator[Metric]:
    depth = {(row.queue, Kind(row.kind)): row.jobs for row in now.queues}
    yield _gauge(
        "relayer_queue_size_count",
        "Jobs by the wire contract's queue names",
        ("queue_type",),
        [((name,), depth.get(key, 0)) for key, name in _QUEUE_TYPES.items()],
    )
    labels = ("queue", "req_type")
    named = [((row.queue, Kind(row.kind).name.lower()), row) for row in now.queues]
    yield _gauge("relayer_queue_jobs", "Jobs in the queue", labels, [(key, row.jobs) for key, row in named])
    yield _gauge("relayer_queue_leased_jobs", "Jobs being worked on", labels, [(key, row.leased) for key, row in named])
    yield _gauge(
        "relayer_queue_visible_jobs", "Jobs that may be claimed", labels, [(key, row.visible) for key, row in named]
    )
    yield _gauge(
        "relayer_queue_oldest_visible_seconds",
        "How long the oldest claimable job has waited",
        labels,
        [(key, row.oldest_visible_seconds or 0.0) for key, row in named],
    )


def _workers(now: Overview) -> Iterator[Metric]:
    held = Counter(
        (row.resource.partition(":")[0], "live" if row.seconds_left > 0 else "expired") for row in now.leases
    )
    yield _gauge("relayer_leases", "Execution leases by resource type", ("resource_type", "state"), list(held.items()))
    oldest: dict[str, float] = {}
    for row in now.beats:
        group = row.resource.partition(":")[0]
        oldest[group] = max(oldest.get(group, 0.0), row.beat_age_seconds)
    yield _gauge(
        "relayer_worker_beat_oldest_seconds",
        "Age of the oldest heartbeat by resource type",
        ("resource_type",),
        [((group,), age) for group, age in oldest.items()],
    )


def _chain(now: Overview) -> Iterator[Metric]:
    rows = now.listeners
    labels = ("source",)
    yield _gauge(
        "relayer_listener_block", "Last block stored whole", labels, [((row.name,), row.block) for row in rows]
    )
    yield _gauge(
        "relayer_listener_cursor_age_seconds",
        "Time since the cursor moved",
        labels,
        [((row.name,), row.cursor_age_seconds) for row in rows],
    )
    yield _gauge(
        "relayer_listener_lag_blocks",
        "Blocks of the chain that are not stored yet, as of the last seal",
        labels,
        [((row.name,), row.lag_blocks) for row in rows],
    )
    yield _gauge(
        "relayer_listener_reorgs", "Reorganisations undone so far", labels, [((row.name,), row.reorgs) for row in rows]
    )
    yield _gauge(
        "relayer_listener_halted",
        "1 when the source is halted after a contradiction",
        labels,
        [((row.name,), 1 if row.halted else 0) for row in rows],
    )
    yield _gauge(
        "relayer_dead_envelopes",
        "Events that could not be applied and wait for a person",
        ("consumer",),
        [((row.consumer,), row.rows) for row in now.dead],
    )


def _signing(now: Overview) -> Iterator[Metric]:
    labels = ("signer", "chain_id")
    named = [((str(row.id), str(row.chain_id)), row) for row in now.signers]
    yield _gauge(
        "relayer_signer_nonce_distance",
        "Nonces given out that the chain has not consumed",
        labels,
        [(key, row.nonce_distance) for key, row in named],
    )
    yield _gauge(
        "relayer_signer_open_slots",
        "Nonces whose end is not known",
        labels,
        [(key, row.open_slots) for key, row in named],
    )
    yield _gauge(
        "relayer_signer_balance_native",
        "Native balance in whole units (1e18 wei)",
        labels,
        [(key, float(row.balance_wei) / 1e18 if row.balance_wei is not None else None) for key, row in named],
    )
    yield _gauge(
        "relayer_signer_fee_balance",
        "Fee tokens in whole units (1e18)",
        labels,
        [(key, float(row.fee_balance) / 1e18 if row.fee_balance is not None else None) for key, row in named],
    )
    yield _gauge(
        "relayer_signer_fee_allowance",
        "Fee tokens that the payment contract may take, in whole units (1e18)",
        labels,
        [(key, float(row.fee_allowance) / 1e18 if row.fee_allowance is not None else None) for key, row in named],
    )
    yield _gauge(
        "relayer_signer_active",
        "1 when the signer takes new work",
        labels,
        [(key, 1 if row.status == "active" else 0) for key, row in named],
    )
    yield _gauge(
        "relayer_transaction_pending_gauge",
        "Signed transactions whose fate is not known",
        ("transaction_status",),
        [((row.state,), row.rows) for row in now.attempts],
    )


def _attention(now: Overview) -> Iterator[Metric]:
    yield _gauge(
        "relayer_reviews_open",
        "Cases that wait for a person",
        ("req_type", "reason"),
        [((subject_name(row.kind), row.reason_code), row.rows) for row in now.reviews],
    )
    yield _gauge(
        "relayer_commands_waiting",
        "Commands not carried out yet",
        ("kind", "state"),
        [((row.kind, row.state), row.rows) for row in now.commands],
    )


DATABASE = DatabaseCollector()
