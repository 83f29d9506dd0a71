"""Django application configuration of the composition root: it carries the system checks."""

from __future__ import annotations

from django.apps import AppConfig


class RelayerSiteConfig(AppConfig):
    """Registers the checks over the settings."""

    name = "relayer_site"

    def ready(self) -> None:
        """Import for effect: the checks register themselves."""
        from relayer_site import checks  # noqa: F401
