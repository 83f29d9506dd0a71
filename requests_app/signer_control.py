"""Pause and resume of a signer from the desk: an order to its owner."""

from __future__ import annotations

from enum import StrEnum
from typing import Any
from uuid import UUID

from psycopg import Connection

from requests_app import orders
from requests_app.models.commands import CommandKind, Target
from requests_app.models.signing import SignerStatus
from requests_app.orders import Order, Told
from requests_app.store.commands import signer_resource
from requests_app.store.session import Row


class SignerDeed(StrEnum):
    """What may be told to a signer."""

    PAUSE = "pause"
    RESUME = "resume"


KINDS = {SignerDeed.PAUSE: CommandKind.PAUSE_SIGNER, SignerDeed.RESUME: CommandKind.RESUME_SIGNER}
FROM = {
    SignerDeed.PAUSE: frozenset({SignerStatus.ACTIVE}),
    SignerDeed.RESUME: frozenset({SignerStatus.PAUSED, SignerStatus.BLOCKED}),
}


def tell_signer(
    conn: Connection[Any], *, signer_id: int, deed: SignerDeed, token: UUID, reason: str, reviewer_id: int
) -> Told:
    """Order it of the signer's owner, once a `token`. Raises CommandConflict."""

    def order(signer: Row) -> Order:
        owner = signer_resource(signer.chain_id, bytes(signer.address))
        return Order(KINDS[deed], owner, SignerStatus(signer.status) in FROM[deed])

    return orders.give(
        conn, Target.SIGNER, signer_id, order, token=token, reason=reason, reviewer_id=reviewer_id
    )  # fmt: skip
