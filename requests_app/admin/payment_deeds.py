"""Canceling a payment on its page while nothing was signed for it by us, and what became of earlier orders."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from django.http import HttpRequest

from requests_app.admin import orders
from requests_app.admin.case_parts import DECIDE, Progress
from requests_app.admin.forms import DeedForm, DeedForms, reason_input
from requests_app.admin.page import Section
from requests_app.models import PaymentIntent
from requests_app.orders import Told
from requests_app.payment_control import CANCELABLE, cancel_payment
from requests_app.states import IntentState, Kind
from requests_app.store.session import web_connection

CANCEL: Final = "cancel"


def carry_out(request: HttpRequest, admin: Any, payment: PaymentIntent) -> None:
    """Write the order. Raises PermissionDenied."""

    def tell(deed: str, token: UUID, reason: str) -> Told:
        if deed != CANCEL:
            raise ValueError(deed)
        return cancel_payment(
            web_connection(), payment_id=payment.pk, token=token, reason=reason, reviewer_id=int(request.user.pk or 0)
        )

    orders.give(request, admin, DECIDE, tell)


def deed_sections(request: HttpRequest, payment: PaymentIntent) -> list[Section]:
    """The deed, while it fits, for those who may; and the orders so far."""
    sections: list[Section] = []
    if IntentState(payment.state) in CANCELABLE and request.user.has_perm(DECIDE):
        form = DeedForm(
            "Cancel the payment",
            "It ends as canceled: no money is held and nothing is sent. Its client sees the reason.",
            CANCEL,
            "Cancel the payment",
            [reason_input()],
            orders.new_token(),
            [
                "Only while nothing was signed by us: a worker that is faster wins, and the order changes nothing.",
                "Whoever has the payer's signature can still carry it out; only its payer can take it back, on chain.",
            ],
            "bad",
        )
        sections.append(DeedForms("What you can do", "an order to whoever carries out commands", [form]))
    done = orders_of(payment.pk)
    return [*sections, done] if done else sections


def orders_of(payment_id: int) -> Progress | None:
    """What was ordered and what became of it, also by decisions about its cases."""
    return orders.orders_of(Kind.PAYMENT, payment_id, "admin:requests_app_payment_orders")
