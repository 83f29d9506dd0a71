"""The three request kinds with what belongs to them: payloads, client views, transitions, references, shares."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from requests_app.fields import one_of, stamped, text_choices
from requests_app.states import ACTIVE, FINAL, Kind, ReqType, Status

KIND_CHOICES = [(kind.value, kind.slug.replace("-", " ")) for kind in Kind]


def _request_constraints(table: str) -> list[models.BaseConstraint]:
    return [
        # submit(): at most one row a content hash that is neither failed nor timed out
        models.UniqueConstraint(
            fields=["int_job_id"],
            condition=~Q(status__in=[Status.FAILURE.value, Status.TIMED_OUT.value]),
            name=f"{table}_one_live",
        ),
        one_of("status", [status.value for status in Status], f"{table}_status_known"),
        # a finish time exists exactly on final rows
        models.CheckConstraint(
            condition=(Q(completed_at__isnull=False) & Q(status__in=sorted(status.value for status in FINAL)))
            | (Q(completed_at__isnull=True) & Q(status__in=sorted(status.value for status in ACTIVE))),
            name=f"{table}_completed_ties",
        ),
    ]


def _request_indexes(table: str) -> list[models.Index]:
    active = Q(status__in=sorted(status.value for status in ACTIVE))
    return [
        # sweep: rows past their deadline
        models.Index(fields=["deadline_at"], condition=active, name=f"{table}_deadline"),
        # first page: rows a state; lists of the desk: the newest in a state, final ones too, which stand behind all live rows
        models.Index(fields=["status", "id"], name=f"{table}_status"),
        # retention: final rows by age
        models.Index(fields=["completed_at"], condition=Q(completed_at__isnull=False), name=f"{table}_retention"),
        # search by reference id and by tx hash
        models.Index(fields=["gw_reference_id"], condition=Q(gw_reference_id__isnull=False), name=f"{table}_reference"),
        models.Index(fields=["gw_req_tx_hash"], condition=Q(gw_req_tx_hash__isnull=False), name=f"{table}_tx"),
    ]


class GatewayRequest(models.Model):
    """What all request kinds share. `int_job_id` is the SHA-256 of the content, ids on the gateway are 32 bytes."""

    ext_job_id = models.UUIDField(unique=True)
    int_job_id = models.BinaryField()
    status = models.TextField(choices=text_choices(Status))
    gw_reference_id = models.BinaryField(null=True)
    gw_req_tx_hash = models.BinaryField(null=True)
    receipt_block = models.BigIntegerField(null=True)
    fail_label = models.TextField(null=True)
    fail_detail = models.TextField(null=True)
    fail_selector = models.BinaryField(null=True)
    created_at = stamped()
    updated_at = stamped()
    state_entered_at = stamped()
    deadline_at = models.DateTimeField(null=True)
    completed_at = models.DateTimeField(null=True)

    class Meta:
        abstract = True

    kind: Kind

    def __str__(self) -> str:
        return f"{self.kind.slug} {self.ext_job_id}"


class UserDecryptRequest(GatewayRequest):
    """A user decryption: direct, delegated or unified. Its answer is made of shares."""

    kind = Kind.USER_DECRYPT
    req_type = models.TextField(choices=text_choices(ReqType))
    resolved_threshold = models.IntegerField(null=True)
    gw_consensus_tx_hash = models.BinaryField(null=True)

    class Meta:
        db_table = "user_decrypt_req"
        verbose_name = "user decrypt"
        constraints = _request_constraints("user_decrypt_req")
        indexes = _request_indexes("user_decrypt_req")


class PublicDecryptRequest(GatewayRequest):
    """A public decryption. `res` holds the clear values and the KMS signatures."""

    kind = Kind.PUBLIC_DECRYPT
    res = models.JSONField(null=True)
    gw_response_tx_hash = models.BinaryField(null=True)

    class Meta:
        db_table = "public_decrypt_req"
        verbose_name = "public decrypt"
        constraints = _request_constraints("public_decrypt_req")
        indexes = _request_indexes("public_decrypt_req")


class InputProofRequest(GatewayRequest):
    """An input proof. A rejection is an answer: completed with `accepted` false."""

    kind = Kind.INPUT_PROOF
    int_request_id = models.UUIDField(unique=True)
    accepted = models.BooleanField(null=True)
    res = models.JSONField(null=True)
    gw_response_tx_hash = models.BinaryField(null=True)

    class Meta:
        db_table = "input_proof_req"
        verbose_name = "input proof"
        constraints = _request_constraints("input_proof_req")
        indexes = _request_indexes("input_proof_req")


class RequestPayload(models.Model):
    """What the client asked, in canonical form; apart from the hot row, so that state changes stay small."""

    pk = models.CompositePrimaryKey("kind", "request_id")
    kind = models.SmallIntegerField(choices=KIND_CHOICES)
    request_id = models.BigIntegerField()
    body = models.JSONField()

    class Meta:
        db_table = "request_payload"


class RequestClient(models.Model):
    """A client's view of a request: its own job id for a row that clients with the same content share."""

    pk = models.CompositePrimaryKey("client_id", "kind", "request_id")
    client_id = models.BigIntegerField()
    kind = models.SmallIntegerField(choices=KIND_CHOICES)
    request_id = models.BigIntegerField()
    ext_job_id = models.UUIDField(unique=True)
    created_at = stamped()
    canceled_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "request_client"
        # TX1 and payer look-up: the clients of a row
        indexes = [models.Index(fields=["kind", "request_id"], name="request_client_request")]


