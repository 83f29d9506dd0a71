"""Figures of the first page that must not be counted anew: what ended, when, after how long; what waits when that is much."""

from __future__ import annotations

from django.db import models

from requests_app.models.requests import KIND_CHOICES


class FinishedFigure(models.Model):
    """How many rows of a kind ended alike within one step of time, by how long they took.

    `grain` is the step in seconds, 0 for "ever" (`at` is then the epoch). `bucket` b holds durations in seconds from 1.25^b up to 1.25^(b+1).
    """

    pk = models.CompositePrimaryKey("grain", "at", "kind", "status", "label", "bucket")
    grain = models.IntegerField()
    at = models.DateTimeField()
    kind = models.SmallIntegerField(choices=KIND_CHOICES)
    status = models.TextField()
    label = models.TextField()
    bucket = models.SmallIntegerField()
    n = models.BigIntegerField()

    class Meta:
        db_table = "finished_figure"


class FiguresUpTo(models.Model):
    """Up to which moment of ending the rows of a kind are in the figures."""

    kind = models.SmallIntegerField(primary_key=True, choices=KIND_CHOICES)
    up_to = models.DateTimeField()

    class Meta:
        db_table = "figures_up_to"


class LiveFigure(models.Model):
    """How many rows of a kind wait in a state, as counted last. Read where counting at once would read too many rows."""

    pk = models.CompositePrimaryKey("kind", "status")
    kind = models.SmallIntegerField(choices=KIND_CHOICES)
    status = models.TextField()
    n = models.BigIntegerField()
    overdue = models.BigIntegerField()
    oldest_at = models.DateTimeField()

    class Meta:
        db_table = "live_figure"


class JobFigure(models.Model):
    """How many jobs of a kind a queue holds, as counted last. Read where counting at once would read too many rows."""

    pk = models.CompositePrimaryKey("queue", "kind")
    queue = models.TextField()
    kind = models.SmallIntegerField()
    n = models.BigIntegerField()
    leased = models.BigIntegerField()
    visible = models.BigIntegerField()
    oldest_visible_at = models.DateTimeField(null=True)
    highest_attempt = models.IntegerField()

    class Meta:
        db_table = "job_figure"
