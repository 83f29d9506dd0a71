"""What a POST to a case's page does: take it, give it back, ask the nodes, decide, confirm, withdraw. Nothing is sent to a chain from here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from requests_app import assignments, decisions
from requests_app.admin.case_offers import Situation, Unreadable, parameters_of, refusal
from requests_app.admin.case_parts import APPROVE, DECIDE, probe_sections, question_of
from requests_app.admin.forms import posted_reason
from requests_app.admin.page import Notice, Section
from requests_app.admin.subject import find_subject
from requests_app.decisions import Decided, Decision
from requests_app.errors import ConfigurationError
from requests_app.models import ReviewCase
from requests_app.models.commands import Target
from requests_app.models.reviews import ReviewAction
from requests_app.probing import prober
from requests_app.states import Kind
from requests_app.store.commands import slot_of
from requests_app.store.queue import Subject
from requests_app.store.session import web_connection

NEEDS_REASON: Final = "Say why: a decision without a reason is not taken."
STALE: Final = "The case has changed since you read it. Nothing was done; below is how it stands now."
WORDS: Final[dict[Decided, tuple[int, str]]] = {
    Decided.COMMANDED: (messages.SUCCESS, "Decided. The signer's owner carries it out; the outcome appears below."),
    Decided.AWAITING_SECOND: (messages.SUCCESS, "Decided. It waits for a second person."),
    Decided.ALREADY_DECIDED: (messages.WARNING, "Somebody decided first: {by}. Nothing was done."),
    Decided.WITHDRAWN: (messages.SUCCESS, "The decision is withdrawn; the case stays open."),
    Decided.STALE: (messages.WARNING, STALE),
    Decided.NOT_FOUND: (messages.ERROR, "The case or what it is about is no longer kept."),
    Decided.FORBIDDEN: (
        messages.ERROR,
        "You may not decide this: your account was disabled, or it is not yours to say as the person that you are.",
    ),
    Decided.LEASE_LOST: (messages.WARNING, "The case is no longer yours. Nothing was done; take it again to decide."),
}


def situation(case: ReviewCase) -> Situation:
    """The case with its request and nonce, as they are now."""
    if case.kind == Target.SOURCE:
        return Situation(case, None, None)
    subject = Subject(Kind(case.kind), case.subject_id)
    return Situation(case, find_subject(case.kind, case.subject_id), slot_of(web_connection(), subject))


class CaseDeeds:
    """Carries out one POST. `page(sections, status)` shows the case again with something on top."""

    def __init__(
        self, admin: Any, request: HttpRequest, case: ReviewCase, page: Callable[[list[Section], int], HttpResponse]
    ) -> None:
        self.admin = admin
        self.request = request
        self.case = case
        self.page = page

    def run(self) -> HttpResponse:
        """Do what the form says. Raises PermissionDenied."""
        deed = self.request.POST.get("deed", "")
        if not self.request.user.has_perm(APPROVE if deed in ("confirm", "refuse") else DECIDE):
            raise PermissionDenied
        if deed in ("confirm", "refuse", "withdraw"):
            return self._proposal(deed)
        match deed:
            case "assign":
                return self._assign()
            case "give_up":
                name = self.request.user.get_username()
                assignments.give_up(web_connection(), self.case.pk, name, self._number("epoch"))
                return self._back()
            case "probe":
                return self._probe()
        try:
            return self._decide(ReviewAction(deed))
        except ValueError:
            return self._refuse("This page knows no such deed.")

    def _assign(self) -> HttpResponse:
        found = assignments.assign(web_connection(), self.case.pk, self._person())
        if found is None:
            raise PermissionDenied
        if found.reviewer != self.request.user.get_username():
            self.admin.message_user(self.request, f"{found.reviewer} was first.", messages.WARNING)
        return self._back()

    def _probe(self) -> HttpResponse:
        now = situation(self.case)
        if now.row is None:
            return self._refuse(f"The {now.noun} is no longer kept.")
        try:
            reports = prober().ask(question_of(now.row, now.slot))
        except ConfigurationError as error:
            return self._refuse(str(error))
        return self.page(probe_sections(now, reports), 200)

    def _decide(self, action: ReviewAction) -> HttpResponse:
        reason = posted_reason(self.request)
        now = situation(self.case)
        if not reason:
            return self._refuse(NEEDS_REASON)
        if self._number("version") != self.case.version:
            return self._stale(STALE)
        why = refusal(action, now)
        if why is not None:
            return self._stale(f"Not done: {why}.")
        try:
            parameters = parameters_of(action, self.request.POST, now)
        except Unreadable as error:
            return self._refuse(str(error))
        name = self.request.user.get_username()
        made = decisions.decide(
            web_connection(),
            case_id=self.case.pk,
            version=self._number("version"),
            action=action,
            reason=reason,
            reviewer_id=self._person(),
            parameters=parameters,
            held=decisions.Held(assignments.instance_of(name), self._number("epoch")),
        )
        return self._told(made)

    def _proposal(self, deed: str) -> HttpResponse:
        """What is said of a decision that waits for its second person: by that one, or by the first."""
        decision_id = self._number("decision")
        if not self.case.reviewdecision_set.filter(pk=decision_id).exists():
            return self._refuse("This case has no such decision.")
        conn, person = web_connection(), self._person()
        if deed == "confirm":
            return self._told(decisions.approve(conn, decision_id=decision_id, reviewer_id=person))
        reason = posted_reason(self.request)
        if not reason:
            return self._refuse(NEEDS_REASON)
        second = deed == "refuse"
        return self._told(
            decisions.withdraw(conn, decision_id=decision_id, reviewer_id=person, reason=reason, second=second)
        )

    def _told(self, made: Decision) -> HttpResponse:
        level, text = WORDS[made.outcome]
        text = text.format(by=made.by or "a colleague")
        if made.outcome in (Decided.COMMANDED, Decided.AWAITING_SECOND, Decided.WITHDRAWN):
            self.admin.message_user(self.request, text, level)
            return self._back()
        if made.outcome is Decided.FORBIDDEN:
            return self.page([Notice("Not allowed", text, "bad")], 403)
        return self._stale(text)

    def _stale(self, text: str) -> HttpResponse:
        """Fresh evidence instead of acting."""
        self.case.refresh_from_db()
        return self.page([Notice("Nothing was done", text, "warn")], 409)

    def _refuse(self, text: str) -> HttpResponse:
        return self.page([Notice("Nothing was done", text, "bad")], 400)

    def _back(self) -> HttpResponse:
        return HttpResponseRedirect(self.admin.page_url(self.case))

    def _person(self) -> int:
        return int(self.request.user.pk or 0)

    def _number(self, name: str) -> int:
        """A whole number of the form; 0 for anything else."""
        text = self.request.POST.get(name, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else 0
