"""Pause and resume on a signer's page, and what became of earlier orders."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from django.http import HttpRequest

from requests_app.admin import orders
from requests_app.admin.case_parts import Progress
from requests_app.admin.forms import DeedForm, DeedForms, reason_input
from requests_app.admin.page import Section
from requests_app.models import Signer
from requests_app.models.commands import Target
from requests_app.models.signing import SignerStatus
from requests_app.orders import Told
from requests_app.signer_control import FROM, SignerDeed, tell_signer
from requests_app.store.session import web_connection

PERMISSION: Final = "requests_app.pause_signer"
_TEXTS: Final = {
    SignerDeed.PAUSE: (
        "Pause the signer",
        "It takes no new work. What it has signed goes on: its open nonces are broadcast and followed to their end.",
        "Pause",
        "warn",
    ),
    SignerDeed.RESUME: (
        "Resume the signer",
        "It takes work again. A blocked one had its key used elsewhere, or its nonces stuck: resume it only when that is explained.",
        "Resume",
        "good",
    ),
}


def carry_out(request: HttpRequest, admin: Any, signer: Signer) -> None:
    """Write the order. Raises PermissionDenied."""

    def tell(deed: str, token: UUID, reason: str) -> Told:
        return tell_signer(
            web_connection(), signer_id=signer.pk, deed=SignerDeed(deed), token=token, reason=reason,
            reviewer_id=int(request.user.pk or 0),
        )  # fmt: skip

    orders.give(request, admin, PERMISSION, tell)


def deed_sections(request: HttpRequest, signer: Signer) -> list[Section]:
    """The deeds that fit the signer's state, for those who may; and the orders so far."""
    sections: list[Section] = []
    if request.user.has_perm(PERMISSION):
        forms = [
            DeedForm(title, text, deed.value, button, [reason_input()], orders.new_token(), tone=tone)
            for deed, (title, text, button, tone) in _TEXTS.items()
            if SignerStatus(signer.status) in FROM[deed]
        ]
        sections.append(DeedForms("What you can do", "an order to the signer's owner", forms))
    done = orders_of(signer.pk)
    return [*sections, done] if done else sections


def orders_of(signer_id: int) -> Progress | None:
    """What was ordered and what became of it."""
    return orders.orders_of(Target.SIGNER, signer_id, "admin:requests_app_signer_orders")
