"""Orders from the page of a signer, a source or a payment: read from its form, and what became of earlier ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID, uuid4

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse

from requests_app.admin import cells
from requests_app.admin.case_offers import Unreadable
from requests_app.admin.case_parts import OUTCOME_TONES, Progress
from requests_app.admin.forms import posted_reason
from requests_app.admin.page import Table
from requests_app.models import Command
from requests_app.models.commands import Target
from requests_app.orders import Told
from requests_app.states import Kind
from requests_app.store.commands import CommandConflict

_SHOWN: Final = 20
_STALE: Final = "It has changed since you read this page. Nothing was ordered."
_WORDS: Final[Mapping[Told, tuple[int, str]]] = {
    Told.COMMANDED: (messages.SUCCESS, "Ordered. The outcome appears below."),
    Told.REPEATED: (messages.INFO, "This was ordered already: one order, one effect."),
    Told.STALE: (messages.WARNING, _STALE),
    Told.FORBIDDEN: (messages.ERROR, "Your account was disabled. Nothing was ordered."),
    Told.NOT_FOUND: (messages.ERROR, "It is no longer kept."),
}


def new_token() -> dict[str, str]:
    """The hidden number of a form, by which a double click is one order."""
    return {"token": str(uuid4())}


def give(request: HttpRequest, admin: Any, permission: str, tell: Callable[[str, UUID, str], Told]) -> None:
    """Write the order that the form asks for: `tell(deed, token, reason)`, ValueError for no such deed, Unreadable for its inputs. Raises PermissionDenied."""
    if not request.user.has_perm(permission):
        raise PermissionDenied
    reason = posted_reason(request)
    if not reason:
        admin.message_user(request, "Say why: the reason is part of the history.", messages.ERROR)
        return
    try:
        told = tell(request.POST.get("deed", ""), UUID(request.POST.get("token", "")), reason)
    except Unreadable as error:
        admin.message_user(request, str(error), messages.ERROR)
    except ValueError:
        admin.message_user(request, "This page knows no such deed.", messages.ERROR)
    except CommandConflict:
        admin.message_user(request, "This form was sent before with another content.", messages.ERROR)
    else:
        level, text = _WORDS[told]
        admin.message_user(request, text, level)


def orders_of(target: Target | Kind, target_id: int, page: str) -> Progress | None:
    """What was ordered and what became of it; renews itself from the URL named `page` while an order is under way."""
    found = Command.objects.filter(target_kind=target, target_id=target_id).order_by("-created_at")
    orders = list(found[:_SHOWN])
    if not orders:
        return None
    headers = ("When", "Order", "By", "Reason", "State", "Outcome")
    waiting = any(order.state != "consumed" for order in orders)
    note = "waits to be carried out; this page renews itself" if waiting else ""
    url = reverse(page, args=(target_id,)) if waiting else ""
    return Progress("Orders", Table("Orders", headers, [_row(order) for order in orders]), [], note, url)


def renewed(request: HttpRequest, section: Progress | None) -> HttpResponse:
    """The orders alone; once none is under way the whole page is asked to come anew."""
    answer = TemplateResponse(request, "admin/relayer/progress.html", {"section": section})
    if section is None or not section.url:
        answer["HX-Refresh"] = "true"
    return answer


def _words(order: Command) -> str:
    """What was ordered."""
    what = str(order.payload.get("action") or order.kind).replace("_", " ")
    block = order.payload.get("block")
    return f"{what} from block {block}" if block is not None else what


def _row(order: Command) -> tuple[Any, ...]:
    page = reverse("admin:requests_app_command_change", args=(order.command_id,))
    return (
        cells.short_moment(order.created_at),
        cells.link(_words(order), page),
        order.requested_by,
        cells.wrapped(order.payload.get("reason")),
        cells.badge(order.state),
        cells.toned(order.outcome, OUTCOME_TONES.get(order.outcome, "neutral")) if order.outcome else cells.NOTHING,
    )
