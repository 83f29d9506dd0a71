"""Routes for operations; included at the root."""

from __future__ import annotations

from django.urls import path

from relayer_site import health, metrics

urlpatterns = [
    path("liveness", health.liveness, name="liveness"),
    path("healthz", health.healthz, name="healthz"),
    path("version", health.version, name="version"),
    path("metrics", metrics.metrics, name="metrics"),
]
