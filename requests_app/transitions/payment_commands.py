"""What commands do to payments, in the caller's transaction (design 5.2.9; reference queue_settle 4.9).

What only the chain knows was read before (`Evidence`); everything else is judged here, under the payment's lock. A reviewer can bring a
payment to an end only where no transaction of ours can move its money any more, or where the chain shows that it has moved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from psycopg import Connection

from requests_app.ledger import post_of, void_of
from requests_app.models.commands import CommandKind
from requests_app.models.reviews import ReviewAction
from requests_app.states import IntentActor, IntentState, Kind
from requests_app.store import commands as store
from requests_app.store import intents as intent_store
from requests_app.store import ledger
from requests_app.store import settling as settling_store
from requests_app.store.commands import OpenCommand, Outcome, SlotView
from requests_app.store.intents import Intent
from requests_app.store.queue import RESCUE, Subject
from requests_app.transitions import generic, intents
from requests_app.transitions.intents import Change
from requests_app.transitions.nonce_guards import no_failure
from requests_app.transitions.outcomes import Verdict, rejected

OPERATOR: Final = IntentActor.OPERATOR


ASKS_CHAIN: Final = frozenset({ReviewAction.RESEND, ReviewAction.FAIL, ReviewAction.MARK_SENT, ReviewAction.SETTLE})


class Evidence(NamedTuple):
    """What the chain says. `unused`: latest and finalized state both call the authorization unused.
    `otherwise`: it is used up for good, and the log shows by what: canceled by the payer, or used not as this payment asks.

    Of the transaction that the reviewer names: `exact` it carries this payment as asked, `final` nothing can take it back.
    """

    unused: bool
    tx_hash: bytes | None = None
    exact: bool = False
    final: bool = False
    otherwise: bool = False


def judged(conn: Connection[Any], command: OpenCommand) -> tuple[Intent | None, Verdict | None]:
    """Lock the command's payment; a verdict when it is gone or no longer what the decision was based on."""
    found = intent_store.lock_intents(conn, [command.target_id])
    if not found:
        return None, rejected("not found")
    (intent,) = found
    if command.expected_status is not None and intent.state.value != command.expected_status:
        return intent, Verdict(Outcome.SUPERSEDED, {"status": intent.state.value, "expected": command.expected_status})
    return intent, None


def apply(conn: Connection[Any], command: OpenCommand, epoch: int) -> Verdict:
    """Carry out a command whose effect stays in the database, in the caller's transaction."""
    intent, verdict = judged(conn, command)
    if intent is None or verdict is not None:
        return verdict or rejected("not found")
    if command.kind is CommandKind.CANCEL:
        return _cancel(conn, command, intent)
    if command.payload.get("action") == ReviewAction.RESUME:
        return _resume(conn, command, intent, epoch)
    if command.payload.get("action") == ReviewAction.ACKNOWLEDGE:
        return _acknowledge(conn, intent)
    return rejected("unknown action")


def decide(conn: Connection[Any], command: OpenCommand, found: Evidence, epoch: int) -> Verdict:
    """Carry out a decision that needed the chain, in the caller's transaction."""
    intent, verdict = judged(conn, command)
    if intent is None or verdict is not None:
        return verdict or rejected("not found")
    if intent.state is not IntentState.NEEDS_REVIEW:
        return Verdict(Outcome.SUPERSEDED, {"status": intent.state.value})
    return _DECISIONS[ReviewAction(str(command.payload["action"]))](conn, command, intent, found, epoch)


def resumed(conn: Connection[Any], command: OpenCommand, epoch: int) -> Verdict:
    """needs_review -> settling: a further attempt at its nonce was made. The chain may have decided the payment meanwhile."""
    intent, verdict = judged(conn, command)
    if intent is None or verdict is not None:
        return verdict or rejected("not found")
    return _to_settling(conn, command, intent, epoch)


def open_slot(conn: Connection[Any], intent: Intent, *, to_end: bool = False) -> tuple[SlotView | None, Verdict | None]:
    """The payment's nonce if something may still be mined at it, else why not. `to_end`: it is to be spent on nothing."""
    slot = store.slot_of(conn, Subject(Kind.PAYMENT, intent.id))
    if slot is None:
        return None, rejected("nothing was ever signed for it")
    if not slot.open:
        return slot, rejected(f"its nonce is {slot.state.value}")
    if intent.window_closed and not to_end:
        return slot, rejected("the payer's authorization has ended")
    return slot, None


def _resume(conn: Connection[Any], command: OpenCommand, intent: Intent, epoch: int) -> Verdict:
    slot, closed = open_slot(conn, intent)
    if closed is not None or slot is None:
        return closed or rejected("no nonce")
    verdict = _to_settling(conn, command, intent, epoch)
    if verdict.outcome is Outcome.APPLIED:
        store.reopen_attempts(conn, slot.signer_id, slot.nonce)
    return verdict


def _acknowledge(conn: Connection[Any], intent: Intent) -> Verdict:
    """Close the case of a payment that needs no decision: it has ended, or the chain is about to decide it. The payment stays as it is."""
    if intent.state is IntentState.NEEDS_REVIEW:
        return rejected("the payment waits for a decision")
    closed = generic.close_reviews(conn, Kind.PAYMENT, [intent.id], ReviewAction.ACKNOWLEDGE.value)
    return Verdict(Outcome.APPLIED if closed else Outcome.SUPERSEDED)


