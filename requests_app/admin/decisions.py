"""The record of decisions: who decided what about which case, who confirmed it, and which command it became."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse
from unfold.decorators import display

from requests_app.admin import cells
from requests_app.admin.base import RecordAdmin
from requests_app.admin.case_offers import TITLES
from requests_app.admin.case_parts import outcome_of, state_of
from requests_app.admin.page import Facts, Section
from requests_app.models import Command, ReviewDecision
from requests_app.models.reviews import ReviewAction


@admin.register(ReviewDecision)
class DecisionAdmin(RecordAdmin):
    """Decisions, newest first."""

    list_display = ("number", "of", "what", "decided_by", "second", "progress", "decided")
    list_display_links = ("number",)
    list_filter = ("state", "action")
    list_select_related = ("case",)
    search_fields = ("=command_id", "=decided_by", "=second_by")
    search_help_text = "Command id or reviewer (exact)"
    ordering = ("-id",)

    @display(description="No.", ordering="id")
    def number(self, obj: ReviewDecision) -> Any:
        """Row number."""
        return cells.number(obj.pk)

    @display(description="Case")
    def of(self, obj: ReviewDecision) -> Any:
        """The case; links to its page."""
        return cells.link(f"Case {obj.case_id}", reverse("admin:requests_app_reviewcase_change", args=(obj.case_id,)))

    @display(description="Decision")
    def what(self, obj: ReviewDecision) -> Any:
        """The action in words."""
        return TITLES[ReviewAction(obj.action)]

    @display(description="Second person")
    def second(self, obj: ReviewDecision) -> Any:
        """Who confirmed or refused it."""
        return obj.second_by or cells.NOTHING

    @display(description="State")
    def progress(self, obj: ReviewDecision) -> Any:
        """How far it is."""
        return state_of(obj, None)

    @display(description="Decided")
    def decided(self, obj: ReviewDecision) -> Any:
        """When."""
        return cells.short_moment(obj.decided_at)

    def page_title(self, obj: ReviewDecision) -> str:
        """The row number."""
        return f"Decision {obj.pk}"

    def sections(self, request: HttpRequest, obj: Any) -> Sequence[Section]:
        """The decision with its command's outcome."""
        command = Command.objects.filter(pk=obj.command_id).first() if obj.command_id else None
        page = reverse("admin:requests_app_command_change", args=(obj.command_id,)) if obj.command_id else ""
        facts: list[tuple[str, Any]] = [
            ("Case", self.of(obj)),
            ("Decision", self.what(obj)),
            ("Parameters", cells.document(obj.parameters)),
            ("Reason", cells.wrapped(obj.reason)),
            ("Decided by", obj.decided_by),
            ("Decided", cells.moment(obj.decided_at)),
            ("Second person", obj.second_by or cells.NOTHING),
            ("Confirmed or refused", cells.moment(obj.second_at)),
            ("Withdrawn by", obj.withdrawn_by or cells.NOTHING),
            ("Withdrawn", cells.moment(obj.withdrawn_at)),
            ("Why it was withdrawn", cells.wrapped(obj.withdrawn_reason) if obj.withdrawn_reason else cells.NOTHING),
            ("State", state_of(obj, command)),
            ("Command", cells.link(obj.command_id, page) if obj.command_id else cells.NOTHING),
            ("Outcome", outcome_of(command)),
        ]
        return [Facts("Decision", facts)]
