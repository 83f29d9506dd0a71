"""Cases that wait for a person."""

from __future__ import annotations

from enum import StrEnum

from django.db import models
from django.db.models import Q

from requests_app.fields import stamped, text_choices
from requests_app.models.commands import Target
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
    DEEP_REORG = "deep_reorg"
    AUTHORIZATION_WINDOW_CLOSED = "authorization_window_closed"
    AMOUNT_MISMATCH = "amount_mismatch"
    WRONG_PARTY = "wrong_party"
    REVERTED_FINAL = "reverted_final"
    PAID_TWICE = "paid_twice"
    UNEXPECTED_PAYMENT = "unexpected_payment"


class ReviewCase(models.Model):
    """A subject in needs_review, or a halted source: one open case each, with the evidence found when it stopped."""

    kind = models.SmallIntegerField(choices=[*KIND_CHOICES, (Target.SOURCE.value, "source")])
    subject_id = models.BigIntegerField()
    reason_code = models.TextField(choices=text_choices(ReasonCode))
    evidence = models.JSONField(default=dict)
    status = models.TextField(choices=[("open", "open"), ("closed", "closed")], db_default="open")
    opened_at = stamped()
    closed_at = models.DateTimeField(null=True)
    outcome = models.TextField(null=True)
    version = models.IntegerField(db_default=1)  # what a reviewer's page was drawn from; raised by each decision

    class Meta:
        db_table = "review_case"
        verbose_name = "review case"
        constraints = [
            models.UniqueConstraint(
                fields=["kind", "subject_id"], condition=Q(status="open"), name="review_case_one_open"
            )
        ]
        indexes = [
            # the queue of open cases, oldest first; the archive of closed ones; all
            models.Index(fields=["status", "opened_at", "id"], name="review_case_status"),
            models.Index(fields=["opened_at", "id"], name="review_case_opened"),
            # the cases of a request
            models.Index(fields=["kind", "subject_id"], name="review_case_subject"),
        ]

    def __str__(self) -> str:
        return f"case {self.pk}"


class ReviewAction(StrEnum):
    """What a reviewer may decide (reference queue_settle 4.9)."""

    RESUME = "resume"  # broadcast the stored bytes again
    REPLACE = "replace"  # the same call and nonce with higher fees, up to a ceiling the reviewer names
    CANCEL_NONCE = "cancel_nonce"  # spend the nonce on nothing
    RESEND = "resend"  # on a new nonce, when the old one is proven dead
    ATTACH = "attach"  # name the transaction that carries the request
    MARK_SENT = "mark_sent"  # name the transaction that carries the payment
    SETTLE = "settle"  # by hand: the payment's money has moved
    FAIL = "fail"
    ACKNOWLEDGE = "acknowledge"  # the row is final already: the reviewer has seen it


class DecisionState(StrEnum):
    """How far a decision is."""

    AWAITING_SECOND = "awaiting_second"
    COMMANDED = "commanded"  # the command exists, in the same transaction
    DONE = "done"  # consumed, whatever the outcome
    WITHDRAWN = "withdrawn"  # by the first person, or the second one refused, or the case closed by itself


class ReviewDecision(models.Model):
    """One decision about a case, and the command that it became. A case has one open decision at most."""

    case = models.ForeignKey(ReviewCase, on_delete=models.CASCADE)
    seq = models.IntegerField()
    action = models.TextField(choices=text_choices(ReviewAction))
    parameters = models.JSONField(default=dict)
    reason = models.TextField()
    state = models.TextField(choices=text_choices(DecisionState))
    decided_by = models.TextField()
    decided_at = stamped()
    second_by = models.TextField(null=True)
    second_at = models.DateTimeField(null=True)
    command_id = models.TextField(null=True, unique=True)
    withdrawn_by = models.TextField(null=True)
    withdrawn_at = models.DateTimeField(null=True)
    withdrawn_reason = models.TextField(null=True)

    class Meta:
        db_table = "review_decision"
        verbose_name = "decision"
        constraints = [
            models.UniqueConstraint(fields=["case", "seq"], name="review_decision_seq"),
            models.UniqueConstraint(
                fields=["case"],
                condition=Q(state__in=[DecisionState.AWAITING_SECOND.value, DecisionState.COMMANDED.value]),
                name="review_decision_one_open",
            ),
            models.CheckConstraint(
                condition=Q(second_by__isnull=True) | ~Q(second_by=models.F("decided_by")),
                name="review_decision_two_persons",
            ),
        ]

    def __str__(self) -> str:
        return f"decision {self.pk}"
