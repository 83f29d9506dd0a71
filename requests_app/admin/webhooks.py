"""Webhooks of clients and what they were told. Read-only but for one deed: a failed delivery is sent again. No secret is ever shown.

A URL may carry a secret of its receiver, in its path or query: whole it is shown only to those who may do that deed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from unfold.decorators import display

from requests_app import services_webhooks as services
from requests_app.admin import cells
from requests_app.admin.base import RecordAdmin
from requests_app.admin.forms import DeedForm, DeedForms, lock_author, posted_reason, reason_input
from requests_app.admin.page import Facts, Section, Table
from requests_app.models import PaymentIntent, RequestClient, Webhook, WebhookDelivery
from requests_app.states import DeliveryState, Kind, WebhookState
from requests_app.store.session import transaction, web_connection
from requests_app.webhook_messages import message_id
from requests_app.webhook_targets import without_path

PERMISSION: Final = "requests_app.decide_review"
NEEDS_REASON: Final = "Say why: the reason is part of the history."
_REDRIVE: Final = "redrive"
NEWEST: Final = 20


@admin.register(Webhook)
class WebhookAdmin(RecordAdmin):
    """Where clients want to be told. Their own business: the desk only looks."""

    list_display = ("name", "account", "progress", "goes_to", "created")
    list_display_links = ("name",)
    list_filter = ("state",)
    list_select_related = ("account",)
    search_fields = ("=public_id",)
    search_help_text = "Webhook id (exact)"
    ordering = ("-id",)

    def sections(self, request: HttpRequest, obj: Any) -> Sequence[Section]:
        """What it wants, and the newest of what it was told; neither secret."""
        kinds = [Kind(kind).slug for kind in obj.kinds]
        facts: list[tuple[str, Any]] = [
            ("Status", cells.badge(obj.state)),
            ("Account", cells.link(obj.account.name, _url("account", obj.account_id))),
            ("URL", target_of(request, obj)),
            ("Description", cells.wrapped(obj.description)),
            ("Events", cells.wrapped(", ".join(obj.events))),
            ("Kinds", cells.wrapped(", ".join(kinds))),
            ("Created", cells.moment(obj.created_at)),
            ("Updated", cells.moment(obj.updated_at)),
            ("Former secret signs until", cells.moment(obj.former_until)),
        ]
        told = WebhookDelivery.objects.filter(webhook_id=obj.pk).order_by("-id")[:NEWEST]
        rows = [
            (
                cells.link(f"#{one.pk}", _url("webhookdelivery", one.pk)),
                one.event,
                about(one),
                cells.badge(one.state),
                one.attempts,
                outcome(one),
                cells.short_moment(one.created_at),
            )
            for one in told
        ]
        headers = ("No.", "Event", "About", "Status", "Attempts", "Last answer", "Since")
        return [
            Facts("Webhook", facts),
            Table("What it was told", headers, rows, "Nothing yet.", numeric=frozenset({4}), note="newest first"),
        ]

    @display(description="Webhook")
    def name(self, obj: Webhook) -> Any:
        """The id its client knows."""
        return obj.public_id

    @display(description="Status")
    def progress(self, obj: Webhook) -> Any:
        """Whether it is told anything."""
        return cells.badge(obj.state)

    def get_list_display(self, request: HttpRequest) -> tuple[str, ...]:
        """With whole URLs only for those who may see them."""
        if _sees_whole(request):
            return self.list_display
        return tuple("goes_to_host" if column == "goes_to" else column for column in self.list_display)

    @display(description="Goes to")
    def goes_to(self, obj: Webhook) -> Any:
        """Its URL."""
        return cells.wrapped(obj.url)

    @display(description="Goes to")
    def goes_to_host(self, obj: Webhook) -> Any:
        """Its URL without what may be secret."""
        return cells.wrapped(without_path(obj.url))

    @display(description="Created")
    def created(self, obj: Webhook) -> Any:
        """When its client made it."""
        return cells.short_moment(obj.created_at)


@admin.register(WebhookDelivery)
class DeliveryAdmin(RecordAdmin):
    """Newest first; a failed one can be sent again."""

    list_display = ("number", "webhook", "event", "subject_of", "progress", "attempts", "answer", "since")
    list_display_links = ("number",)
    list_filter = ("state",)
    search_fields = ("=public_id",)
    search_help_text = "Delivery id (msg_…), job id, payment id or webhook id (exact)"
    ordering = ("-id",)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Exact, indexed look-up by any id; a term that is no id finds nothing."""
        term = search_term.strip()
        return (matching(queryset, term) if term else queryset), False

    def sections(self, request: HttpRequest, obj: Any) -> Sequence[Section]:
        """What was told, how often it was tried, who sent it again; the deed while it has failed."""
        hook = Webhook.objects.select_related("account").filter(pk=obj.webhook_id).first()
        facts: list[tuple[str, Any]] = [
            ("Status", cells.badge(obj.state)),
            ("Event", obj.event),
            ("About", about(obj)),
            ("Webhook", cells.link(hook, _url("webhook", hook.pk)) if hook else "gone"),
            ("Account", cells.link(hook.account.name, _url("account", hook.account_id)) if hook else cells.NOTHING),
            ("URL", target_of(request, hook) if hook else cells.NOTHING),
            ("webhook-id", cells.code(message_id(obj.public_id), 40)),
            ("Happened", cells.moment(obj.occurred_at)),
            ("Attempts", obj.attempts),
            ("Last attempt", cells.moment(obj.last_attempt_at)),
            ("Last answer", outcome(obj)),
            ("Next attempt", cells.moment(obj.next_attempt_at) if waits(obj) else cells.NOTHING),
            ("In hand of", obj.leased_by or cells.NOTHING),
            ("Delivered", cells.moment(obj.delivered_at)),
        ]
        sections: list[Section] = [Facts("Delivery", facts)]
        kind = ContentType.objects.get_for_model(WebhookDelivery)
        done = LogEntry.objects.filter(content_type=kind, object_id=str(obj.pk)).select_related("user")[:NEWEST]
        if done:
            rows = [
                (cells.short_moment(one.action_time), one.user.get_username(), cells.wrapped(one.change_message))
                for one in done
            ]
            sections.append(Table("Done on the desk", ("When", "Who", "What and why"), rows, note="newest first"))
        if obj.state == DeliveryState.FAILED.value and request.user.has_perm(PERMISSION):
            refused = _refusal(hook)
            forms = [] if refused else [_form()]
            not_now = [("Send again", refused)] if refused else []
            sections.insert(0, DeedForms("What you can do", "at once", forms, not_now))
        return sections

    def page_title(self, obj: WebhookDelivery) -> str:
        """The id that its receiver knows."""
        return f"Webhook delivery {message_id(obj.public_id)}"

    def act(self, request: HttpRequest, obj: Any) -> HttpResponse:
        """Send it again. Raises PermissionDenied. Of two persons one has an effect."""
        if not request.user.has_perm(PERMISSION):
            raise PermissionDenied
        reason = posted_reason(request)
        if request.POST.get("deed", "") != _REDRIVE:
            self.message_user(request, "This page knows no such deed.", messages.ERROR)
        elif not reason:
            self.message_user(request, NEEDS_REASON, messages.ERROR)
        elif _redrive(request, obj, reason):
            self.message_user(request, "It is due again, with all of its attempts.", messages.SUCCESS)
        else:
            text = "Nothing was done: it is not failed any more, or its webhook was removed."
            self.message_user(request, text, messages.WARNING)
        return HttpResponseRedirect(self.page_url(obj))

    @display(description="No.", ordering="id")
    def number(self, obj: WebhookDelivery) -> Any:
        """Row number."""
        return cells.number(obj.pk)

    @display(description="Webhook")
    def webhook(self, obj: WebhookDelivery) -> Any:
        """Whom it tells."""
        return cells.link(f"#{obj.webhook_id}", _url("webhook", obj.webhook_id))

    @display(description="About")
    def subject_of(self, obj: WebhookDelivery) -> Any:
        """The request or payment."""
        return about(obj)

    @display(description="Status")
    def progress(self, obj: WebhookDelivery) -> Any:
        """Where it stands."""
        return cells.badge(obj.state)

    @display(description="Last answer")
    def answer(self, obj: WebhookDelivery) -> Any:
        """What the last attempt came to."""
        return outcome(obj)

    @display(description="Since")
    def since(self, obj: WebhookDelivery) -> Any:
        """When it was written, or sent again."""
        return cells.short_moment(obj.created_at)


