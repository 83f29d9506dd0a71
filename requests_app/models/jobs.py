"""The work queue: one row a job, deleted when acknowledged."""

from __future__ import annotations

from django.db import models

from requests_app.fields import stamped
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
        # lease_jobs(): visible_at is left out of the index on purpose, so that leasing stays a HOT update
        indexes = [models.Index(fields=["queue", "priority", "id"], name="queue_job_claim")]

    def __str__(self) -> str:
        return self.job_key
