"""The log of chain events. The partitioned tables are made by SQL; the models only read them."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from requests_app.fields import stamped


class ChainIdentity(models.Model):
    """The chain this database belongs to: its genesis hash at the first start. Another one is refused."""

    chain_id = models.BigIntegerField(primary_key=True)
    genesis_hash = models.BinaryField()
    stored_at = stamped()

    class Meta:
        db_table = "chain_identity"
        verbose_name_plural = "chain identities"

    def __str__(self) -> str:
        return str(self.chain_id)


class EnvelopeSource(models.Model):
    """An originator: what is fetched and sealed together (one a chain and deployment)."""

    source_id = models.IntegerField(primary_key=True)
    name = models.TextField(unique=True)
    chain_id = models.BigIntegerField()
    start_block = models.BigIntegerField()
    band_blocks = models.IntegerField(db_default=131072)
    retain = models.DurationField()
    reorg_depth = models.IntegerField(db_default=64)
    halted = models.TextField(null=True)

    class Meta:
        db_table = "envelope_source"
        verbose_name = "source"
        constraints = [
            models.CheckConstraint(condition=Q(source_id__gt=0), name="envelope_source_positive"),
            models.CheckConstraint(condition=Q(band_blocks__gt=0), name="envelope_source_band_positive"),
        ]

    def __str__(self) -> str:
        return self.name


class ChainCursor(models.Model):
    """The seal of a source: everything up to `block` is stored. Moves in the transaction of the events."""

    source = models.OneToOneField(EnvelopeSource, on_delete=models.PROTECT, primary_key=True)
    block = models.BigIntegerField()
    head_hash = models.BinaryField(null=True)
    chain_head = models.BigIntegerField(null=True)
    window_blocks = models.IntegerField(null=True)
    updated_at = stamped()

    class Meta:
        db_table = "chain_cursor"


class ChainBlock(models.Model):
    """The hash of a sealed block, for the last `reorg_depth` blocks: what a reorganisation is found by."""

    pk = models.CompositePrimaryKey("source_id", "block")
    source_id = models.IntegerField()
    block = models.BigIntegerField()
    hash = models.BinaryField()

    class Meta:
        db_table = "chain_block"


class ChainReorg(models.Model):
    """A reorganisation that was undone: blocks from `fork_block` to `sealed` gave way to others."""

    source_id = models.IntegerField()
    fork_block = models.BigIntegerField()
    sealed = models.BigIntegerField()
    old_hash = models.BinaryField(null=True)
    new_hash = models.BinaryField()
    envelopes = models.IntegerField(db_default=0)
    withdrawn = models.IntegerField(db_default=0)
    at = stamped()

    class Meta:
        db_table = "chain_reorg"


class EnvelopeOrphan(models.Model):
    """An envelope of a block that gave way. Kept as evidence; nobody applies it."""

    reorg_id = models.BigIntegerField()
    source_id = models.IntegerField()
    position = models.BigIntegerField()
    kind = models.SmallIntegerField()
    ref = models.BinaryField(null=True)
    contract = models.BinaryField()
    block_hash = models.BinaryField()
    tx_hash = models.BinaryField()
    digest = models.BinaryField()
    payer = models.BigIntegerField(null=True)
    recorded_at = models.DateTimeField()
    payload = models.BinaryField(null=True)

    class Meta:
        db_table = "envelope_orphan"
        indexes = [
            models.Index(fields=["reorg_id", "position"], name="envelope_orphan_reorg"),
            # record_range: an event that comes back is not counted twice
            models.Index(fields=["tx_hash"], name="envelope_orphan_tx"),
        ]


class ReorgEvidence(models.Model):
    """A final row whose event gave way: the row stays, its evidence must come back or a person looks."""

    reorg_id = models.BigIntegerField()
    source_id = models.IntegerField()
    kind = models.SmallIntegerField()
    request_id = models.BigIntegerField()
    event_kind = models.SmallIntegerField()
    ref = models.BinaryField(null=True)
    tx_hash = models.BinaryField()
    fork_block = models.BigIntegerField()
    after_block = models.BigIntegerField()
    verdict = models.TextField(null=True, choices=[("returned", "returned"), ("vanished", "vanished")])
    settled_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "reorg_evidence"
        indexes = [models.Index(fields=["after_block"], condition=Q(verdict__isnull=True), name="reorg_evidence_open")]


class ConsumerCursor(models.Model):
    """How far a consumer has applied a source: a position, block << 20 | log index."""

    pk = models.CompositePrimaryKey("consumer", "source_id")
    consumer = models.TextField()
    source_id = models.IntegerField()
    position = models.BigIntegerField(db_default=-1)
    required = models.BooleanField(db_default=True)
    updated_at = stamped()

    class Meta:
        db_table = "consumer_cursor"


class EnvelopeBand(models.Model):
    """A range of positions that is one partition; bands leave whole."""

    pk = models.CompositePrimaryKey("source_id", "band_no")
    source_id = models.IntegerField()
    band_no = models.BigIntegerField()
    lo = models.BigIntegerField()
    hi = models.BigIntegerField()
    state = models.TextField(db_default="open")
    at = stamped()

    class Meta:
        db_table = "envelope_band"


class DeadEnvelope(models.Model):
    """An envelope that a consumer could not apply, with the reason."""

    pk = models.CompositePrimaryKey("consumer", "source_id", "position")
    consumer = models.TextField()
    source_id = models.IntegerField()
    position = models.BigIntegerField()
    error_class = models.TextField()
    error = models.TextField()
    attempts = models.IntegerField(db_default=1)
    retryable = models.BooleanField(db_default=False)
    first_at = stamped()
    resolved_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "dead_envelope"


class EnvelopeConflict(models.Model):
    """Two different events at one position: the chain or a node contradicts itself. `payload` is the one that was got."""

    source_id = models.IntegerField()
    position = models.BigIntegerField()
    have = models.BinaryField()
    got = models.BinaryField()
    payload = models.BinaryField()
    have_ref = models.BinaryField(null=True)
    have_tx_hash = models.BinaryField(null=True)
    got_ref = models.BinaryField(null=True)
    got_tx_hash = models.BinaryField(null=True)
    at = stamped()
    reviewed_at = models.DateTimeField(null=True)  # what the two events name was given to a person

    class Meta:
        db_table = "envelope_conflict"
        verbose_name = "conflict"

    def __str__(self) -> str:
        return f"at {self.position} of source {self.source_id}"


class EnvelopeMeta(models.Model):
    """Where and what an event was; its payload is in EnvelopeBlob, in the same bands."""

    pk = models.CompositePrimaryKey("source_id", "position")
    source_id = models.IntegerField()
    position = models.BigIntegerField()
    kind = models.SmallIntegerField()
    ref = models.BinaryField(null=True)
    contract = models.BinaryField()
    block_hash = models.BinaryField()
    tx_hash = models.BinaryField()
    digest = models.BinaryField()
    payer = models.BigIntegerField(null=True)
    recorded_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True)

    class Meta:
        managed = False
        db_table = "envelope_meta"
        verbose_name = "envelope"


class EnvelopeBlob(models.Model):
    """The canonical bytes of an event's log."""

    pk = models.CompositePrimaryKey("source_id", "position")
    source_id = models.IntegerField()
    position = models.BigIntegerField()
    payload = models.BinaryField()

    class Meta:
        managed = False
        db_table = "envelope_blob"
