"""Gauges of payments: where they stand, how long, and how the chain compares with the books."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from requests_app.overview import Overview


def payment_metrics(now: Overview) -> Iterator[Metric]:
    """Yield the payments' metrics of the present picture."""
    counts = GaugeMetricFamily("relayer_payment_count", "Payments by state", labels=("state",))
    for state, rows in now.payment_counts().items():
        counts.add_metric((state.value,), rows)
    oldest = GaugeMetricFamily(
        "relayer_payment_oldest_seconds", "Age in its state of the oldest waiting payment", labels=("state",)
    )
    for row in now.payments:
        oldest.add_metric((row.state,), row.oldest_seconds)
    lag = GaugeMetricFamily(
        "relayer_recon_lag_blocks", "Sealed blocks whose payments are not reconciled yet", labels=("source",)
    )
    for source, blocks in {(row.source, row.lag_blocks) for row in now.reconciled}:
        lag.add_metric((source,), blocks)
    findings = GaugeMetricFamily("relayer_recon_findings", "Findings of the reconciliation so far", labels=("kind",))
    totals: dict[str, int] = {}
    for one in now.reconciled:
        if one.kind is not None:
            totals[one.kind] = totals.get(one.kind, 0) + (one.findings or 0)
    for kind, number in totals.items():
        findings.add_metric((kind,), number)
    yield from (counts, oldest, lag, findings)
