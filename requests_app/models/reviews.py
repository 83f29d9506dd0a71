"""Cases that wait for a person."""

from __future__ import annotations

from enum import StrEnum

from django.db import models
from django.db.models import Q

from requests_app.fields import stamped, text_choices
from requests_app.models.requests import KIND_CHOICES


class ReasonCode(StrEnum):
    """Why a row stopped. Each has its words in the reviewer's guide."""

    OUTCOME_UNKNOWN = "outcome_unknown"
    FOREIGN_NONCE = "foreign_nonce"
    FEE_CEILING = "fee_ceiling"
    SIGNER_BLOCKED = "signer_blocked"
    RECEIPT_VANISHED = "receipt_vanished"
    REFUSED_AFTER_SIGNING = "refused_after_signing"
    ENVELOPE_CONFLICT = "envelope_conflict"


class ReviewCase(models.Model):
    """A subject in needs_review: one open case each, with the evidence found when it stopped."""

    kind = models.SmallIntegerField(choices=KIND_CHOICES)
    subject_id = models.BigIntegerField()
    reason_code = models.TextField(choices=text_choices(ReasonCode))
    evidence = models.JSONField(default=dict)
    status = models.TextField(choices=[("open", "open"), ("closed", "closed")], db_default="open")
    opened_at = stamped()
    closed_at = models.DateTimeField(null=True)
    outcome = models.TextField(null=True)

    class Meta:
        db_table = "review_case"
        verbose_name = "review case"
        constraints = [
            models.UniqueConstraint(
                fields=["kind", "subject_id"], condition=Q(status="open"), name="review_case_one_open"
            )
        ]
        # the queue of open cases, oldest first
        indexes = [models.Index(fields=["opened_at"], condition=Q(status="open"), name="review_case_open")]

    def __str__(self) -> str:
        return f"case {self.pk}"
