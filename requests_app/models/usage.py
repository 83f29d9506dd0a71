"""What the envelope log costs whom, and what waits to be published (design 5.4.5 to 5.4.7). Money is in picodollars."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from requests_app.fields import stamped


class UsageUnsettled(models.Model):
    """Usage of a payer (client account) at an originator in a minute since 1970 that no payment covers yet."""

    pk = models.CompositePrimaryKey("payer", "source_id", "minute")
    payer = models.BigIntegerField()
    source_id = models.IntegerField()
    minute = models.BigIntegerField()
    spend = models.BigIntegerField()
    messages = models.BigIntegerField()
    last_position = models.BigIntegerField()

    class Meta:
        db_table = "usage_unsettled"
        verbose_name = "unsettled usage"
        verbose_name_plural = "unsettled usage"


class UsageBilled(models.Model):
    """Usage that a bill has claimed: no other bill can, and it no longer grows. `reference` names the bill, as the payment will."""

    pk = models.CompositePrimaryKey("payer", "source_id", "minute", "reference")
    payer = models.BigIntegerField()
    source_id = models.IntegerField()
    minute = models.BigIntegerField()
    reference = models.TextField()
    spend = models.BigIntegerField()
    messages = models.BigIntegerField()
    last_position = models.BigIntegerField()
    billed_at = stamped()

    class Meta:
        db_table = "usage_billed"
        verbose_name = "billed usage"
        verbose_name_plural = "billed usage"
        # whether an ended payment is a bill, and what it covers
        indexes = [models.Index(fields=["reference"], name="usage_billed_reference")]


class UsageSettled(models.Model):
    """Usage that a payment covers. `reference` names the payment."""

    reference = models.TextField()
    payer = models.BigIntegerField()
    source_id = models.IntegerField()
    minute = models.BigIntegerField()
    spend = models.BigIntegerField()
    messages = models.BigIntegerField()
    last_position = models.BigIntegerField()
    settled_at = stamped()

    class Meta:
        db_table = "usage_settled"
        verbose_name = "settled usage"
        verbose_name_plural = "settled usage"
        constraints = [
            models.UniqueConstraint(fields=["reference", "payer", "source_id", "minute"], name="usage_settled_once")
        ]
        # usage.settled_page: a payer's settled usage, in order of settlement
        indexes = [models.Index(fields=["payer", "id"], name="usage_settled_payer")]


class OriginatorCongestion(models.Model):
    """Envelopes of an originator in a minute since 1970, whoever pays for them."""

    pk = models.CompositePrimaryKey("source_id", "minute")
    source_id = models.IntegerField()
    minute = models.BigIntegerField()
    messages = models.BigIntegerField()

    class Meta:
        db_table = "originator_congestion"


class PublisherHead(models.Model):
    """The last position that a publisher assigned. An originator with neither head nor seal is a reserved id."""

    source_id = models.IntegerField(primary_key=True)
    last = models.BigIntegerField(db_default=0)

    class Meta:
        db_table = "publisher_head"
        constraints = [models.CheckConstraint(condition=Q(last__gte=0), name="publisher_head_not_negative")]


class StagedEnvelope(models.Model):
    """A publication that waits for its position; parked with its reason when it can never have one."""

    ext_id = models.UUIDField(unique=True)
    client_id = models.BigIntegerField()
    topic = models.BinaryField()
    payload = models.BinaryField()
    expires_at = models.DateTimeField(null=True)
    staged_at = stamped()
    attempts = models.IntegerField(db_default=0)
    parked_at = models.DateTimeField(null=True)
    error_class = models.TextField(null=True)
    error = models.TextField(null=True)

    class Meta:
        db_table = "staged_envelope"
        # publish.next_staged: the oldest publications that wait
        indexes = [models.Index(fields=["id"], condition=Q(parked_at=None), name="staged_envelope_waiting")]


class PublishedEnvelope(models.Model):
    """Where a publication stands in the log: written in the transaction that put it there."""

    ext_id = models.UUIDField(primary_key=True)
    client_id = models.BigIntegerField()
    source_id = models.IntegerField()
    position = models.BigIntegerField()
    published_at = stamped()

    class Meta:
        db_table = "published_envelope"
        # publish.purge_published: receipts leave with their bands
        indexes = [models.Index(fields=["source_id", "position"], name="published_envelope_place")]


class EnvelopeMiss(models.Model):
    """How often an insert met a missing band: should stay near 0, because bands are made ahead of need."""

    source_id = models.IntegerField(primary_key=True)
    misses = models.BigIntegerField(db_default=0)
    last_at = stamped()

    class Meta:
        db_table = "envelope_miss"


class CursorKey(models.Model):
    """A key that signs the cursors of lists; a retired one opens nothing any more (design 5.5.4)."""

    version = models.SmallIntegerField(primary_key=True)
    secret = models.BinaryField()
    created_at = stamped()
    retired_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "cursor_key"
