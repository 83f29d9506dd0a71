"""Payments whose block gave way, or that are in no block at all: confirming -> settling, and the same bytes go out again (design 2.3).

Nothing is decided about money here: the hold stays, the slot stays, no new nonce is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from psycopg import Connection

from requests_app.states import IntentActor, IntentState, Kind
from requests_app.store import intents as intent_store
from requests_app.store import observations as store
from requests_app.store.intents import Intent
from requests_app.store.queue import RESCUE
from requests_app.store.reorgs import Touched
from requests_app.transitions import intents, observing
from requests_app.transitions.intents import Change

AUTHORIZATION_USED: Final = 9  # the stored number of the event (workers.chain.events.EventKind; a test compares)


class Payments(NamedTuple):
    """What a reorganisation did to payments: how many are settling again, and the settled ones whose event must come back."""

    settling: int
    settled: list[Touched]


def withdraw(conn: Connection[Any], source_id: int, fork: int, epoch: int) -> Payments:
    """Take back what was observed from block `fork` on, in the transaction of the reorganisation.

    Attempts and slots are open again already. A payment that another block still shows executed stays confirming, with that hash.
    """
    rested = {one.id: one for one in store.withdraw_observations(conn, source_id, fork)}
    locked = intent_store.lock_intents(conn, sorted(rested))
    confirming = [
        one for one in locked if one.state is IntentState.CONFIRMING and one.tx_hash == rested[one.id].tx_hash
    ]
    gone = back_to_settling(conn, [(one, f"reorganisation from block {fork}") for one in confirming], epoch)
    observing.look_again(conn, source_id, [one.id for one in gone])
    settled = [
        Touched(Kind.PAYMENT, one.id, one.ref, AUTHORIZATION_USED, False, rested[one.id].tx_hash)
        for one in locked
        if one.state is IntentState.SETTLED and one.tx_hash == rested[one.id].tx_hash
    ]
    return Payments(len(gone), settled)


def back_to_settling(
    conn: Connection[Any], confirming: Sequence[tuple[Intent, str]], epoch: int | None
) -> list[Intent]:
    """confirming -> settling, each with its reason, and each has a job. The caller holds the rows, and has reopened the attempts."""
    changes = [Change.of(intent, reason=reason) for intent, reason in confirming]
    moved = [one.intent for one in intents.move(conn, IntentState.SETTLING, changes, IntentActor.LISTENER, epoch=epoch)]
    ids = [one.id for one in moved]
    if ids:
        intent_store.enqueue_settle(conn, ids, RESCUE)
    return moved
