"""The queue's deeds for many cases at once: a preview of what each would do, then one reason and one confirmation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from requests_app import assignments, decisions
from requests_app.admin import cells
from requests_app.admin.case_deeds import NEEDS_REASON, situation
from requests_app.admin.case_offers import TITLES, refusal
from requests_app.admin.case_parts import open_decision
from requests_app.admin.explain import reason as words_of
from requests_app.admin.forms import DeedForm, posted_reason, reason_input
from requests_app.admin.page import Section, Table
from requests_app.decisions import Decided
from requests_app.models import ReviewCase
from requests_app.models.reviews import ReviewAction
from requests_app.store.session import web_connection

LIMIT: Final = 50
ACTIONS: Final = (ReviewAction.RESUME, ReviewAction.ACKNOWLEDGE)
_OUTCOMES: Final = {
    Decided.COMMANDED: ("decided", "good"),
    Decided.AWAITING_SECOND: ("waits for a second person", "review"),
    Decided.ALREADY_DECIDED: ("somebody decided first", "warn"),
    Decided.WITHDRAWN: ("withdrawn", "neutral"),
    Decided.STALE: ("changed since the preview", "warn"),
    Decided.NOT_FOUND: ("no longer kept", "warn"),
    Decided.FORBIDDEN: ("not allowed", "bad"),
    Decided.LEASE_LOST: ("somebody else works on it", "warn"),
}


def preview(admin: Any, request: HttpRequest, cases: Sequence[ReviewCase], action: ReviewAction) -> HttpResponse:
    """What the deed would do to each case; those it does not fit are left out, with why."""
    rows, fitting = [], []
    for case in cases[:LIMIT]:
        why = _why_not(request, case, action)
        if why is None:
            fitting.append(f"{case.pk}:{case.version}")
        fate = cells.toned("will be decided", "good") if why is None else cells.toned("left out", "neutral")
        rows.append(
            (
                f"Case {case.pk}",
                cells.subject(case.kind, case.subject_id),
                words_of(case.reason_code).headline,
                fate,
                cells.wrapped(why),
            )
        )
    headers = ("Case", "About", "Why it stopped", "Fate", "Why left out")
    note = f"the first {LIMIT} of them" if len(cases) > LIMIT else ""
    sections: list[Section] = [Table(f"{len(rows)} chosen", headers, rows, note=note)]
    if fitting:
        hidden = {"bulk": action.value, "cases": " ".join(fitting)}
        text = f"Decides “{TITLES[action]}” for {len(fitting)} cases, each with its own decision and command, all with this reason."
        inputs = [reason_input(request.POST.get("reason", ""))]
        sections.append(
            DeedForm(
                "Confirm",
                text,
                "bulk",
                f"Decide {len(fitting)} cases",
                inputs,
                hidden,
                tone="warn",
                action=reverse("admin:relayer_case_bulk"),
            )
        )
    return _page(admin, request, f"{TITLES[action]}: preview", sections)


def carry_out(admin: Any, request: HttpRequest) -> HttpResponse:
    """Decide the confirmed cases one by one; each is taken first, so that nobody is run over."""
    action = next((one for one in ACTIONS if one.value == request.POST.get("bulk")), None)
    chosen = _chosen(request.POST.get("cases", ""))
    if action is None or not chosen:
        return _page(admin, request, "Nothing was done", [], 400)
    reason = posted_reason(request)
    if not reason:
        admin.message_user(request, NEEDS_REASON, messages.ERROR)
        return preview(admin, request, list(ReviewCase.objects.filter(pk__in=chosen).order_by("opened_at")), action)
    rows = []
    for case in ReviewCase.objects.filter(pk__in=chosen).order_by("opened_at"):
        words, tone = _OUTCOMES[_decide(request, case, chosen[case.pk], action, reason)]
        rows.append(
            (
                cells.link(f"Case {case.pk}", admin.page_url(case)),
                cells.subject(case.kind, case.subject_id),
                cells.toned(words, tone),
            )
        )
    return _page(admin, request, TITLES[action], [Table("What became of each", ("Case", "About", "Decision"), rows)])


def _decide(request: HttpRequest, case: ReviewCase, version: int, action: ReviewAction, reason: str) -> Decided:
    person = int(request.user.pk or 0)
    conn = web_connection()
    if _why_not(request, case, action) is not None:
        return Decided.STALE
    hold = assignments.assign(conn, case.pk, person)
    if hold is None:
        return Decided.FORBIDDEN
    if hold.reviewer != request.user.get_username():
        return Decided.LEASE_LOST
    made = decisions.decide(
        conn, case_id=case.pk, version=version, action=action, reason=reason, reviewer_id=person, held=hold.held
    )
    return made.outcome


def _why_not(request: HttpRequest, case: ReviewCase, action: ReviewAction) -> str | None:
    why = refusal(action, situation(case))
    if why is not None:
        return why
    pending = open_decision(case.pk)
    if pending is not None:
        return f"{pending.decided_by} has decided already"
    holder = assignments.assigned(web_connection(), case.pk)
    if holder is not None and holder.reviewer != request.user.get_username():
        return f"{holder.reviewer} works on it"
    return None


def _chosen(text: str) -> dict[int, int]:
    """Case numbers with the version of the preview; what is malformed is left out."""
    pairs = [part.split(":") for part in text.split()[:LIMIT]]
    return {
        int(pair[0]): int(pair[1])
        for pair in pairs
        if len(pair) == 2 and all(one.isascii() and one.isdigit() and len(one) <= 18 for one in pair)
    }


def _page(admin: Any, request: HttpRequest, title: str, sections: list[Section], status: int = 200) -> HttpResponse:
    links = [("All open cases", reverse("admin:requests_app_reviewcase_changelist"))]
    answer: HttpResponse = admin.render_page(request, title, {"sections": sections, "links": links})
    answer.status_code = status
    return answer
