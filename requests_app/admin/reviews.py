"""The needs_review queue: one list over all kinds, and the case with its evidence and its deeds."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.core.exceptions import BadRequest, PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect, StreamingHttpResponse
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from unfold.decorators import display

from requests_app import assignments
from requests_app.admin import cells, review_bulk
from requests_app.admin.base import ExtraPages, RecordAdmin
from requests_app.admin.case_deeds import CaseDeeds, situation
from requests_app.admin.case_offers import offers
from requests_app.admin.case_parts import DECIDE, assignment, objections, open_decision, progress
from requests_app.admin.dashboard import overview_context
from requests_app.admin.explain import reason
from requests_app.admin.forms import DeedForms
from requests_app.admin.keyset import PLACE
from requests_app.admin.page import Facts, Notice, Section
from requests_app.admin.payments import payment_sections
from requests_app.admin.review_filters import (
    AgeFilter,
    AssigneeFilter,
    ClientFilter,
    SecondFilter,
    StatusFilter,
    search,
    with_assignee,
)
from requests_app.admin.source_deeds import carry_out_case, case_sections
from requests_app.admin.subject import question, sending, standing, timeline
from requests_app.models import PaymentIntent, ReviewCase
from requests_app.models.commands import Target, subject_name
from requests_app.models.reviews import ReviewAction
from requests_app.store.session import web_connection

EXPORT_ROWS: Final = 10_000
SAVED_VIEWS: Final[tuple[tuple[str, dict[str, str]], ...]] = (
    ("Open", {}),
    ("Mine", {"assignee": "me"}),
    ("Unassigned", {"assignee": "nobody"}),
    ("Waiting over an hour", {"age": "1h"}),
    ("Needs a second person", {"second": "waits"}),
    ("Closed", {"case": "closed"}),
)


class Echo:
    """A file that gives back what is written to it."""

    def write(self, value: str) -> str:
        """The value itself."""
        return value


@admin.register(ReviewCase)
class ReviewAdmin(ExtraPages, RecordAdmin):
    """Requests whose outcome cannot be proven, oldest first."""

    list_display = ("case", "of", "why", "state", "waiting", "owner", "opened")
    list_display_links = ("case",)
    list_filter = (StatusFilter, AssigneeFilter, SecondFilter, AgeFilter, "kind", "reason_code", ClientFilter)
    search_fields = ("=id",)
    search_help_text = "Job or payment id, any transaction hash, reference id or payment ref, row number, address of signer, payer or merchant (exact)"
    ordering = ("opened_at", "id")
    indexed_filters = ("case", "age")
    actions = ("bulk_resume", "bulk_acknowledge")  # type: ignore[assignment]
    extra_pages = (
        ("overview/", "relayer_overview", "overview_view"),
        ("export/", "relayer_case_export", "export_view"),
        ("decide/", "relayer_case_bulk", "bulk_view"),
        ("<int:case_id>/progress/", "relayer_case_progress", "progress_view"),
        ("<int:case_id>/renew/", "relayer_case_renew", "renew_view"),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Cases with their assignee."""
        return with_assignee(super().get_queryset(request))

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Cases of the requests that an exact id names."""
        return (search(queryset, search_term) if search_term.strip() else queryset), False

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """The list under its saved views, with its export."""
        now = {key: value for key, value in request.GET.items() if value and key not in ("q", PLACE)}
        links = [(text, f"?{urlencode(view)}", now == view) for text, view in SAVED_VIEWS]
        export = reverse("admin:relayer_case_export")
        links.append(("CSV of this view", f"{export}?{request.GET.urlencode()}", False))
        note = "keys: j and k move, Enter opens, / searches"
        context = {**(extra_context or {}), "list_links": links, "list_note": note}
        return super().changelist_view(request, context)

    def has_decide_permission(self, request: HttpRequest) -> bool:
        """Who may use the list's actions."""
        return bool(request.user.has_perm(DECIDE))

    @admin.action(description="Broadcast the same bytes again …", permissions=["decide"])
    def bulk_resume(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse:
        """Preview of broadcasting the stored bytes of many cases again."""
        return self._preview(request, queryset, ReviewAction.RESUME)

    @admin.action(description="Take note and close …", permissions=["decide"])
    def bulk_acknowledge(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse:
        """Preview of closing the cases of requests that have ended."""
        return self._preview(request, queryset, ReviewAction.ACKNOWLEDGE)

    def _preview(self, request: HttpRequest, queryset: QuerySet[Any], action: ReviewAction) -> HttpResponse:
        cases = list(queryset.order_by("opened_at", "id")[: review_bulk.LIMIT + 1])
        return review_bulk.preview(self, request, cases, action)

    def bulk_view(self, request: HttpRequest) -> HttpResponse:
        """The confirmed form of a preview."""
        if not self.has_decide_permission(request):
            raise PermissionDenied
        return review_bulk.carry_out(self, request) if request.method == "POST" else HttpResponseNotAllowed(["POST"])

    def export_view(self, request: HttpRequest) -> StreamingHttpResponse:
        """The list as it is filtered now, as CSV of at most EXPORT_ROWS rows."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        try:
            found = self.get_changelist_instance(request).get_queryset(request)[:EXPORT_ROWS]
        except IncorrectLookupParameters:
            raise BadRequest("no such filter") from None
        answer = StreamingHttpResponse(csv_lines(found), content_type="text/csv; charset=utf-8")
        answer["Content-Disposition"] = 'attachment; filename="review-cases.csv"'
        return answer

    @display(description="Case", ordering="id")
    def case(self, obj: ReviewCase) -> Any:
        """The case number; links to the page."""
        return format_html('<span class="rl-time">Case {}</span>', obj.pk)

    @display(description="About")
    def of(self, obj: ReviewCase) -> Any:
        """The request that stopped."""
        return cells.subject(obj.kind, obj.subject_id)

    @display(description="Why it stopped", ordering="reason_code")
    def why(self, obj: ReviewCase) -> Any:
        """The reason in words."""
        return cells.wrapped(reason(obj.reason_code).headline)

    @display(description="Status")
    def state(self, obj: ReviewCase) -> Any:
        """Open or closed."""
        return cells.badge(obj.status)

    @display(description="Assigned to")
    def owner(self, obj: Any) -> Any:
        """Who works on it."""
        return obj.assignee or cells.NOTHING

    @display(description="Waiting", ordering="opened_at")
    def waiting(self, obj: ReviewCase) -> Any:
        """How long it has waited for a person."""
        return cells.age(obj.opened_at) if obj.status == "open" else cells.NOTHING

    @display(description="Opened")
    def opened(self, obj: ReviewCase) -> Any:
        """When it was opened."""
        return cells.short_moment(obj.opened_at)

    def act(self, request: HttpRequest, obj: Any) -> HttpResponse | None:
        """A deed of the page."""
        if obj.kind == Target.SOURCE:
            carry_out_case(request, self, obj)
            return HttpResponseRedirect(self.page_url(obj))

        def page(top: list[Section], status: int) -> HttpResponse:
            context = {"sections": [*top, *self.sections(request, obj)], "links": self.links(request, obj)}
            answer = self.render_page(request, self.page_title(obj), context)
            answer.status_code = status
            return answer

        return CaseDeeds(self, request, obj, page).run()

    def sections(self, request: HttpRequest, obj: Any) -> Sequence[Section]:
        """Why it stopped, what was decided and may be, the evidence, what was asked, what was signed, what happened."""
        if obj.kind == Target.SOURCE:
            return [_why(obj), *case_sections(request, obj), _facts(obj)]
        now = situation(obj)
        holder = assignments.assigned(web_connection(), obj.pk)
        pending = open_decision(obj.pk)
        parts: list[Section | None] = [_why(obj), progress(request, obj), objections(request, pending)]
        parts.append(assignment(request, obj, holder))
        if holder is not None and holder.reviewer == request.user.get_username() and pending is None:
            hidden = {"version": str(obj.version), "epoch": str(holder.epoch)}
            forms, refused = offers(now, hidden, request.POST)
            note = "nothing is sent from here; the signer's owner carries it out and judges again"
            if obj.status == "open" and request.user.has_perm(DECIDE):
                parts.append(DeedForms("What you can decide", note, forms, refused, request.POST.get("deed", "")))
        parts.append(_facts(obj))
        if isinstance(now.row, PaymentIntent):
            parts += payment_sections(now.row)
        elif now.row is None:
            gone = "Its row left by retention; the case remains."
            parts.append(Notice(f"The {now.noun} is no longer kept", gone, "warn"))
        else:
            row = now.row
            parts += [
                Facts("The request", standing(row)),
                *sending(row.kind, row.pk, "request"),
                question(row),
                timeline(row),
            ]
        return [part for part in parts if part is not None]

    def links(self, request: HttpRequest, obj: Any) -> Sequence[tuple[str, str]]:
        """The request's own page, and the queue."""
        return [
            ("All open cases", reverse("admin:requests_app_reviewcase_changelist")),
            (f"The {cells.kind_words(obj.kind)} itself", cells.subject_url(obj.kind, obj.subject_id)),
        ]

    def page_title(self, obj: ReviewCase) -> str:
        """Case number and kind."""
        return f"Case {obj.pk}: {cells.kind_words(obj.kind)} #{obj.subject_id}"

    def overview_view(self, request: HttpRequest) -> HttpResponse:
        """The first page's body alone, for its refresh without reload."""
        return TemplateResponse(request, "admin/relayer/overview.html", overview_context(request))

    def progress_view(self, request: HttpRequest, case_id: int) -> HttpResponse:
        """The decisions alone; once none is under way the whole page is asked to come anew."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        section = progress(request, get_object_or_404(ReviewCase, pk=case_id))
        answer = TemplateResponse(request, "admin/relayer/progress.html", {"section": section})
        if section is None or not section.url:
            answer["HX-Refresh"] = "true"
        return answer

    def renew_view(self, request: HttpRequest, case_id: int) -> HttpResponse:
        """Keep the case for the reader while the page is open, and say when what the page shows is old."""
        if not self.has_decide_permission(request):
            raise PermissionDenied
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        case = get_object_or_404(ReviewCase, pk=case_id)
        epoch, version = request.POST.get("epoch", ""), request.POST.get("version", "")
        if not (epoch.isdecimal() and len(epoch) < 18) or not assignments.renew(
            web_connection(), case_id, int(request.user.pk or 0), int(epoch)
        ):
            return HttpResponse("The case is no longer yours: load the page anew and take it again.")
        if version != str(case.version) or case.status != "open":
            return HttpResponse("The case has changed since this page was drawn: load it anew.")
        return HttpResponse("Yours while this page is open.")


def _why(case: ReviewCase) -> Notice:
    words = reason(case.reason_code)
    return Notice(
        words.headline,
        f"{words.happened} What usually follows: {words.usually}",
        "review" if case.status == "open" else "info",
        [f"Look at {point}." for point in words.look_at],
    )


def _facts(case: ReviewCase) -> Facts:
    return Facts(
        "The case",
        [
            ("Status", cells.badge(case.status)),
            ("Reason code", case.reason_code),
            ("Opened", cells.moment(case.opened_at)),
            ("Waiting", cells.age(case.opened_at) if case.status == "open" else cells.NOTHING),
            ("Closed", cells.moment(case.closed_at)),
            ("Outcome", case.outcome or cells.NOTHING),
            ("Evidence when it stopped", cells.document(case.evidence)),
        ],
    )


def csv_lines(cases: QuerySet[Any]) -> Iterator[str]:
    """The header and one line a case. A text that a spreadsheet would take for a formula is quoted."""
    writer = csv.writer(Echo())
    yield writer.writerow(
        ("case", "kind", "request", "reason", "status", "assigned_to", "opened_at", "closed_at", "outcome")
    )
    for one in cases.iterator(chunk_size=500):
        times = [moment.isoformat() if moment else "" for moment in (one.opened_at, one.closed_at)]
        texts = [_cell(text) for text in (one.reason_code, one.status, one.assignee or "")]
        yield writer.writerow(
            (one.pk, subject_name(one.kind).replace("_", "-"), one.subject_id, *texts, *times, _cell(one.outcome or ""))
        )


def _cell(text: str) -> str:
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