def matching(queryset: QuerySet[Any], term: str) -> QuerySet[Any]:
    """The deliveries that an id names, each by an index."""
    if term.startswith("wh_"):
        return queryset.filter(webhook_id__in=Webhook.objects.filter(public_id=term).values("pk"))
    if term.startswith("pi_"):
        payments = PaymentIntent.objects.filter(public_id=term).values("pk")
        return queryset.filter(kind=Kind.PAYMENT.value, subject_id__in=payments)
    try:
        name = UUID(term.removeprefix("msg_"))
    except ValueError:
        return queryset.none()
    view = None if term.startswith("msg_") else RequestClient.objects.filter(ext_job_id=name).first()
    if view is None:
        return queryset.filter(public_id=name)
    return queryset.filter(kind=view.kind, subject_id=view.request_id, subject=str(name))


def about(one: WebhookDelivery) -> Any:
    """A link to the request or payment; a test is about nothing."""
    if one.kind is None or one.subject_id is None:
        return cells.NOTHING
    return cells.subject(one.kind, one.subject_id)


def waits(one: WebhookDelivery) -> bool:
    """Whether there is a next attempt."""
    return bool(one.state == DeliveryState.WAITING.value)


def outcome(one: WebhookDelivery) -> Any:
    """The receiver's status, or why there is none."""
    if one.last_error:
        return cells.wrapped(one.last_error)
    return cells.NOTHING if one.last_status is None else f"the receiver answered {one.last_status}"


