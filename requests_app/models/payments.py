"""Payment intents with their history, idempotency keys, and what the chain and the reconciliation say of them."""

from __future__ import annotations

from enum import StrEnum

from django.db import models
from django.db.models import Q

from requests_app.fields import WeiField, one_of, stamped, text_choices
from requests_app.models.accounts import Account
from requests_app.states import INTENT_ACTIVE, INTENT_FINAL, IntentActor, IntentState


class PaymentIntent(models.Model):
    """A payment from `payer` to `merchant` on behalf of a client. `id` is internal; `public_id` is the API's.

    `ref` is the PaymentRef of the terms (32 bytes), the EIP-3009 nonce of the authorization, and never changes; it commits to the exact
    texts of chain, token, payer, merchant and amount. `updated_at` is the time of the last transition and nothing else moves it.
    `tx_hash` is the transaction that is believed to be on chain: set in confirming and settled, empty while settling.
    """

    public_id = models.TextField(unique=True)
    ref = models.BinaryField(unique=True)
    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="+")
    chain = models.TextField()
    token = models.TextField()
    payer = models.TextField()
    merchant = models.TextField()
    amount = WeiField()
    authorization = models.JSONField(null=True)
    state = models.TextField(choices=text_choices(IntentState), db_default=IntentState.CREATED.value)
    version = models.IntegerField(db_default=1)
    tx_hash = models.BinaryField(null=True)
    state_reason = models.TextField(null=True)
    created_at = stamped()
    updated_at = stamped()
    expires_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "payment_intent"
        verbose_name = "payment"
        constraints = [
            one_of("state", [state.value for state in IntentState], "payment_intent_state_known"),
            models.CheckConstraint(condition=Q(amount__gt=0), name="payment_intent_amount_positive"),
            models.CheckConstraint(condition=Q(version__gte=1), name="payment_intent_version_positive"),
            models.CheckConstraint(
                condition=Q(tx_hash__isnull=False)
                | ~Q(state__in=[IntentState.CONFIRMING.value, IntentState.SETTLED.value]),
                name="payment_intent_hash_where_sent",
            ),
            models.CheckConstraint(
                condition=Q(tx_hash__isnull=True) | ~Q(state=IntentState.SETTLING.value),
                name="payment_intent_no_hash_while_settling",
            ),
            models.CheckConstraint(
                condition=Q(authorization__isnull=False)
                | Q(state__in=[IntentState.CREATED.value, IntentState.CANCELED.value]),
                name="payment_intent_authorized_has_signature",
            ),
        ]
        indexes = [
            # sweeps and the confirm duty: active intents by state and age
            models.Index(
                fields=["state", "updated_at"],
                condition=Q(state__in=sorted(state.value for state in INTENT_ACTIVE)),
                name="payment_intent_active",
            ),
            # figures and reconciliation: ended intents by the time of their end
            models.Index(
                fields=["updated_at"],
                condition=Q(state__in=sorted(state.value for state in INTENT_FINAL)),
                name="payment_intent_ended",
            ),
            # list of a client, newest first, by keyset
            models.Index(fields=["account", "-id"], name="payment_intent_account"),
            # search by transaction
            models.Index(fields=["tx_hash"], condition=Q(tx_hash__isnull=False), name="payment_intent_tx"),
        ]

    def __str__(self) -> str:
        return self.public_id


class IntentTransitionRow(models.Model):
    """One transition of an intent; `version` is the one it produced. Creation is version 1 with no from_state."""

    pk = models.CompositePrimaryKey("intent_id", "version")
    intent_id = models.BigIntegerField()
    version = models.IntegerField()
    from_state = models.TextField(null=True)
    to_state = models.TextField()
    actor = models.TextField(choices=text_choices(IntentActor))
    at = stamped()
    tx_hash = models.BinaryField(null=True)
    reason = models.TextField(null=True)
    by_user = models.TextField(null=True)
    epoch = models.BigIntegerField(null=True)

    class Meta:
        db_table = "intent_transition"
        verbose_name = "payment transition"


class IdempotencyRecord(models.Model):
    """A client's idempotency key with the answer it got. `fingerprint` is SHA-256 of method, path and raw body (32 bytes)."""

    pk = models.CompositePrimaryKey("scope", "key")
    scope = models.BigIntegerField()  # the client account
    key = models.TextField()
    fingerprint = models.BinaryField()
    attempt = models.IntegerField(db_default=1)
    claimed_at = stamped()
    lease_until = models.DateTimeField()
    expires_at = models.DateTimeField()
    response_status = models.SmallIntegerField(null=True)  # null: in flight
    response_headers = models.JSONField(null=True)
    response_body = models.BinaryField(null=True)

    class Meta:
        db_table = "idempotency_record"
        # purge of expired records
        indexes = [models.Index(fields=["expires_at"], name="idempotency_record_expiry")]


class PaymentObservation(models.Model):
    """What the envelope log shows of an authorization: the event AuthorizationUsed or AuthorizationCanceled of a token.

    `payee` and `amount` come from the Transfer that follows it in the same transaction (null when none does). Removed, and the
    intent withdrawn, when its block gives way. `position` is that of the authorization event.
    """

    pk = models.CompositePrimaryKey("source_id", "position")
    source_id = models.IntegerField()
    position = models.BigIntegerField()
    ref = models.BinaryField()
    token = models.BinaryField()
    authorizer = models.BinaryField()
    payee = models.BinaryField(null=True)
    amount = WeiField(null=True)
    canceled = models.BooleanField(db_default=False)
    tx_hash = models.BinaryField()
    block_hash = models.BinaryField()
    observed_at = stamped()

    class Meta:
        db_table = "payment_observation"
        verbose_name = "payment observation"
        # the confirm duty and reconciliation: what was seen for a ref
        indexes = [models.Index(fields=["ref"], name="payment_observation_ref")]


class FindingKind(StrEnum):
    """What a reconciled window shows that the books do not, or the other way round (reference queue_settle 4.7)."""

    UNKNOWN_REF = "unknown_ref"  # one of our signers carried an authorization that no intent has
    UNREFERENCED = "unreferenced"  # a settled intent whose transaction is not in the log
    PAID_TWICE = "paid_twice"
    UNEXPECTED = "unexpected"  # paid although the intent had ended without payment, or was never authorized
    MISMATCH = "mismatch"  # another amount, token or party


class ReconFinding(models.Model):
    """A finding of the reconciliation over finalized windows; each becomes a review case once."""

    source_id = models.IntegerField()
    kind = models.TextField(choices=text_choices(FindingKind))
    ref = models.BinaryField()
    position = models.BigIntegerField()
    intent_id = models.BigIntegerField(null=True)
    tx_hash = models.BinaryField()
    detail = models.JSONField(default=dict)
    found_at = stamped()

    class Meta:
        db_table = "recon_finding"
        verbose_name = "reconciliation finding"
        constraints = [models.UniqueConstraint(fields=["source_id", "kind", "position"], name="recon_finding_once")]
        # findings of an intent, on its case page
        indexes = [models.Index(fields=["ref"], name="recon_finding_ref")]


class ReconCursor(models.Model):
    """Up to which block a source's payments are reconciled. Moves in the transaction of the findings."""

    source_id = models.IntegerField(primary_key=True)
    block = models.BigIntegerField()
    moved_at = stamped()

    class Meta:
        db_table = "recon_cursor"
