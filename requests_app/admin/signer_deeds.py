"""Pause and resume on a signer's page, and what became of earlier orders."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID, uuid4

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from django.urls import reverse

from requests_app.admin import cells
from requests_app.admin.case_parts import OUTCOME_TONES, Progress
from requests_app.admin.forms import DeedForm, DeedForms, posted_reason, reason_input
from requests_app.admin.page import Section, Table
from requests_app.models import Command, Signer
from requests_app.models.signing import SignerStatus
from requests_app.signer_control import FROM, SignerDeed, Told, tell_signer
from requests_app.store.commands import CommandConflict, Target
from requests_app.store.session import web_connection

PERMISSION: Final = "requests_app.pause_signer"
_SHOWN: Final = 20
_WORDS: Final = {
    Told.COMMANDED: (messages.SUCCESS, "Ordered. The signer's owner carries it out; the outcome appears below."),
    Told.REPEATED: (messages.INFO, "This was ordered already: one order, one effect."),
    Told.STALE: (messages.WARNING, "The signer has changed since you read this page. Nothing was ordered."),
    Told.FORBIDDEN: (messages.ERROR, "Your account was disabled. Nothing was ordered."),
    Told.NOT_FOUND: (messages.ERROR, "There is no such signer."),
}
_TEXTS: Final = {
    SignerDeed.PAUSE: (
        "Pause the signer",
        "It takes no new work. What it has signed goes on: its open nonces are broadcast and followed to their end.",
        "Pause",
        "warn",
    ),
    SignerDeed.RESUME: (
        "Resume the signer",
        "It takes work again. A blocked one had its key used elsewhere: resume it only when that is explained.",
        "Resume",
        "good",
    ),
}


def carry_out(request: HttpRequest, admin: Any, signer: Signer) -> None:
    """Write the order. Raises PermissionDenied."""
    if not request.user.has_perm(PERMISSION):
        raise PermissionDenied
    reason = posted_reason(request)
    try:
        deed, token = SignerDeed(request.POST.get("deed", "")), UUID(request.POST.get("token", ""))
    except ValueError:
        admin.message_user(request, "This page knows no such deed.", messages.ERROR)
        return
    if not reason:
        admin.message_user(request, "Say why: the reason is part of the history.", messages.ERROR)
        return
    try:
        told = tell_signer(
            web_connection(),
            signer_id=signer.pk,
            deed=deed,
            token=token,
            reason=reason,
            reviewer_id=int(request.user.pk or 0),
        )
    except CommandConflict:
        admin.message_user(request, "This form was sent before with another content.", messages.ERROR)
        return
    level, text = _WORDS[told]
    admin.message_user(request, text, level)


def deed_sections(request: HttpRequest, signer: Signer) -> list[Section]:
    """The deeds that fit the signer's state, for those who may; and the orders so far."""
    sections: list[Section] = []
    if request.user.has_perm(PERMISSION):
        forms = []
        for deed, (title, text, button, tone) in _TEXTS.items():
            if SignerStatus(signer.status) in FROM[deed]:
                hidden = {"token": str(uuid4())}
                forms.append(DeedForm(title, text, deed.value, button, [reason_input()], hidden, tone=tone))
        sections.append(DeedForms("What you can do", "an order to the signer's owner", forms))
    done = orders_of(signer.pk)
    return [*sections, done] if done else sections


def orders_of(signer_id: int) -> Progress | None:
    """What was ordered and what became of it; renews itself while an order is under way."""
    orders = list(
        Command.objects.filter(target_kind=Target.SIGNER, target_id=signer_id).order_by("-created_at")[:_SHOWN]
    )
    if not orders:
        return None
    headers = ("When", "Order", "By", "Reason", "State", "Outcome")
    waiting = any(order.state != "consumed" for order in orders)
    url = reverse("admin:requests_app_signer_orders", args=(signer_id,)) if waiting else ""
    note = "waits for the signer's owner; this page renews itself" if waiting else ""
    return Progress("Orders", Table("Orders", headers, [_row(order) for order in orders]), [], note, url)


def _row(order: Command) -> tuple[Any, ...]:
    page = reverse("admin:requests_app_command_change", args=(order.command_id,))
    return (
        cells.short_moment(order.created_at),
        cells.link(order.kind.replace("_", " "), page),
        order.requested_by,
        cells.wrapped(order.payload.get("reason")),
        cells.badge(order.state),
        cells.toned(order.outcome, OUTCOME_TONES.get(order.outcome, "neutral")) if order.outcome else cells.NOTHING,
    )