def target_of(request: HttpRequest, hook: Webhook) -> Any:
    """Where it goes, as this person may see it."""
    return cells.wrapped(hook.url if _sees_whole(request) else without_path(hook.url))


def client_webhooks(request: HttpRequest, account_id: int) -> Table:
    """A client's webhooks, for its page."""
    found = Webhook.objects.filter(account_id=account_id).exclude(state=WebhookState.REMOVED.value).order_by("id")
    rows = [
        (cells.link(one, _url("webhook", one.pk)), cells.badge(one.state), target_of(request, one)) for one in found
    ]
    return Table("Webhooks", ("Webhook", "State", "Goes to"), rows, "It has none.")


def told_sections(kind: int, subject_id: int) -> list[Section]:
    """What clients were told of a request or payment, for its page; nothing when nobody wants to be told."""
    found = WebhookDelivery.objects.filter(kind=kind, subject_id=subject_id).order_by("-id")[:NEWEST]
    rows = [
        (
            cells.link(f"#{one.pk}", _url("webhookdelivery", one.pk)),
            cells.link(f"#{one.webhook_id}", _url("webhook", one.webhook_id)),
            one.event,
            cells.badge(one.state),
            one.attempts,
            outcome(one),
            cells.short_moment(one.delivered_at),
        )
        for one in found
    ]
    headers = ("Delivery", "Webhook", "Event", "Status", "Attempts", "Last answer", "Delivered")
    return [Table("Told by webhook", headers, rows, numeric=frozenset({4}), note="newest first")] if rows else []


def _sees_whole(request: HttpRequest) -> bool:
    return bool(request.user.has_perm(PERMISSION))


def _redrive(request: HttpRequest, obj: WebhookDelivery, reason: str) -> bool:
    """Send it again and write down who did, in one transaction; False when there was nothing to do."""
    conn = web_connection()
    with transaction(conn):
        lock_author(conn, request)
        if not services.redrive(conn, obj.pk):
            return False
        LogEntry.objects.create(
            user_id=request.user.pk or 0,
            content_type=ContentType.objects.get_for_model(WebhookDelivery),
            object_id=str(obj.pk),
            object_repr=message_id(obj.public_id),
            action_flag=CHANGE,
            change_message=f"sent again: {reason}",
        )
    return True


def _refusal(hook: Webhook | None) -> str:
    """Why a delivery cannot be sent again; "" when it can."""
    if hook is None or hook.state == WebhookState.REMOVED.value:
        return "Its webhook was removed: nobody is there to be told."
    return ""


def _url(model: str, key: int) -> str:
    return reverse(f"admin:requests_app_{model}_change", args=(key,))


def _form() -> DeedForm:
    text = "It is due at once, with the same id and body; its attempts begin anew."
    points = [
        "The receiver may have had it already: it knows by the id.",
        "Nothing leaves while its webhook is paused or its account disabled.",
    ]
    return DeedForm("Send again", text, _REDRIVE, "Send again", [reason_input()], points=points, tone="good")
