"""Django application configuration of the domain."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig


class RequestsAppConfig(AppConfig):
    """Requests, queue, leases, signing and envelopes."""

    name = "requests_app"
    verbose_name = "Relayer"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Keep the desk's roles and the default account in step with the tables: signals, because migrate has no other end."""
        from django.db.models.signals import post_migrate

        from requests_app.roles import sync_roles

        post_migrate.connect(sync_roles, dispatch_uid="requests_app.sync_roles")
        post_migrate.connect(_make_default_account, sender=self, dispatch_uid="requests_app.default_account")


def _make_default_account(**_: Any) -> None:
    from requests_app.clients import make_default_account
    from requests_app.store.session import web_connection

    make_default_account(web_connection())
