"""Signers, their nonces, and every signed transaction that was ever stored."""

from __future__ import annotations

from enum import StrEnum

from django.db import models
from django.db.models import Q

from requests_app.fields import WeiField, one_of, stamped, text_choices
from requests_app.models.requests import KIND_CHOICES


class SignerStatus(StrEnum):
    """Whether a signer takes new work."""

    ACTIVE = "active"
    PAUSED = "paused"  # no native gas, or told to; resumes
    BLOCKED = "blocked"  # its key was used elsewhere: a person must look


class SlotState(StrEnum):
    """What is known of a nonce."""

    SIGNED = "signed"  # bytes are stored, no node has confirmed taking them
    LIVE = "live"  # a node has, or may have, the bytes
    MINED = "mined"
    FINAL = "final"
    DEAD = "dead"  # proven: none of our attempts can ever be mined at this nonce


class AttemptState(StrEnum):
    """What is known of one signed transaction."""

    PREPARED = "prepared"
    UNKNOWN = "unknown"
    ACCEPTED = "accepted"
    REFUSED = "refused"
    MINED = "mined"
    REPLACED = "replaced"
    FINAL = "final"
    DROPPED = "dropped"


class AttemptKind(StrEnum):
    """What a signed transaction is for. Which one was mined decides, not which one was wanted."""

    PAY = "pay"  # carries the subject's call
    REPLACE = "replace"  # the same call with higher fees
    CANCEL = "cancel"  # nothing, to free a stuck nonce: 0 wei from the signer to itself
    FILL = "fill"  # nothing, because the node refuses the call's bytes for good


class Signer(models.Model):
    """A key that sends on one chain. `next_nonce` is null until it was compared with the chain, and never falls."""

    chain_id = models.BigIntegerField()
    address = models.BinaryField()
    status = models.TextField(choices=text_choices(SignerStatus), db_default=SignerStatus.ACTIVE.value)
    status_reason = models.TextField(null=True)
    next_nonce = models.BigIntegerField(null=True)
    max_inflight = models.IntegerField(db_default=256)
    chain_nonce_latest = models.BigIntegerField(null=True)
    nonce_moved_at = models.DateTimeField(null=True)  # when chain_nonce_latest was last seen to rise
    balance_wei = WeiField(null=True)
    fee_balance = WeiField(null=True)
    fee_allowance = WeiField(null=True)
    last_synced_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "signer"
        constraints = [
            models.UniqueConstraint(fields=["chain_id", "address"], name="signer_once"),
            one_of("status", [status.value for status in SignerStatus], "signer_status_known"),
        ]

    def __str__(self) -> str:
        return f"0x{bytes(self.address).hex()}"


class NonceSlot(models.Model):
    """A nonce and the subject that owns it. A subject has at most one slot that is not proven dead (rule R1)."""

    pk = models.CompositePrimaryKey("signer_id", "nonce")
    signer_id = models.BigIntegerField()
    nonce = models.BigIntegerField()
    kind = models.SmallIntegerField(choices=KIND_CHOICES)
    subject_id = models.BigIntegerField()
    state = models.TextField(choices=text_choices(SlotState))
    opened_at = stamped()
    closed_at = models.DateTimeField(null=True)
    opened_epoch = models.BigIntegerField()
    winner_hash = models.BinaryField(null=True)
    # Consumed on chain without a hash of ours: since when, and which endpoints said so (workers/missing.py).
    missing = models.JSONField(null=True)

    class Meta:
        db_table = "nonce_slot"
        verbose_name = "nonce slot"
        constraints = [
            models.UniqueConstraint(
                fields=["kind", "subject_id"], condition=~Q(state=SlotState.DEAD.value), name="nonce_slot_one_live"
            ),
            one_of("state", [state.value for state in SlotState], "nonce_slot_state_known"),
        ]
        # settle window and owner's resume: the open slots of a signer, in nonce order
        indexes = [
            models.Index(
                fields=["signer_id", "nonce"],
                condition=Q(state__in=[SlotState.SIGNED.value, SlotState.LIVE.value]),
                name="nonce_slot_open",
            ),
            # everything ever signed for a request, dead slots too: deadlines, evidence, retention, the desk
            models.Index(fields=["kind", "subject_id"], name="nonce_slot_subject"),
        ]


class TxAttempt(models.Model):
    """One signed transaction: bytes and hash stand here before any node sees them (rule R2). Fees are wei a gas."""

    signer_id = models.BigIntegerField()
    nonce = models.BigIntegerField()
    seq = models.SmallIntegerField()
    tx_hash = models.BinaryField(unique=True)
    raw_tx = models.BinaryField()
    kind = models.TextField(choices=text_choices(AttemptKind), db_default=AttemptKind.PAY.value)
    command_id = models.TextField(null=True, unique=True)
    max_fee_per_gas = WeiField()
    max_priority_fee = WeiField()
    gas_limit = models.BigIntegerField()
    state = models.TextField(choices=text_choices(AttemptState), db_default=AttemptState.PREPARED.value)
    error_class = models.TextField(null=True)
    error_text = models.TextField(null=True)
    epoch = models.BigIntegerField()
    prepared_at = stamped()
    first_sent_at = models.DateTimeField(null=True)
    last_sent_at = models.DateTimeField(null=True)
    send_count = models.IntegerField(db_default=0)
    waiting_from_block = models.BigIntegerField(null=True)  # the head when it was first found to be out for too long
    block_number = models.BigIntegerField(null=True)
    block_hash = models.BinaryField(null=True)
    receipt_status = models.SmallIntegerField(null=True)

    class Meta:
        db_table = "tx_attempt"
        verbose_name = "attempt"
        constraints = [
            models.UniqueConstraint(fields=["signer_id", "nonce", "seq"], name="tx_attempt_once"),
            one_of("state", [state.value for state in AttemptState], "tx_attempt_state_known"),
            one_of("kind", [kind.value for kind in AttemptKind], "tx_attempt_kind_known"),
        ]
        # re-broadcast and receipts: attempts whose end is not known
        indexes = [
            models.Index(
                fields=["signer_id", "nonce"],
                condition=Q(
                    state__in=[
                        AttemptState.PREPARED.value,
                        AttemptState.UNKNOWN.value,
                        AttemptState.ACCEPTED.value,
                    ]
                ),
                name="tx_attempt_open",
            ),
            # list of the desk: the newest in a state; nearly all are final
            models.Index(fields=["state", "id"], condition=~Q(state=AttemptState.FINAL.value), name="tx_attempt_state"),
        ]

    def __str__(self) -> str:
        return f"0x{bytes(self.tx_hash).hex()}"
