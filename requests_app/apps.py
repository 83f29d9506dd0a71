"""Django application configuration of the domain."""

from __future__ import annotations

from django.apps import AppConfig


class RequestsAppConfig(AppConfig):
    """Requests, queue, leases, signing and envelopes."""

    name = "requests_app"
    verbose_name = "Relayer"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Keep the desk's roles in step with the tables: the only signal, because migrate has no other end."""
        from django.db.models.signals import post_migrate

        from requests_app.roles import sync_roles

        post_migrate.connect(sync_roles, dispatch_uid="requests_app.sync_roles")
