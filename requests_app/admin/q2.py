"""django-q2's own tables, in the desk's look and read-only: the clock and the shifts are started by code, not by hand."""

from __future__ import annotations

from django.contrib import admin
from django_q.models import Failure, OrmQ, Schedule, Success

from requests_app.admin.base import RecordAdmin

for model in (Failure, OrmQ, Schedule, Success):
    if admin.site.is_registered(model):
        admin.site.unregister(model)


@admin.register(Schedule)
class ScheduleAdmin(RecordAdmin):
    """The safety net that starts shifts when no successor was enqueued."""

    list_display = ("name", "func", "schedule_type", "repeats", "next_run", "cluster")
    ordering = ("id",)


@admin.register(OrmQ)
class QueuedTaskAdmin(RecordAdmin):
    """Shifts that wait for a worker."""

    list_display = ("id", "key", "lock")
    ordering = ("id",)


@admin.register(Failure)
class FailureAdmin(RecordAdmin):
    """Shifts that ended with an error."""

    list_display = ("name", "func", "started", "stopped", "attempt_count")
    ordering = ("-started",)


@admin.register(Success)
class SuccessAdmin(RecordAdmin):
    """Shifts that ended well (kept only when q2 is told to keep them)."""

    list_display = ("name", "func", "started", "stopped")
    ordering = ("-started",)
