"""Webhooks: where clients want to be told of the end of their requests and payments, and the outbox of what they are told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from requests_app.fields import RandomUUID, one_of, stamped, text_choices
from requests_app.models.accounts import Account
from requests_app.models.requests import KIND_CHOICES
from requests_app.states import DeliveryState, WebhookState

if TYPE_CHECKING:
    _Texts = ArrayField[Any, Any]
    _Numbers = ArrayField[Any, Any]
else:
    _Texts = _Numbers = ArrayField


class Webhook(models.Model):
    """A client's receiver. `events` of `kinds` are told to `url`, signed with `secret`.

    `secret` (32 bytes) must sign, so it is kept as it is, and shown once; after a rotation `former_secret` signs too until
    `former_until`. A removed one keeps its row, without secrets, until its deliveries have gone.
    """

    public_id = models.TextField(unique=True)
    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="+")
    url = models.TextField()
    description = models.TextField(db_default="")
    events = _Texts(models.TextField())
    kinds = _Numbers(models.SmallIntegerField(choices=KIND_CHOICES))
    secret = models.BinaryField(null=True)
    former_secret = models.BinaryField(null=True)
    former_until = models.DateTimeField(null=True)
    state = models.TextField(choices=text_choices(WebhookState), db_default=WebhookState.ENABLED.value)
    created_at = stamped()
    updated_at = stamped()

    class Meta:
        db_table = "webhook"
        constraints = [
            one_of("state", [state.value for state in WebhookState], "webhook_state_known"),
            models.CheckConstraint(
                condition=Q(secret__isnull=True, former_secret__isnull=True, state=WebhookState.REMOVED.value)
                | (Q(secret__isnull=False) & ~Q(state=WebhookState.REMOVED.value)),
                name="webhook_secret_unless_removed",
            ),
        ]
        indexes = [
            # the outbox triggers, and the list of a client
            models.Index(
                fields=["account", "id"], condition=~Q(state=WebhookState.REMOVED.value), name="webhook_account"
            ),
        ]

    def __str__(self) -> str:
        return self.public_id


class WebhookDelivery(models.Model):
    """One event for one webhook: written in the transaction of the change that it tells of, sent at least once.

    `public_id` is the `webhook-id` of every attempt, by which a receiver knows that it has had it. `subject` is the id the client
    knows (a job id, or that of a payment). Without foreign keys, as `webhook_id` stands for no lock on the way of a request's end.
    """

    public_id = models.UUIDField(unique=True, db_default=RandomUUID())
    webhook_id = models.BigIntegerField()
    event = models.TextField()
    kind = models.SmallIntegerField(choices=KIND_CHOICES, null=True)  # null: a test
    subject_id = models.BigIntegerField(null=True)
    subject = models.TextField(null=True)
    occurred_at = models.DateTimeField()
    state = models.TextField(choices=text_choices(DeliveryState), db_default=DeliveryState.WAITING.value)
    attempts = models.IntegerField(db_default=0)
    next_attempt_at = stamped()
    leased_by = models.TextField(null=True)
    last_attempt_at = models.DateTimeField(null=True)
    last_status = models.SmallIntegerField(null=True)
    last_error = models.TextField(null=True)
    delivered_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    created_at = stamped()

    class Meta:
        db_table = "webhook_delivery"
        verbose_name = "webhook delivery"
        verbose_name_plural = "webhook deliveries"
        constraints = [
            one_of("state", [state.value for state in DeliveryState], "webhook_delivery_state_known"),
            models.CheckConstraint(
                condition=Q(ended_at__isnull=True, state=DeliveryState.WAITING.value)
                | (Q(ended_at__isnull=False) & ~Q(state=DeliveryState.WAITING.value)),
                name="webhook_delivery_ended_or_waiting",
            ),
            # a change is told of once, whoever saw it; by subject first, for the pages of requests and payments
            models.UniqueConstraint(
                fields=["kind", "subject_id", "webhook_id", "event", "occurred_at"], name="webhook_delivery_once"
            ),
        ]
        indexes = [
            # the claim: what is due of each webhook
            models.Index(
                fields=["webhook_id", "next_attempt_at"],
                condition=Q(state=DeliveryState.WAITING.value),
                name="webhook_delivery_due",
            ),
            # expiry, and the age of the oldest
            models.Index(
                fields=["created_at"], condition=Q(state=DeliveryState.WAITING.value), name="webhook_delivery_waiting"
            ),
            # retention, and figures of the last day
            models.Index(
                fields=["ended_at"], condition=~Q(state=DeliveryState.WAITING.value), name="webhook_delivery_ended"
            ),
            # what a webhook was told, newest first, by keyset
            models.Index(fields=["webhook_id", "-id"], name="webhook_delivery_log"),
        ]

    def __str__(self) -> str:
        return str(self.public_id)