class RequestTransition(models.Model):
    """One state change that happened. Append-only."""

    kind = models.SmallIntegerField(choices=KIND_CHOICES)
    request_id = models.BigIntegerField()
    verb = models.TextField()
    from_status = models.TextField(null=True)
    to_status = models.TextField()
    actor = models.TextField()
    epoch = models.BigIntegerField(null=True)
    reason = models.TextField(null=True)
    tx_hash = models.BinaryField(null=True)
    at = stamped()

    class Meta:
        db_table = "req_transition"
        verbose_name = "transition"
        # timeline()
        indexes = [models.Index(fields=["kind", "request_id", "id"], name="req_transition_request")]

    def __str__(self) -> str:
        return f"{self.from_status or ''} → {self.to_status}".strip()


class GatewayRef(models.Model):
    """The counter row of a reference id: shares seen, threshold, and whose it is. Its lock orders the appliers."""

    gw_reference_id = models.BinaryField(primary_key=True)
    n = models.IntegerField(db_default=0)
    threshold = models.IntegerField(null=True)
    kind = models.SmallIntegerField(choices=KIND_CHOICES, null=True)
    request_id = models.BigIntegerField(null=True)
    first_at = stamped()

    class Meta:
        db_table = "gateway_ref"
        indexes = [
            # retention: references that turned out to be somebody else's
            models.Index(fields=["first_at"], condition=Q(request_id__isnull=True), name="gateway_ref_foreign"),
            # threshold retry
            models.Index(
                fields=["first_at"],
                condition=Q(request_id__isnull=False, threshold__isnull=True, n__gt=0),
                name="gateway_ref_unresolved",
            ),
        ]


class UserDecryptShare(models.Model):
    """A KMS node's share of a user decryption. `share_index` is the order of arrival on chain."""

    gw_reference_id = models.BinaryField()
    share_index = models.IntegerField()
    share = models.BinaryField()
    kms_signature = models.BinaryField()
    extra_data = models.BinaryField()
    tx_hash = models.BinaryField()
    position = models.BigIntegerField()
    created_at = stamped()

    class Meta:
        db_table = "user_decrypt_share"
        verbose_name = "share"
        constraints = [
            models.UniqueConstraint(fields=["gw_reference_id", "share_index"], name="user_decrypt_share_once")
        ]

    def __str__(self) -> str:
        return f"#{self.pk}"


class KeptShare(models.Model):
    """A share that a completed row was answered with, after its blocks gave way: the reference may go to another request."""

    request_id = models.BigIntegerField()
    share_index = models.IntegerField()
    share = models.BinaryField()
    kms_signature = models.BinaryField()
    extra_data = models.BinaryField()
    position = models.BigIntegerField()

    class Meta:
        db_table = "kept_share"
        constraints = [models.UniqueConstraint(fields=["request_id", "share_index"], name="kept_share_once")]


class PublishedKey(models.Model):
    """What /v2/keyurl answers: the one current row, written by the key poller."""

    id = models.SmallIntegerField(primary_key=True)
    key_id = models.BinaryField()
    crs_id = models.BinaryField()
    context_id = models.BinaryField()
    body = models.JSONField()
    updated_at = stamped()

    class Meta:
        db_table = "published_key"
        constraints = [models.CheckConstraint(condition=Q(id=1), name="published_key_single")]
