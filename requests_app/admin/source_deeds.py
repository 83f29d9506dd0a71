"""Lifting the halt on a source's page, and what became of earlier orders."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from django.http import HttpRequest

from requests_app.admin import orders
from requests_app.admin.case_parts import DECIDE, Progress
from requests_app.admin.forms import DeedForm, DeedForms, reason_input
from requests_app.admin.page import Section
from requests_app.models import EnvelopeSource
from requests_app.signer_control import Told
from requests_app.source_control import lift_halt
from requests_app.store.commands import Target
from requests_app.store.session import web_connection

LIFT: Final = "lift_halt"


def carry_out(request: HttpRequest, admin: Any, source: EnvelopeSource) -> None:
    """Write the order. Raises PermissionDenied."""

    def tell(deed: str, token: UUID, reason: str) -> Told:
        if deed != LIFT:
            raise ValueError(deed)
        person = int(request.user.pk or 0)
        return lift_halt(web_connection(), source_id=source.pk, token=token, reason=reason, reviewer_id=person)

    orders.give(request, admin, DECIDE, tell)


def deed_sections(request: HttpRequest, source: EnvelopeSource) -> list[Section]:
    """The deed, while the source is halted, for those who may; and the orders so far."""
    sections: list[Section] = []
    if source.halted and request.user.has_perm(DECIDE):
        form = DeedForm(
            "Lift the halt",
            "The listener reads on from the last stored block. What the chain contradicts again halts the source again.",
            LIFT,
            "Lift the halt",
            [reason_input()],
            orders.new_token(),
            ["First find out which node was wrong, and take it out of GATEWAY_RPC_URLS."],
            "warn",
        )
        sections.append(DeedForms("What you can do", "an order to whoever carries out commands", [form]))
    done = orders_of(source.pk)
    return [*sections, done] if done else sections


def orders_of(source_id: int) -> Progress | None:
    """What was ordered and what became of it."""
    return orders.orders_of(Target.SOURCE, source_id, "admin:requests_app_source_orders")
