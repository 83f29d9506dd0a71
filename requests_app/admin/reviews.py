"""The needs_review queue: one list over all kinds, and the case with its evidence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.contrib.admin import SimpleListFilter
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from unfold.decorators import display

from requests_app.admin import cells
from requests_app.admin.base import ExtraPages, RecordAdmin
from requests_app.admin.dashboard import overview_context
from requests_app.admin.explain import reason
from requests_app.admin.page import Facts, Notice, Section
from requests_app.admin.requests import matching
from requests_app.admin.subject import MODELS, find_subject, question, sending, standing, timeline
from requests_app.models import ReviewCase
from requests_app.states import Kind


class StatusFilter(SimpleListFilter):
    """Open cases unless asked otherwise: this list is a queue, not an archive."""

    title = "status"
    parameter_name = "case"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Open is the default and needs no entry of its own."""
        return [("closed", "Closed"), ("all", "All")]

    def choices(self, changelist: Any) -> Any:
        """The default choice reads Open."""
        for index, choice in enumerate(super().choices(changelist)):
            yield {**choice, "display": "Open"} if index == 0 else choice

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Open, closed or all."""
        if self.value() == "all":
            return queryset
        return queryset.filter(status="closed" if self.value() == "closed" else "open")


@admin.register(ReviewCase)
class ReviewAdmin(ExtraPages, RecordAdmin):
    """Requests whose outcome cannot be proven, oldest first."""

    list_display = ("case", "of", "why", "state", "waiting", "opened")
    list_display_links = ("case",)
    list_filter = (StatusFilter, "kind", "reason_code")
    search_fields = ("=id",)
    search_help_text = "Job id, transaction hash, reference id or row number (exact)"
    ordering = ("opened_at", "id")
    extra_pages = (("overview/", "relayer_overview", "overview_view"),)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Cases of the requests that an exact id names."""
        if not search_term.strip():
            return queryset, False
        found = queryset.none()
        for kind, model in MODELS.items():
            condition = matching(kind.value, search_term)
            if condition is not None:
                found = found | queryset.filter(
                    kind=kind.value, subject_id__in=model._default_manager.filter(condition).values("pk")
                )
        return found, False

    @display(description="Case", ordering="id")
    def case(self, obj: ReviewCase) -> Any:
        """The case number; links to the page."""
        return f"Case {obj.pk}"

    @display(description="Request")
    def of(self, obj: ReviewCase) -> Any:
        """The request that stopped."""
        return cells.subject(obj.kind, obj.subject_id)

    @display(description="Why it stopped", ordering="reason_code")
    def why(self, obj: ReviewCase) -> Any:
        """The reason in words."""
        return reason(obj.reason_code).headline

    @display(description="Status")
    def state(self, obj: ReviewCase) -> Any:
        """Open or closed."""
        return cells.badge(obj.status)

    @display(description="Waiting", ordering="opened_at")
    def waiting(self, obj: ReviewCase) -> Any:
        """How long it has waited for a person."""
        return cells.age(obj.opened_at) if obj.status == "open" else cells.NOTHING

    @display(description="Opened")
    def opened(self, obj: ReviewCase) -> Any:
        """When it was opened."""
        return cells.short_moment(obj.opened_at)

    def sections(self, request: HttpRequest, obj: Any) -> Sequence[Section]:
        """Why it stopped, the evidence, what was asked, what was signed, what happened."""
        words = reason(obj.reason_code)
        notice = Notice(
            words.headline,
            f"{words.happened} What usually follows: {words.usually}",
            "review" if obj.status == "open" else "info",
            [f"Look at {point}." for point in words.look_at],
        )
        facts = Facts(
            "The case",
            [
                ("Status", cells.badge(obj.status)),
                ("Reason code", obj.reason_code),
                ("Opened", cells.moment(obj.opened_at)),
                ("Waiting", cells.age(obj.opened_at) if obj.status == "open" else cells.NOTHING),
                ("Closed", cells.moment(obj.closed_at)),
                ("Outcome", obj.outcome or cells.NOTHING),
                ("Evidence when it stopped", cells.document(obj.evidence)),
            ],
        )
        row = find_subject(obj.kind, obj.subject_id)
        if row is None:
            gone = Notice("The request is no longer kept", "Its row left by retention; the case remains.", "warn")
            return [notice, facts, gone]
        return [notice, facts, Facts("The request", standing(row)), question(row), *sending(row), timeline(row)]

    def links(self, request: HttpRequest, obj: Any) -> Sequence[tuple[str, str]]:
        """The request's own page, and the queue."""
        kind = Kind(obj.kind)
        return [
            ("All open cases", reverse("admin:requests_app_reviewcase_changelist")),
            (
                f"The {kind.slug.replace('-', ' ')} itself",
                reverse(f"admin:requests_app_{MODELS[kind]._meta.model_name}_change", args=(obj.subject_id,)),
            ),
        ]

    def page_title(self, obj: ReviewCase) -> str:
        """Case number and kind."""
        return f"Case {obj.pk}: {Kind(obj.kind).slug.replace('-', ' ')} #{obj.subject_id}"

    def overview_view(self, request: HttpRequest) -> HttpResponse:
        """The first page's body alone, for its refresh without reload."""
        return TemplateResponse(request, "admin/relayer/overview.html", overview_context(request))
