"""Who may do what right now, and who is alive."""

from __future__ import annotations

from django.db import models

from requests_app.fields import stamped


class ExecLease(models.Model):
    """The right to act on one resource. The epoch grows by one at every take-over and never falls."""

    resource = models.TextField(primary_key=True)
    instance = models.TextField()
    epoch = models.BigIntegerField(db_default=1)
    lease_until = models.DateTimeField()
    acquired_at = stamped()
    renewed_at = stamped()
    how = models.TextField(db_default="free")

    class Meta:
        db_table = "exec_lease"
        verbose_name = "lease"

    def __str__(self) -> str:
        return self.resource


class WorkerBeat(models.Model):
    """A loop's sign of life: `at` from its beat thread, `turn_at` from the loop itself."""

    resource = models.TextField(primary_key=True)
    instance = models.TextField()
    at = stamped()
    turn_at = stamped()
    pid = models.IntegerField()
    host = models.TextField()

    class Meta:
        db_table = "worker_beat"
        verbose_name = "heartbeat"

    def __str__(self) -> str:
        return self.resource