def _cancel(conn: Connection[Any], command: OpenCommand, intent: Intent) -> Verdict:
    if intent.state not in (IntentState.CREATED, IntentState.AUTHORIZED):
        return Verdict(Outcome.SUPERSEDED, {"status": intent.state.value})
    change = Change.of(intent, reason=_reason(command), by_user=command.requested_by)
    moved = intents.move(conn, IntentState.CANCELED, [change], OPERATOR)
    intent_store.drop_settle(conn, [one.intent.id for one in moved])
    return _verdict(intent, bool(moved))


def _resend(conn: Connection[Any], command: OpenCommand, intent: Intent, found: Evidence, epoch: int) -> Verdict:
    """G-RESEND: nothing can be mined for it at any nonce of ours, and the chain calls its authorization unused."""
    refusal = _not_over(conn, intent, found)
    if refusal is not None:
        return refusal
    if not found.unused:
        return rejected("the authorization is used up: the call would revert")
    if intent.window_closed:
        return rejected("the payer's authorization has ended")
    settling_store.bury_reverted(conn, intent.id)
    return _to_settling(conn, command, intent, epoch)


def _fail(conn: Connection[Any], command: OpenCommand, intent: Intent, found: Evidence, epoch: int) -> Verdict:
    refusal = _not_over(conn, intent, found)
    if refusal is not None:
        return refusal
    change = Change.of(intent, reason=_reason(command), by_user=command.requested_by)
    moved = intents.move(conn, IntentState.FAILED, [change], OPERATOR, epoch=epoch)
    intent_store.drop_settle(conn, [one.intent.id for one in moved])
    ledger.append(conn, [void_of(one.intent, OPERATOR, memo=_reason(command)) for one in moved])
    return _verdict(intent, bool(moved))


def _mark_sent(conn: Connection[Any], command: OpenCommand, intent: Intent, found: Evidence, epoch: int) -> Verdict:
    if found.tx_hash is None or not found.exact:
        return rejected("the chain has no transaction of this hash that carries the payment as asked")
    change = Change.of(intent, tx_hash=found.tx_hash, reason=_reason(command), by_user=command.requested_by)
    return _verdict(intent, bool(intents.move(conn, IntentState.CONFIRMING, [change], OPERATOR, epoch=epoch)))


def _settle(conn: Connection[Any], command: OpenCommand, intent: Intent, found: Evidence, epoch: int) -> Verdict:
    """Settled by hand: the chain shows the payment, final and exact, or the reviewers vouch that it was paid another way, which they
    may only where nothing of ours can move the money a second time."""
    if found.tx_hash is None:
        return rejected("a settlement names its transaction")
    if not (found.exact and found.final):
        if not command.payload.get("off_chain"):
            return rejected("the transaction does not carry the payment as asked, or is not final")
        refusal = _not_over(conn, intent, found)
        if refusal is not None:
            return refusal
    change = Change.of(intent, tx_hash=found.tx_hash, reason=_reason(command), by_user=command.requested_by)
    moved = intents.move(conn, IntentState.SETTLED, [change], OPERATOR, epoch=epoch)
    intent_store.drop_settle(conn, [one.intent.id for one in moved])
    ledger.append(conn, [post_of(one.intent, OPERATOR, memo=_reason(command)) for one in moved])
    return _verdict(intent, bool(moved))


def _not_over(conn: Connection[Any], intent: Intent, found: Evidence) -> Verdict | None:
    """Why a transaction may still move the money, or has; None when neither can be."""
    if not found.unused and not found.otherwise:
        return rejected("the chain calls the authorization used, or does not say: name its transaction")
    refusal = no_failure(Kind.PAYMENT, store.slot_of(conn, Subject(Kind.PAYMENT, intent.id)))
    return rejected(refusal) if refusal is not None else None


def _to_settling(conn: Connection[Any], command: OpenCommand, intent: Intent, epoch: int) -> Verdict:
    change = Change.of(intent, reason=_reason(command), by_user=command.requested_by)
    moved = intents.move(conn, IntentState.SETTLING, [change], OPERATOR, epoch=epoch)
    intent_store.enqueue_settle(conn, [one.intent.id for one in moved], RESCUE)
    return _verdict(intent, bool(moved))


def _verdict(was: Intent, moved: bool) -> Verdict:
    return Verdict(Outcome.APPLIED if moved else Outcome.SUPERSEDED, {"was": was.state.value})


def _reason(command: OpenCommand) -> str:
    return str(command.payload.get("reason") or f"{command.payload.get('action')} by an operator")


Decision = Callable[[Connection[Any], OpenCommand, Intent, Evidence, int], Verdict]
_DECISIONS: Final[Mapping[ReviewAction, Decision]] = {
    ReviewAction.RESEND: _resend,
    ReviewAction.FAIL: _fail,
    ReviewAction.MARK_SENT: _mark_sent,
    ReviewAction.SETTLE: _settle,
}
