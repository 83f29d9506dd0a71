"""Django application configuration of the domain."""

from __future__ import annotations

from django.apps import AppConfig


class RequestsAppConfig(AppConfig):
    """Requests, queue, leases, signing and envelopes."""

    name = "requests_app"
    verbose_name = "Relayer"
    default_auto_field = "django.db.models.BigAutoField"
