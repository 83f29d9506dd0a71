"""Payments follow the log: executed exactly as asked, whoever sent the transaction, they are confirming (B50; design 2.3).

Facts are not fenced. Nothing is lost between an observation and a payment that is not ready for it yet: the applier stores the
observation before it locks the intent, and judges what stands behind the lock; whoever changes an intent locks it first and may look for
observations afterwards (`look_again`), so that one of the two sees the other. Whom nobody looked at again, the confirm duty heeds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from psycopg import Connection

from requests_app import ledger, sightings
from requests_app.models.reviews import ReasonCode
from requests_app.states import IntentActor, IntentState
from requests_app.store import intents as intent_store
from requests_app.store import ledger as journal
from requests_app.store import observations as store
from requests_app.store.intents import Intent
from requests_app.store.observations import Observation
from requests_app.transitions import intents
from requests_app.transitions.answers import Facts
from requests_app.transitions.intents import Change

# Why a payment may stand in review although the log then shows that it went well. In the other cases something contradicts it.
UNPROVEN: Final = frozenset(
    {
        ReasonCode.OUTCOME_UNKNOWN,
        ReasonCode.FOREIGN_NONCE,
        ReasonCode.FEE_CEILING,
        ReasonCode.SIGNER_BLOCKED,
        ReasonCode.RECEIPT_VANISHED,
        ReasonCode.REFUSED_AFTER_SIGNING,
        ReasonCode.AUTHORIZATION_WINDOW_CLOSED,
        ReasonCode.REVERTED_FINAL,
    }
)
ELSEWHERE: Final = "somebody else executed the authorization"
ANOTHER: Final = "another transaction executed the authorization"
SHOWN: Final = "the log shows it executed"


def observe(conn: Connection[Any], source_id: int, facts: Facts) -> list[Intent]:
    """Store what the log shows of payments and let their intents follow, in the caller's transaction; idempotent. Those confirming now."""
    if not facts.authorizations and not facts.transfers:
        return []
    store.observe(conn, source_id, facts.authorizations, facts.transfers)
    refs = {one.ref for one in facts.authorizations if not one.canceled} | {one.ref for one in facts.transfers}
    return follow(conn, source_id, refs)


def look_again(conn: Connection[Any], source_id: int, intent_ids: Sequence[int]) -> list[Intent]:
    """Let these intents follow what was observed before they became what they are, in the transaction that changed them."""
    refs = [one.ref for one in intent_store.read_intents(conn, intent_ids)]
    return follow(conn, source_id, refs)


def follow(conn: Connection[Any], source_id: int, refs: Collection[bytes]) -> list[Intent]:
    """Bring the intents of these refs that were executed exactly as asked to confirming, with the hash of that transaction."""
    ids = store.intents_of(conn, source_id, refs)
    if not ids:
        return []
    locked = intent_store.lock_intents(conn, ids)
    # Read behind the locks: what an applier stored before it waited for one of them is seen.
    seen = store.of_refs(conn, source_id, [intent.ref for intent in locked])
    executed = {
        intent.id: found
        for intent in locked
        if (found := sightings.execution(intent, seen.get(intent.ref, ()))) is not None
    }
    return confirm_seen(conn, locked, executed)


def confirm_seen(conn: Connection[Any], locked: Sequence[Intent], executed: Mapping[int, Observation]) -> list[Intent]:
    """The locked intents, each with the observation that executed it, to confirming with that hash; money is held first.

    Those that are there already, have ended, or were never authorized stay; so do those in review for a reason that contradicts it.
    """
    by_state = {state: [one for one in locked if one.state is state and one.id in executed] for state in IntentState}
    held = begin_unsent(conn, by_state[IntentState.AUTHORIZED], ELSEWHERE)
    other = [one for one in by_state[IntentState.CONFIRMING] if one.tx_hash != executed[one.id].tx_hash]
    changes = [Change.of(one, reason=ANOTHER) for one in other]
    back = [one.intent for one in intents.move(conn, IntentState.SETTLING, changes, IntentActor.LISTENER)]
    waiting = [*by_state[IntentState.SETTLING], *held, *back, *_unproven(conn, by_state[IntentState.NEEDS_REVIEW])]
    confirming = _confirming(conn, waiting, executed)
    journal.append(conn, [ledger.hold_of(one) for one in held])
    return confirming


def begin_unsent(conn: Connection[Any], authorized: Sequence[Intent], reason: str) -> list[Intent]:
    """authorized -> settling, for payments that the chain moved before we signed anything. Their holds are the caller's to append."""
    changes = [Change.of(one, reason=reason) for one in authorized]
    return [one.intent for one in intents.move(conn, IntentState.SETTLING, changes, IntentActor.RELAYER)]


def _confirming(conn: Connection[Any], waiting: Iterable[Intent], executed: Mapping[int, Observation]) -> list[Intent]:
    changes = [Change.of(one, tx_hash=executed[one.id].tx_hash, reason=SHOWN) for one in waiting]
    return [one.intent for one in intents.move(conn, IntentState.CONFIRMING, changes, IntentActor.LISTENER)]


def _unproven(conn: Connection[Any], reviewed: Sequence[Intent]) -> list[Intent]:
    if not reviewed:
        return []
    cases = intent_store.cases_open(conn, [one.id for one in reviewed])
    return [one for one in reviewed if cases.get(one.id) in UNPROVEN]
