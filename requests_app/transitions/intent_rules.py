"""What an intent may become, and why not (reference queue_settle 1.2): one order of judgement, typed errors, no database."""

from __future__ import annotations

from requests_app.errors import (
    EvidenceMismatch,
    ForbiddenActor,
    IllegalTransition,
    IntentExpired,
    MissingEvidence,
    RefMismatch,
    TerminalState,
    UnknownState,
)
from requests_app.identity import payment_ref
from requests_app.states import INTENT_FINAL, INTENT_TRANSITIONS, Evidence, IntentActor, IntentState
from requests_app.store.intents import Intent


def judge(
    intent: Intent,
    target: IntentState | str,
    actor: IntentActor,
    *,
    tx_hash: bytes | None = None,
    reason: str | None = None,
) -> bool:
    """Whether the change is to be made; False when the intent is in `target` already. The order is that of reference 1.2.

    Raises UnknownState, TerminalState, IllegalTransition, ForbiddenActor, MissingEvidence, IntentExpired (authorizing too late) or
    EvidenceMismatch (settling with another hash than the one on record). TerminalState is a normal race; IllegalTransition and
    ForbiddenActor are defects of the caller.
    """
    try:
        target = IntentState(target)
    except ValueError:
        raise UnknownState(f"there is no state {target!r}") from None
    if intent.state is target:
        return False
    if intent.state in INTENT_FINAL:
        raise TerminalState(f"{intent.public_id} is {intent.state}")
    check_edge(intent.state, target, actor, tx_hash, reason, intent.public_id)
    if target is IntentState.AUTHORIZED and intent.expired:
        raise IntentExpired(f"{intent.public_id} had to be authorized by {intent.expires_at}")
    recorded = intent.tx_hash if intent.state is IntentState.CONFIRMING else None
    if target is IntentState.SETTLED and recorded is not None and tx_hash != recorded:
        raise EvidenceMismatch(f"{intent.public_id} is confirming another transaction")
    return True


def check_edge(
    source: IntentState, target: IntentState, actor: IntentActor, tx_hash: bytes | None, reason: str | None, name: str
) -> None:
    """The table's part of `judge`: raises IllegalTransition, ForbiddenActor or MissingEvidence. `name` is for the text."""
    edge = INTENT_TRANSITIONS.get((source, target))
    if edge is None:
        raise IllegalTransition(f"{name}: {source} does not become {target}")
    if actor not in edge.actors:
        raise ForbiddenActor(f"{name}: {actor} may not bring {source} to {target}")
    brought = {Evidence.TX_HASH: tx_hash, Evidence.REASON: reason}
    missing = sorted(kind.value for kind in edge.evidence if not brought[kind])
    if missing:
        raise MissingEvidence(f"{name}: {source} becomes {target} with {' and '.join(missing)}")


def check_ref(intent: Intent) -> None:
    """Raises RefMismatch when the stored ref is not the one of the terms."""
    derived = payment_ref(intent.public_id, intent.chain, intent.token, intent.payer, intent.merchant, intent.amount)
    if derived != intent.ref:
        raise RefMismatch(f"{intent.public_id}: the ref of its terms is 0x{derived.hex()}")
