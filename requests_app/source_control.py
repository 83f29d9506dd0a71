"""What a person orders of a halted source: to read on, or to take the chain's version of what is stored (design 5.4.3)."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from psycopg import Connection

from requests_app import orders
from requests_app.models.commands import CommandKind, Target
from requests_app.orders import Order, Told
from requests_app.store.commands import SINGLETON
from requests_app.store.session import Row

TAKE_CHAIN: Final = "take_chain"


def lift_halt(conn: Connection[Any], *, source_id: int, token: UUID, reason: str, reviewer_id: int) -> Told:
    """Order the source to be read on from its seal: what is stored stays. Raises CommandConflict."""

    def order(source: Row) -> Order:
        return Order(CommandKind.REDRIVE, SINGLETON, source.halted is not None)

    return orders.give(
        conn, Target.SOURCE, source_id, order, token=token, reason=reason, reviewer_id=reviewer_id
    )  # fmt: skip


def take_chain(
    conn: Connection[Any], *, source_id: int, block: int, token: UUID, reason: str, reviewer_id: int
) -> Told:
    """Order that what is stored from `block` on gives way to what the chain shows, which ends the halt. Raises CommandConflict."""

    def order(source: Row) -> Order:
        fits = source.halted is not None and source.chain_id > 0
        return Order(CommandKind.HITL, SINGLETON, fits, {"action": TAKE_CHAIN, "block": block})

    return orders.give(
        conn, Target.SOURCE, source_id, order, token=token, reason=reason, reviewer_id=reviewer_id
    )  # fmt: skip
