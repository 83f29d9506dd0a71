"""Gauges of webhooks: what waits, what was given up, and for how long what is due has waited for a worker."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from requests_app.store.session import web_connection
from requests_app.store.webhooks import webhook_figures


def webhook_metrics() -> Iterator[Metric]:
    """Yield the webhooks' metrics, read now. Counts go up to 10,000."""
    found = webhook_figures(web_connection())
    yield GaugeMetricFamily("relayer_webhooks", "Webhooks that are enabled", value=found.enabled)
    yield GaugeMetricFamily("relayer_webhook_waiting", "Deliveries that wait, for whatever reason", value=found.waiting)
    yield GaugeMetricFamily("relayer_webhook_failed", "Deliveries given up in the last day", value=found.failed)
    yield GaugeMetricFamily(
        "relayer_webhook_oldest_due_seconds",
        "How long the longest due delivery has waited for a worker",
        value=found.oldest_due_seconds,
    )
