"""What a person orders of a payment for which nothing was signed by us yet (design 5.2.9)."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from psycopg import Connection

from requests_app import orders
from requests_app.models.commands import CommandKind
from requests_app.orders import Order, Told
from requests_app.states import INTENT_TRANSITIONS, IntentActor, IntentState, Kind
from requests_app.store.commands import SINGLETON
from requests_app.store.session import Row

CANCELABLE: Final = frozenset(
    edge.source
    for edge in INTENT_TRANSITIONS.values()
    if edge.target is IntentState.CANCELED and IntentActor.OPERATOR in edge.actors
)


def cancel_payment(conn: Connection, *, payment_id: int, token: UUID, reason: str, reviewer_id: int) -> Told:
    """Order that it be canceled, once a `token`. Raises CommandConflict."""

    def order(payment: Row) -> Order:
        return Order(CommandKind.CANCEL, SINGLETON, IntentState(payment.state) in CANCELABLE)

    return orders.give(conn, Kind.PAYMENT, payment_id, order, token=token, reason=reason, reviewer_id=reviewer_id)
