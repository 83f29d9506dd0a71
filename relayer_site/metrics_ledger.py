"""Gauges of the journal: how far it is, and what is held in it."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from requests_app.store.ledger import figures
from requests_app.store.session import web_connection


def ledger_metrics() -> Iterator[Metric]:
    """Yield the journal's metrics, read now."""
    now = figures(web_connection())
    head = GaugeMetricFamily("relayer_ledger_head_seq", "Number of the journal's last entry; it never falls")
    head.add_metric([], now.head)
    held = GaugeMetricFamily("relayer_ledger_open_holds", "Holds that are neither posted nor voided")
    held.add_metric([], now.open_holds)
    oldest = GaugeMetricFamily("relayer_ledger_oldest_hold_seconds", "Age of the oldest open hold")
    oldest.add_metric([], now.oldest_hold_seconds)
    yield from (head, held, oldest)
