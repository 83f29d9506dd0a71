"""The Django application of the moving parts."""

from __future__ import annotations

from django.apps import AppConfig


class WorkersConfig(AppConfig):
    """Processes, shifts and chain access. No models: state lives in requests_app."""

    name = "workers"
    label = "workers"
    verbose_name = "Workers"
