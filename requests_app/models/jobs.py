"""The work queue: one row a job, deleted when acknowledged."""

from __future__ import annotations

from enum import StrEnum

from django.db import models
from django.db.models import Q

from requests_app.fields import stamped, text_choices
from requests_app.models.requests import KIND_CHOICES


class QueueJob(models.Model):
    """A pointer to a subject that waits for work. It says nothing of the subject's state: workers re-read the row."""

    queue = models.TextField()
    job_key = models.TextField(unique=True)
    kind = models.SmallIntegerField(choices=KIND_CHOICES)
    subject_id = models.BigIntegerField()
    tenant_id = models.BigIntegerField()
    priority = models.SmallIntegerField(db_default=100)
    attempt = models.IntegerField(db_default=0)
    visible_at = stamped()
    leased_by = models.TextField(null=True)
    enqueued_at = stamped()

    class Meta:
        db_table = "queue_job"
        verbose_name = "job"
        # lease: visible_at is left out of the index on purpose, so that leasing stays a HOT update
        indexes = [models.Index(fields=["queue", "priority", "tenant_id", "id"], name="queue_job_claim")]

    def __str__(self) -> str:
        return self.job_key


class LetterStatus(StrEnum):
    """What became of a job that was given up."""

    PARKED = "parked"
    REDRIVEN = "redriven"
    DROPPED = "dropped"


class DeadLetter(models.Model):
    """A job that poisoned or used up its attempts. Only a person moves it, once: back to its queue, or away."""

    queue = models.TextField()
    job_key = models.TextField()
    kind = models.SmallIntegerField(choices=KIND_CHOICES)
    subject_id = models.BigIntegerField()
    tenant_id = models.BigIntegerField()
    priority = models.SmallIntegerField()
    attempts = models.IntegerField()
    reason = models.TextField()
    subject_state = models.TextField(null=True)  # the state of its row when it was given up
    cycles = models.IntegerField(db_default=1)  # how often this job has been given up
    status = models.TextField(choices=text_choices(LetterStatus), db_default=LetterStatus.PARKED.value)
    parked_at = stamped()
    resolved_by = models.TextField(null=True)
    resolved_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "dead_letter"
        verbose_name = "dead letter"
        constraints = [
            models.UniqueConstraint(
                fields=["job_key"], condition=Q(status=LetterStatus.PARKED.value), name="dead_letter_one_parked"
            )
        ]
        # the letters of a request or payment: on its page, and whether it waits for a person
        indexes = [models.Index(fields=["kind", "subject_id"], name="dead_letter_subject")]

    def __str__(self) -> str:
        return self.job_key
