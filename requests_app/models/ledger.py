"""The journal: append-only, double-entry, hash-chained (reference queue_settle 1.4). Amounts are in token units."""

from __future__ import annotations

from enum import StrEnum

from django.db import models
from django.db.models import Q

from requests_app.fields import WeiField, one_of, text_choices


class EntryKind(StrEnum):
    """What an entry does with money."""

    HOLD = "hold"  # pending: the payer's side is spoken for
    POST = "post"  # a hold came true: pending goes, posted grows
    VOID = "void"  # a hold came to nothing


class LedgerEntry(models.Model):
    """One entry of the journal. `seq` is dense from 1; `hash` commits to everything here, the legs, and the entry before.

    A hold is resolved once: `holds` is unique. `at` is the intent's updated_at, so that a replay makes the same entry.
    """

    seq = models.BigIntegerField(primary_key=True)
    entry_id = models.TextField(unique=True)
    ref = models.BinaryField()
    kind = models.TextField(choices=text_choices(EntryKind))
    holds = models.OneToOneField(
        "self",
        to_field="entry_id",
        db_column="holds",
        on_delete=models.PROTECT,
        null=True,
        related_name="+",
    )
    chain = models.TextField()
    token = models.TextField()
    by_actor = models.TextField()
    at = models.DateTimeField()
    tx_hash = models.BinaryField(null=True)
    memo = models.TextField(db_default="")
    leg_count = models.SmallIntegerField()
    prev_hash = models.BinaryField()
    hash = models.BinaryField()

    class Meta:
        db_table = "ledger_entry"
        verbose_name = "ledger entry"
        verbose_name_plural = "ledger entries"
        constraints = [
            one_of("kind", [kind.value for kind in EntryKind], "ledger_entry_kind_known"),
            models.CheckConstraint(
                condition=Q(kind=EntryKind.HOLD.value, holds__isnull=True)
                | Q(~Q(kind=EntryKind.HOLD.value), holds__isnull=False),
                name="ledger_entry_resolves_a_hold",
            ),
            models.CheckConstraint(
                condition=Q(kind=EntryKind.VOID.value, leg_count=0)
                | Q(~Q(kind=EntryKind.VOID.value), leg_count__gte=2),
                name="ledger_entry_legs",
            ),
            models.UniqueConstraint(
                fields=["ref"], condition=Q(kind=EntryKind.HOLD.value), name="ledger_entry_one_hold"
            ),
        ]
        # entries of an intent
        indexes = [models.Index(fields=["ref"], name="ledger_entry_ref")]

    def __str__(self) -> str:
        return self.entry_id


class LedgerLeg(models.Model):
    """One account's side of an entry. The legs of an entry sum to zero."""

    pk = models.CompositePrimaryKey("entry_seq", "account")
    entry_seq = models.BigIntegerField()
    ord = models.SmallIntegerField()
    account = models.TextField()
    amount = WeiField()

    class Meta:
        db_table = "ledger_leg"
        verbose_name = "posting"
        constraints = [models.CheckConstraint(condition=~Q(amount=0), name="ledger_leg_not_zero")]
        # statements of an account
        indexes = [models.Index(fields=["account", "entry_seq"], name="ledger_leg_account")]


class LedgerBalance(models.Model):
    """A cache of the journal by account and asset, moved in the transaction of each entry. The journal is the truth."""

    pk = models.CompositePrimaryKey("account", "chain", "token")
    account = models.TextField()
    chain = models.TextField()
    token = models.TextField()
    pending = WeiField(db_default=0)
    posted = WeiField(db_default=0)

    class Meta:
        db_table = "ledger_balance"
        verbose_name = "balance"
