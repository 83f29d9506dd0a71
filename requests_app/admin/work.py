"""What waits and who works: jobs, leases, heartbeats, commands."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from django.contrib import admin
from django.contrib.admin import SimpleListFilter
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from unfold.decorators import display

from requests_app.admin import cells
from requests_app.admin.base import RecordAdmin
from requests_app.admin.case_parts import OUTCOME_TONES
from requests_app.admin.page import Facts, Section
from requests_app.models import Command, ExecLease, QueueJob, WorkerBeat
from requests_app.states import Kind
from requests_app.store.intents import SETTLE
from requests_app.store.queue import READY, SEND

QUEUES: Final = (READY, SEND, SETTLE)


def _short(text: str) -> Any:
    """A name on one line; a long one shortened, whole in the tooltip."""
    body = text if len(text) <= 34 else f"{text[:26]}…{text[-6:]}"
    return format_html('<span class="rl-time" title="{}">{}</span>', text, body)


def _seconds_until(moment: datetime) -> float:
    return (moment - datetime.now(UTC)).total_seconds()


class QueueFilter(SimpleListFilter):
    """Which queue: the names are known, so the table is not asked for them."""

    title = "queue"
    parameter_name = "queue"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """The queues that exist."""
        return [(name, name) for name in QUEUES]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Jobs of that queue."""
        return queryset.filter(queue=self.value()) if self.value() in QUEUES else queryset


@admin.register(QueueJob)
class JobAdmin(RecordAdmin):
    """Jobs that are not acknowledged yet."""

    list_display = ("job_key", "of", "queue", "state", "attempt", "priority", "holder", "waiting")
    list_filter = (QueueFilter, "kind")
    search_fields = ("=job_key",)
    search_help_text = "Job key, kind/row number (exact)"
    ordering = ("id",)

    def page_title(self, obj: QueueJob) -> str:
        """What it carries."""
        return f"Job of {cells.kind_words(obj.kind)} #{obj.subject_id}"

    def sections(self, request: HttpRequest, obj: Any) -> Sequence[Section]:
        """What it carries, where it stands and who has it."""
        facts: list[tuple[str, Any]] = [
            ("State", self.state(obj)),
            ("About", self.of(obj)),
            ("Job key", cells.code(obj.job_key, 34)),
            ("Queue", obj.queue),
            ("Attempt", obj.attempt),
            ("Priority", obj.priority),
            ("Leased by", self.holder(obj)),
            ("Claimable from", cells.moment(obj.visible_at)),
            ("In queue since", cells.moment(obj.enqueued_at)),
        ]
        return [Facts("Job", facts)]

    @display(description="About")
    def of(self, obj: QueueJob) -> Any:
        """The request or payment that the job carries."""
        return cells.subject(obj.kind, obj.subject_id)

    @display(description="State")
    def state(self, obj: QueueJob) -> Any:
        """Leased, waiting for its time, or claimable."""
        left = _seconds_until(obj.visible_at)
        if left > 0:
            word, tone = ("leased", "info") if obj.leased_by else ("waits", "neutral")
            return cells.toned(f"{word} {cells.duration(left)}", tone)
        return cells.toned("claimable", "good")

    @display(description="Leased by")
    def holder(self, obj: QueueJob) -> Any:
        """Who has it; whose lease has run out is only the last who had it."""
        if not obj.leased_by:
            return cells.NOTHING
        return obj.leased_by if _seconds_until(obj.visible_at) > 0 else f"{obj.leased_by}, run out"

    @display(description="In queue for")
    def waiting(self, obj: QueueJob) -> Any:
        """Time since it was enqueued."""
        return cells.age(obj.enqueued_at)


