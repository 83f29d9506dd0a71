"""Gauges of the envelope log: bands, misses, lag, publications (reference/envelopes.md 6.9)."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from requests_app.store.retirement import figures, staged_figures
from requests_app.store.session import web_connection


def envelope_metrics() -> Iterator[Metric]:
    """Yield the log's metrics, read now."""
    conn = web_connection()
    bands = GaugeMetricFamily("relayer_envelope_bands", "Live bands of an originator", labels=("originator",))
    lag = GaugeMetricFamily(
        "relayer_envelope_lag_positions",
        "Positions that the slowest consumer is behind the head",
        labels=("originator",),
    )
    missing = CounterMetricFamily(
        "relayer_envelope_missing_bands", "Inserts that met a missing band", labels=("originator",)
    )
    for row in figures(conn):
        bands.add_metric([row.name], row.bands)
        missing.add_metric([row.name], row.misses)
        if row.lag is not None:
            lag.add_metric([row.name], max(0, row.lag))
    yield from (bands, lag, missing)
    staged = staged_figures(conn)
    waiting = GaugeMetricFamily("relayer_staged_envelopes", "Publications not in the log yet", labels=("state",))
    waiting.add_metric(["waiting"], staged.waiting)
    waiting.add_metric(["parked"], staged.parked)
    oldest = GaugeMetricFamily("relayer_staged_oldest_seconds", "Age of the oldest publication that waits")
    oldest.add_metric([], staged.oldest_seconds)
    yield from (waiting, oldest)
