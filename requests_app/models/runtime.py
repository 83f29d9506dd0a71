"""Parameters that operators change while everything runs, and who changed what."""

from __future__ import annotations

from django.db import models

from requests_app.fields import stamped


class RuntimeSetting(models.Model):
    """A parameter that differs from its default. Names and ranges are in `requests_app.runtime`."""

    name = models.TextField(primary_key=True)
    value = models.JSONField()
    updated_at = stamped()
    updated_by = models.TextField()

    class Meta:
        db_table = "runtime_setting"
        verbose_name = "runtime setting"

    def __str__(self) -> str:
        return self.name


class RuntimeChange(models.Model):
    """One change of a parameter: who, when, why, from what to what. Null stands for the default. Never changed, never deleted."""

    id = models.BigAutoField(primary_key=True)
    name = models.TextField()
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    changed_by = models.TextField()
    reason = models.TextField()
    at = stamped()

    class Meta:
        db_table = "runtime_change"
        verbose_name = "runtime setting change"
        indexes = [models.Index(fields=["name", "-id"], name="runtime_change_name")]

    def __str__(self) -> str:
        return f"{self.name} #{self.pk}"
