"""The end of a payment on chain: posted and settled in one transaction, back to settling, or to a person (design 2.3).

Every function is one transaction under the confirm duty's lease, and raises StaleEpoch with nothing written when that is gone.
Lock order: lease, observations, attempts, intents, journal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from psycopg import Connection

from requests_app import sightings
from requests_app.crash_points import crash_point
from requests_app.errors import StaleEpoch
from requests_app.ledger import hold_of, post_of
from requests_app.models.reviews import ReasonCode
from requests_app.states import IntentActor, IntentState
from requests_app.store import intents as intent_store
from requests_app.store import leases, ledger
from requests_app.store import observations as store
from requests_app.store.intents import Intent
from requests_app.store.observations import Observation
from requests_app.store.session import transaction
from requests_app.store.signing import Fence
from requests_app.transitions import intents, observing, unconfirming
from requests_app.transitions.intents import Change, Moved


class Ready(NamedTuple):
    """A payment whose execution is final, with the observation that says so."""

    intent: Intent
    seen: Observation


class Doubt(NamedTuple):
    """A payment that a person must look at. `seen`: what the log shows of it, if anything."""

    intent: Intent
    reason: ReasonCode
    detail: str
    evidence: Mapping[str, Any]
    seen: Observation | None = None


def settle(conn: Connection[Any], source_id: int, fence: Fence, ready: Sequence[Ready]) -> list[Moved]:
    """confirming -> settled with its post in the journal. Those that moved on, or whose block gave way meanwhile, are left out.

    Raises LedgerRefused or LedgerConflict, with nothing written, when the journal refuses one of the posts.
    """
    if not ready:
        return []
    with transaction(conn):
        _hold(conn, fence)
        standing = store.lock_seen(conn, source_id, [(one.seen.position, one.seen.block_hash) for one in ready])
        seen = {one.intent.id: one.seen for one in ready if one.seen.position in standing}
        locked = intent_store.lock_intents(conn, sorted(seen))
        exact = [one for one in locked if _settles(one, seen[one.id])]
        changes = [Change.of(one, tx_hash=one.tx_hash) for one in exact]
        moved = intents.move(conn, IntentState.SETTLED, changes, IntentActor.LISTENER, epoch=fence.epoch)
        ledger.append(conn, [post_of(one.intent) for one in moved])
        crash_point("before_settle_payments_commit")
    crash_point("after_settle_payments_commit")
    return moved


def lose(conn: Connection[Any], fence: Fence, lost: Sequence[tuple[Intent, str]]) -> list[Intent]:
    """confirming -> settling for payments that are in no block; the same bytes are sent again at once."""
    if not lost:
        return []
    reasons = {intent.id: (intent.version, reason) for intent, reason in lost}
    with transaction(conn):
        _hold(conn, fence)
        store.resend(conn, sorted(reasons))
        locked = intent_store.lock_intents(conn, sorted(reasons))
        same = [
            (one, reasons[one.id][1])
            for one in locked
            if one.state is IntentState.CONFIRMING and one.version == reasons[one.id][0]
        ]
        moved = unconfirming.back_to_settling(conn, same, fence.epoch)
        crash_point("before_lose_payments_commit")
    crash_point("after_lose_payments_commit")
    return moved


def doubt(conn: Connection[Any], fence: Fence, doubts: Sequence[Doubt]) -> list[Moved]:
    """To needs_review, each with its case, if it still is as it was read.

    The listener gives to a person only what is confirming. A payment that is not comes there on the way that its transaction shows:
    money that moved otherwise than asked is held first, and its hash is on record.
    """
    if not doubts:
        return []
    by_id = {one.intent.id: one for one in doubts}
    moved: list[Moved] = []
    with transaction(conn):
        _hold(conn, fence)
        locked = [
            one for one in intent_store.lock_intents(conn, sorted(by_id)) if one.version == by_id[one.id].intent.version
        ]
        begun = observing.begin_unsent(
            conn,
            [one for one in locked if one.state is IntentState.AUTHORIZED and by_id[one.id].seen],
            observing.ELSEWHERE,
        )
        settling = [*begun, *(one for one in locked if one.state is IntentState.SETTLING)]
        confirming = [one for one in locked if one.state is IntentState.CONFIRMING]
        confirming += _shown(conn, settling, by_id, fence.epoch)
        unshown = [one for one in settling if by_id[one.id].seen is None]
        for actor, group in ((IntentActor.LISTENER, confirming), (IntentActor.RELAYER, unshown)):
            moved += _review(conn, group, by_id, actor, fence.epoch)
        intent_store.drop_settle(conn, [one.intent.id for one in moved])
        ledger.append(conn, [hold_of(one) for one in begun])
        crash_point("before_doubt_payments_commit")
    crash_point("after_doubt_payments_commit")
    return moved


def _hold(conn: Connection[Any], fence: Fence) -> None:
    if not leases.fence(conn, fence.resource, fence.instance, fence.epoch):
        raise StaleEpoch(fence.resource)


def _settles(intent: Intent, seen: Observation) -> bool:
    exact = sightings.judge(intent, seen) is sightings.Sighting.EXACT
    return exact and intent.state is IntentState.CONFIRMING and intent.tx_hash == seen.tx_hash


def _shown(conn: Connection[Any], settling: Sequence[Intent], by_id: Mapping[int, Doubt], epoch: int) -> list[Intent]:
    """settling -> confirming with the hash of what the log shows, on the way to a person."""
    changes = [
        Change.of(one, tx_hash=seen.tx_hash, reason=by_id[one.id].detail)
        for one in settling
        if (seen := by_id[one.id].seen) is not None
    ]
    moved = intents.move(conn, IntentState.CONFIRMING, changes, IntentActor.LISTENER, epoch=epoch)
    return [one.intent for one in moved]


def _review(
    conn: Connection[Any], group: Sequence[Intent], by_id: Mapping[int, Doubt], actor: IntentActor, epoch: int
) -> list[Moved]:
    moved: list[Moved] = []
    for reason in sorted({by_id[one.id].reason for one in group}):
        changes = [
            Change.of(one, reason=by_id[one.id].detail, evidence=by_id[one.id].evidence)
            for one in group
            if by_id[one.id].reason is reason
        ]
        moved += intents.move(conn, IntentState.NEEDS_REVIEW, changes, actor, review=reason, epoch=epoch)
    return moved
