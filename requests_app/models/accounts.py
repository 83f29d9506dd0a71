"""Clients and their keys."""

from __future__ import annotations

from enum import StrEnum

from django.db import models

from requests_app.fields import one_of, stamped, text_choices


class AccountStatus(StrEnum):
    """Whether the client may write."""

    ACTIVE = "active"
    DISABLED = "disabled"


class Account(models.Model):
    """A client of the relayer: owner of requests, payer of usage."""

    name = models.TextField(unique=True)
    status = models.TextField(choices=text_choices(AccountStatus), db_default=AccountStatus.ACTIVE.value)
    # Its keys may change runtime settings over HTTP (`/admin/config`).
    operator = models.BooleanField(db_default=False)
    created_at = stamped()

    class Meta:
        db_table = "client_account"
        verbose_name = "account"
        constraints = [one_of("status", [s.value for s in AccountStatus], "client_account_status_known")]

    def __str__(self) -> str:
        return self.name


class ApiKey(models.Model):
    """A key of a client. Only its SHA-256 is kept; the prefix tells keys apart on screen."""

    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="keys")
    prefix = models.TextField(unique=True)
    digest = models.BinaryField(unique=True)
    created_at = stamped()
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "api_key"
        verbose_name = "API key"

    def __str__(self) -> str:
        return f"{self.prefix}…"
