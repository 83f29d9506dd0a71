"""django-q2's own tables, in the desk's look and read-only: the clock and the shifts are started by code, not by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django_q.models import Failure, OrmQ, Schedule, Success
from unfold.decorators import display

from requests_app.admin import cells
from requests_app.admin.base import RecordAdmin
from requests_app.admin.page import Facts, Section

for model in (Failure, OrmQ, Schedule, Success):
    if admin.site.is_registered(model):
        admin.site.unregister(model)


def task_sections(obj: Any) -> Sequence[Section]:
    """A finished shift: when, where, how it ended. Its arguments are pickled and stay so."""
    facts = [
        ("Name", obj.name),
        ("Function", cells.code(obj.func, 60)),
        ("Cluster", obj.cluster or cells.NOTHING),
        ("Started", cells.moment(obj.started)),
        ("Stopped", cells.moment(obj.stopped)),
        ("Attempts", obj.attempt_count),
        ("Ended well", cells.plain(obj.success)),
        ("Result", cells.document(str(obj.result)) if obj.result is not None else cells.NOTHING),
    ]
    return [Facts("Shift", facts)]


@admin.register(Schedule)
class ScheduleAdmin(RecordAdmin):
    """The safety net that starts shifts when no successor was enqueued."""

    singular, plural = "schedule", "schedules"
    list_display = ("name", "func", "schedule_type", "repeats", "next", "cluster")
    ordering = ("id",)

    @display(description="Next run", ordering="next_run")
    def next(self, obj: Any) -> Any:
        """When it is due."""
        return cells.short_moment(obj.next_run)


@admin.register(OrmQ)
class QueuedTaskAdmin(RecordAdmin):
    """Shifts that wait for a worker."""

    singular, plural = "queued shift", "queued shifts"
    list_display = ("id", "key", "lock")
    ordering = ("id",)

    def sections(self, request: HttpRequest, obj: Any) -> Sequence[Section]:
        """The place in the queue; the signed payload is not shown."""
        return [Facts("Queued shift", [("Queue", obj.key), ("Claimable from", cells.moment(obj.lock))])]

    def page_title(self, obj: Any) -> str:
        """The row's number: q2's own text would unpack the payload."""
        return f"Queued shift {obj.pk}"


@admin.register(Failure)
class FailureAdmin(RecordAdmin):
    """Shifts that ended with an error."""

    singular, plural = "failed shift", "failed shifts"
    list_display = ("name", "func", "started", "stopped", "attempt_count")
    ordering = ("-started",)

    def sections(self, request: HttpRequest, obj: Any) -> Sequence[Section]:
        """How it ended."""
        return task_sections(obj)


@admin.register(Success)
class SuccessAdmin(RecordAdmin):
    """Shifts that ended well (kept only when q2 is told to keep them)."""

    singular, plural = "finished shift", "finished shifts"
    list_display = ("name", "func", "started", "stopped")
    ordering = ("-started",)

    def sections(self, request: HttpRequest, obj: Any) -> Sequence[Section]:
        """How it ended."""
        return task_sections(obj)
