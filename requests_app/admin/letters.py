"""Dead letters: jobs that were given up, and what a person does with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from unfold.decorators import display

from requests_app.admin import cells
from requests_app.admin.base import RecordAdmin
from requests_app.admin.forms import DeedForm, DeedForms, lock_author
from requests_app.admin.page import Facts, Section
from requests_app.models import DeadLetter
from requests_app.models.jobs import LetterStatus
from requests_app.store import letters
from requests_app.store.session import transaction, web_connection

PERMISSION: Final = "requests_app.decide_review"
_REDRIVE: Final = "redrive"
_DROP: Final = "drop"


@admin.register(DeadLetter)
class LetterAdmin(RecordAdmin):
    """Newest first; a parked one can be redriven or dropped, once."""

    list_display = ("number", "of", "progress", "queue", "attempts", "given_up", "why", "parked")
    list_display_links = ("number",)
    list_filter = ("status",)
    search_fields = ("=job_key",)
    search_help_text = "Job key, for example pi_…/settle (exact)"
    ordering = ("-id",)

    def sections(self, request: HttpRequest, obj: Any) -> Sequence[Section]:
        """What was given up and why; the deeds while it is parked."""
        facts: list[tuple[str, Any]] = [
            ("Status", cells.badge(obj.status)),
            ("Job", cells.code(obj.job_key, 40)),
            ("About", cells.subject(obj.kind, obj.subject_id)),
            ("Queue", obj.queue),
            ("Attempts", obj.attempts),
            ("Given up", f"{obj.cycles}×"),
            ("Why", cells.wrapped(obj.reason)),
            ("Its state then", cells.badge(obj.subject_state)),
            ("Parked", cells.moment(obj.parked_at)),
            ("Resolved by", obj.resolved_by or cells.NOTHING),
            ("Resolved", cells.moment(obj.resolved_at)),
        ]
        sections: list[Section] = [Facts("Letter", facts)]
        if obj.status == LetterStatus.PARKED.value and request.user.has_perm(PERMISSION):
            sections.insert(0, DeedForms("What you can do", "once, and for good", _forms()))
        return sections

    def page_title(self, obj: DeadLetter) -> str:
        """What was given up."""
        return f"Dead letter of {cells.kind_words(obj.kind)} #{obj.subject_id}"

    def act(self, request: HttpRequest, obj: Any) -> HttpResponse:
        """Redrive or drop. Raises PermissionDenied. Of two persons one has an effect."""
        if not request.user.has_perm(PERMISSION):
            raise PermissionDenied
        deed = request.POST.get("deed", "")
        if deed not in (_REDRIVE, _DROP):
            self.message_user(request, "This page knows no such deed.", messages.ERROR)
            return HttpResponseRedirect(self.page_url(obj))
        conn = web_connection()
        with transaction(conn):
            by = lock_author(conn, request)
            if deed == _DROP:
                level, text = _told(letters.drop(conn, obj.pk, by), "Dropped: the job is gone for good.")
            else:
                done = letters.redrive(conn, obj.pk, by)
                level, text = _told(done is not None, "Back in its queue, before all others.")
                if done is not None and not done.queued:
                    text = "Its payment had a job again already: the letter is closed, nothing was added."
        self.message_user(request, text, level)
        return HttpResponseRedirect(self.page_url(obj))

    @display(description="No.", ordering="id")
    def number(self, obj: DeadLetter) -> Any:
        """Row number."""
        return cells.number(obj.pk)

    @display(description="About")
    def of(self, obj: DeadLetter) -> Any:
        """The row whose job it was."""
        return cells.subject(obj.kind, obj.subject_id)

    @display(description="Status")
    def progress(self, obj: DeadLetter) -> Any:
        """Whether somebody has seen to it."""
        return cells.badge(obj.status)

    @display(description="Given up")
    def given_up(self, obj: DeadLetter) -> Any:
        """How often: a letter that was redriven may come back."""
        return f"{obj.cycles}×"

    @display(description="Why")
    def why(self, obj: DeadLetter) -> Any:
        """Why it was given up."""
        return cells.wrapped(obj.reason)

    @display(description="Parked")
    def parked(self, obj: DeadLetter) -> Any:
        """When it was given up."""
        return cells.short_moment(obj.parked_at)


def _told(happened: bool, text: str) -> tuple[int, str]:
    return (messages.SUCCESS, text) if happened else (messages.WARNING, "A colleague was first. Nothing was done.")


def _forms() -> list[DeedForm]:
    return [
        DeedForm(
            "Redrive",
            "The job goes back to its queue unchanged, before all others; its attempts begin anew.",
            _REDRIVE,
            "Redrive",
            [],
            {},
            ["The worker reads the row again: what needs nothing any more ends at once."],
            "good",
        ),
        DeedForm(
            "Drop",
            "The letter is closed and no job is made. The row stays as it is.",
            _DROP,
            "Drop",
            [],
            {},
            ["Sweeps make no job for a row whose letter is parked; once it is dropped they may again."],
            "bad",
        ),
    ]