@admin.register(ExecLease)
class LeaseAdmin(RecordAdmin):
    """Execution leases: one row a resource."""

    list_display = ("name", "state", "holder", "epoch", "held", "renewed")
    search_fields = ("=resource",)
    search_help_text = "Resource (exact)"
    ordering = ("resource",)

    def sections(self, request: HttpRequest, obj: Any) -> Sequence[Section]:
        """Who holds it, since when and until when."""
        facts: list[tuple[str, Any]] = [
            ("State", self.state(obj)),
            ("Resource", cells.code(obj.resource, 64)),
            ("Holder", cells.wrapped(obj.instance)),
            ("Epoch", cells.number(obj.epoch)),
            ("Taken", cells.moment(obj.acquired_at)),
            ("Renewed", cells.moment(obj.renewed_at)),
            ("Lasts until", cells.moment(obj.lease_until)),
            ("Found", obj.how.replace("_", " ")),
        ]
        return [Facts("Lease", facts)]

    @display(description="State")
    def state(self, obj: ExecLease) -> Any:
        """Live with its remaining time, or expired."""
        left = _seconds_until(obj.lease_until)
        return cells.toned(f"live {cells.duration(left)}", "good") if left > 0 else cells.toned("expired", "neutral")

    @display(description="Resource", ordering="resource")
    def name(self, obj: ExecLease) -> Any:
        """The resource, a long one shortened; links to the page."""
        return _short(obj.resource)

    @display(description="Holder")
    def holder(self, obj: ExecLease) -> Any:
        """Who holds it."""
        return _short(obj.instance)

    @display(description="Held for")
    def held(self, obj: ExecLease) -> Any:
        """Time since this holder took it."""
        return cells.age(obj.acquired_at)

    @display(description="Renewed")
    def renewed(self, obj: ExecLease) -> Any:
        """Time since the last renewal."""
        return cells.age(obj.renewed_at)


@admin.register(WorkerBeat)
class BeatAdmin(RecordAdmin):
    """Signs of life of every loop."""

    list_display = ("name", "holder", "beat", "turn", "pid", "host")
    ordering = ("resource",)

    @display(description="Resource", ordering="resource")
    def name(self, obj: WorkerBeat) -> Any:
        """The resource, a long one shortened; links to the page."""
        return _short(obj.resource)

    @display(description="Process")
    def holder(self, obj: WorkerBeat) -> Any:
        """Whose sign of life it is."""
        return _short(obj.instance)

    @display(description="Last beat")
    def beat(self, obj: WorkerBeat) -> Any:
        """Time since the beat thread wrote."""
        return cells.age(obj.at)

    @display(description="Last turn")
    def turn(self, obj: WorkerBeat) -> Any:
        """Time since the loop itself came round."""
        return cells.age(obj.turn_at)


@admin.register(Command)
class CommandAdmin(RecordAdmin):
    """The command box: decisions and what became of them."""

    list_display = ("name", "kind", "on", "progress", "became", "requested_by", "asked")
    list_display_links = ("name",)
    list_filter = ("state", "kind")
    search_fields = ("=command_id",)
    search_help_text = "Command id (exact)"
    ordering = ("-created_at",)

    def sections(self, request: HttpRequest, obj: Any) -> Sequence[Section]:
        """What was asked of whom, and what became of it."""
        asked: list[tuple[str, Any]] = [
            ("State", self.progress(obj)),
            ("Kind", obj.kind.replace("_", " ")),
            ("About", self.on(obj)),
            ("Carried out by", cells.code(obj.resource, 64)),
            ("Requested by", obj.requested_by),
            ("Asked", cells.moment(obj.created_at)),
            ("Only in state", cells.badge(obj.expected_status)),
            ("Only in epoch", cells.number(obj.epoch)),
            ("Payload", cells.document(obj.payload)),
            ("Payload hash", cells.hex_code(obj.payload_hash)),
        ]
        done: list[tuple[str, Any]] = [
            ("Outcome", self.became(obj)),
            ("Attempts", cells.number(obj.attempts)),
            ("Taken by", obj.claimed_by or cells.NOTHING),
            ("Taken until", cells.moment(obj.claim_until)),
            ("Done by", obj.consumer or cells.NOTHING),
            ("Done", cells.moment(obj.consumed_at)),
            ("Epoch", cells.number(obj.consumed_epoch)),
            ("Result", cells.document(obj.result)),
        ]
        return [Facts("What was asked", asked), Facts("What became of it", done)]

    @display(description="Command", ordering="command_id")
    def name(self, obj: Command) -> Any:
        """The command's id, a long one shortened; links to the page."""
        return _short(obj.command_id)

    @display(description="Outcome")
    def became(self, obj: Command) -> Any:
        """What became of it."""
        return cells.toned(obj.outcome, OUTCOME_TONES.get(obj.outcome, "neutral")) if obj.outcome else cells.NOTHING

    @display(description="About")
    def on(self, obj: Command) -> Any:
        """The request or resource it is about."""
        return (
            cells.subject(obj.target_kind, obj.target_id)
            if obj.target_kind in {kind.value for kind in Kind}
            else _short(obj.resource)
        )

    @display(description="State")
    def progress(self, obj: Command) -> Any:
        """How far it is."""
        return cells.badge(obj.state)

    @display(description="Asked")
    def asked(self, obj: Command) -> Any:
        """When it was written."""
        return cells.short_moment(obj.created_at)
