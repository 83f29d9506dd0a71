"""Payments on their way to the chain: held and signed (TX1), taken by a node, spent by somebody else, given up.

Each is one transaction for a whole batch: states by `transitions.intents`, slots and bytes, jobs, and last of all the journal. A
payment that moved on meanwhile is left out of the answer and of everything written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from psycopg import Connection

from requests_app.crash_points import crash_point
from requests_app.errors import StaleEpoch
from requests_app.ledger import hold_of, void_of
from requests_app.models.reviews import ReasonCode
from requests_app.states import IntentActor, IntentState
from requests_app.store import intents as intent_store
from requests_app.store import ledger, letters, queue
from requests_app.store import settling as store
from requests_app.store.intents import Intent
from requests_app.store.letters import GivenUp
from requests_app.store.queue import Receipt
from requests_app.store.session import transaction
from requests_app.store.signing import Fence, hold_fence
from requests_app.transitions import intents
from requests_app.transitions.intents import Change, Moved
from requests_app.transitions.sending import Prepared, Price, Wanted

RELAYER: Final = IntentActor.RELAYER
LISTENER: Final = IntentActor.LISTENER
CANCELED_ON_CHAIN: Final = "authorization canceled on chain"


class Payable(NamedTuple):
    """A payment that may be signed: as it was read, with its call, gas limit, job and receipt."""

    intent: Intent
    wanted: Wanted


class Underway(NamedTuple):
    """A payment whose bytes are stored: the intent as it stands now, and what is to be broadcast."""

    intent: Intent
    prepared: Prepared


class Elsewhere(NamedTuple):
    """A payment whose authorization the chain calls used. `tx_hash` None: by which transaction is not known."""

    intent: Intent
    receipt: Receipt
    tx_hash: bytes | None
    evidence: Mapping[str, Any]


class Hopeless(NamedTuple):
    """A payment whose job is given up. `signed`: bytes exist that a node may have."""

    intent: Intent
    receipt: Receipt
    reason: str
    signed: bool


Sign = Callable[[Wanted, int], tuple[bytes, bytes]]


def prepare_settle(
    conn: Connection[Any],
    fence: Fence,
    signer_id: int,
    payments: Sequence[Payable],
    price: Price,
    sign: Sign,
    *,
    source: IntentState = IntentState.AUTHORIZED,
) -> list[Underway]:
    """authorized -> settling with nonce, slot, signed bytes and a hold each, in one transaction (TX1 of design 2.3).

    From `settling` (a new nonce after the old one is dead) state and hold stand already. `sign(wanted, nonce)` gives raw bytes and
    hash without I/O. What comes back may be fewer than asked: rows that moved on, or accounts that were disabled; nothing when the
    epoch is over or the signer is not active. Raises whatever `sign` raises, with nothing written.
    """
    if not payments:
        return []
    with transaction(conn):
        # A statement of its own: the next one then judges the accounts on a snapshot from after this wait (T1).
        store.lock_owners(conn, [one.intent.id for one in payments])
        claimed = store.claim_payments(conn, fence, signer_id, [one.intent for one in payments], source)
        mine = [(payments[place], nonce) for place, nonce in claimed]
        prepared = []
        for one, nonce in mine:
            raw, tx_hash = sign(one.wanted, nonce)
            prepared.append(Prepared(one.wanted.held, nonce, tx_hash, raw))
        now = {one.intent.id: one.intent for one, _ in mine}
        if prepared and source is IntentState.AUTHORIZED:
            now = _settling(conn, [one.intent for one, _ in mine], fence.epoch)
        if prepared:
            _store(conn, fence, signer_id, [one for one, _ in mine], prepared, price)
            if source is IntentState.AUTHORIZED:
                ledger.append(conn, [hold_of(now[one.intent.id]) for one, _ in mine])
        crash_point("before_prepare_settle_commit")
    crash_point("after_prepare_settle_commit")
    return [Underway(now[one.intent.id], item) for (one, _), item in zip(mine, prepared, strict=True)]


def hold_unlogged(conn: Connection[Any], payments: Sequence[Intent]) -> list[Intent]:
    """authorized -> settling with a hold each and no nonce: the original scenario, which keeps no log of what it sends."""
    with transaction(conn):
        store.lock_owners(conn, [one.id for one in payments])
        moved = intents.move(conn, IntentState.SETTLING, [Change.of(one) for one in payments], RELAYER)
        ledger.append(conn, [hold_of(one.intent) for one in moved])
        crash_point("before_hold_unlogged_commit")
    crash_point("after_hold_unlogged_commit")
    return [one.intent for one in moved]


def confirm_unlogged(conn: Connection[Any], intent: Intent, tx_hash: bytes, receipt: Receipt) -> None:
    """settling -> confirming and the job done, in one transaction (TX2 without the attempt log)."""
    with transaction(conn):
        confirm(conn, [(intent, tx_hash)])
        queue.ack_jobs(conn, [receipt])
        crash_point("before_confirm_unlogged_commit")
    crash_point("after_confirm_unlogged_commit")


def confirm(conn: Connection[Any], taken: Sequence[tuple[Intent, bytes]], epoch: int | None = None) -> list[Moved]:
    """settling -> confirming, each with the 32-byte hash that a node has taken, in the caller's transaction."""
    changes = [Change.of(intent, tx_hash=tx_hash) for intent, tx_hash in taken]
    return intents.move(conn, IntentState.CONFIRMING, changes, RELAYER, epoch=epoch)


def note_taken(conn: Connection[Any], taken: Mapping[int, bytes]) -> list[Moved]:
    """As `confirm`, for payments that are read here: those that are still settling. In the caller's transaction. A fact: not fenced."""
    if not taken:
        return []
    found = intent_store.lock_intents(conn, sorted(taken))
    return confirm(conn, [(one, taken[one.id]) for one in found if one.state is IntentState.SETTLING])


def note_mined(conn: Connection[Any], mined: Mapping[int, bytes]) -> list[Moved]:
    """The chain shows which transaction carries each payment: settling ones confirm it, and one that was confirming another
    attempt of the same nonce (an offer that was outbid) confirms this one. In the caller's transaction. A fact: not fenced."""
    if not mined:
        return []
    found = intent_store.lock_intents(conn, sorted(mined))
    outbid = [one for one in found if one.state is IntentState.CONFIRMING and one.tx_hash != mined[one.id]]
    changes = [Change.of(one, reason="another attempt of its nonce was mined") for one in outbid]
    back = [one.intent for one in intents.move(conn, IntentState.SETTLING, changes, LISTENER)]
    back += [one for one in found if one.state is IntentState.SETTLING]
    return confirm(conn, [(one, mined[one.id]) for one in back])


def executed_elsewhere(conn: Connection[Any], fence: Fence, found: Sequence[Elsewhere]) -> list[Moved]:
    """authorized -> settling with a hold, and on to confirming with the hash of whoever executed the authorization (B50); without
    a hash to needs_review. The jobs are done. One transaction under the signer's lease; raises StaleEpoch."""
    if not found:
        return []
    by_id = {one.intent.id: one for one in found}
    with transaction(conn):
        store.lock_owners(conn, sorted(by_id))
        hold_fence(conn, fence)
        # Those that were settling already have their hold.
        fresh = [one.intent for one in found if one.intent.state is IntentState.AUTHORIZED]
        held = _settling(conn, fresh, fence.epoch, strict=False)
        settling = [*held.values(), *(one.intent for one in found if one.intent.state is IntentState.SETTLING)]
        moved = confirm(conn, [(one, by_id[one.id].tx_hash or b"") for one in settling if by_id[one.id].tx_hash])
        lost = [Change.of(one, reason=UNKNOWN_SPENDER, evidence=by_id[one.id].evidence) for one in settling
                if not by_id[one.id].tx_hash]  # fmt: skip
        moved += intents.move(
            conn, IntentState.NEEDS_REVIEW, lost, RELAYER, review=ReasonCode.OUTCOME_UNKNOWN, epoch=fence.epoch
        )
        queue.ack_jobs(conn, [one.receipt for one in found])
        ledger.append(conn, [hold_of(one) for one in held.values()])
        crash_point("before_executed_elsewhere_commit")
    crash_point("after_executed_elsewhere_commit")
    return moved


def cancel_unsent(conn: Connection[Any], found: Sequence[tuple[Intent, Receipt, str]]) -> list[Moved]:
    """authorized -> canceled, the jobs done: its window is over, or the payer has canceled it on chain, before anything was signed."""
    if not found:
        return []
    with transaction(conn):
        changes = [Change.of(intent, reason=why) for intent, _, why in found]
        moved = intents.move(conn, IntentState.CANCELED, changes, IntentActor.SYSTEM)
        queue.ack_jobs(conn, [receipt for _, receipt, _ in found])
        crash_point("before_cancel_unsent_commit")
    crash_point("after_cancel_unsent_commit")
    return moved


def review(
    conn: Connection[Any],
    found: Sequence[tuple[Intent, Receipt, str]],
    reason: ReasonCode = ReasonCode.OUTCOME_UNKNOWN,
    evidence: Mapping[int, Mapping[str, Any]] | None = None,
) -> list[Moved]:
    """settling -> needs_review with an open case each, and the jobs done: the reason is told in words."""
    if not found:
        return []
    shown = evidence or {}
    with transaction(conn):
        changes = [
            Change.of(intent, reason=why, evidence=shown.get(intent.id, {"reason": why})) for intent, _, why in found
        ]
        moved = intents.move(conn, IntentState.NEEDS_REVIEW, changes, RELAYER, review=reason)
        queue.ack_jobs(conn, [receipt for _, receipt, _ in found])
        crash_point("before_review_payments_commit")
    crash_point("after_review_payments_commit")
    return moved


def fail_closed(conn: Connection[Any], found: Sequence[tuple[Intent, Receipt, str]]) -> list[Moved]:
    """settling -> failed and the hold voided, the jobs done: proven that nothing can move the money any more."""
    if not found:
        return []
    with transaction(conn):
        moved = intents.move(
            conn, IntentState.FAILED, [Change.of(intent, reason=why) for intent, _, why in found], RELAYER
        )
        queue.ack_jobs(conn, [receipt for _, receipt, _ in found])
        memos = {intent.id: why for intent, _, why in found}
        ledger.append(conn, [void_of(one.intent, RELAYER, memo=memos[one.intent.id]) for one in moved])
        crash_point("before_fail_closed_commit")
    crash_point("after_fail_closed_commit")
    return moved


def give_up(conn: Connection[Any], hopeless: Sequence[Hopeless]) -> list[Moved]:
    """Jobs into dead letters; what becomes of the payments is decided by their state (reference 2.7).

    created, authorized: untouched. settling, never signed: the only proof that no node has anything: failed, and the hold voided.
    settling otherwise: needs_review. Later states: untouched.
    """
    if not hopeless:
        return []
    reasons = {one.intent.id: one.reason for one in hopeless}
    with transaction(conn):
        standing = {one.id: one for one in intent_store.lock_intents(conn, sorted(reasons))}
        ends = {one.intent.id: end for one in hopeless if (end := _end(one, standing.get(one.intent.id)))}
        parked = [
            GivenUp(
                one.receipt, one.reason, ends.get(one.intent.id, standing.get(one.intent.id, one.intent).state).value
            )
            for one in hopeless
        ]
        # A stale receipt: somebody else has the job in hand, and may have signed the payment since at the version that was read here.
        current = set(letters.park_jobs(conn, parked))
        ours = [one for one in hopeless if one.receipt.job_id in current and one.intent.id in ends]
        lost = [
            Change.of(one.intent, reason=one.reason, evidence={"attempts": one.receipt.attempt, "reason": one.reason})
            for one in ours if one.signed
        ]  # fmt: skip
        moved = intents.move(conn, IntentState.NEEDS_REVIEW, lost, RELAYER, review=ReasonCode.OUTCOME_UNKNOWN)
        unsent = [Change.of(one.intent, reason=one.reason) for one in ours if not one.signed]
        failed = intents.move(conn, IntentState.FAILED, unsent, RELAYER)
        ledger.append(conn, [void_of(one.intent, RELAYER, memo=reasons[one.intent.id]) for one in failed])
        crash_point("before_give_up_commit")
    crash_point("after_give_up_commit")
    return [*moved, *failed]


def _end(one: Hopeless, now: Intent | None) -> IntentState | None:
    """What a settling payment becomes with its job; None for one that stays as it is."""
    if now is None or now.version != one.intent.version or now.state is not IntentState.SETTLING:
        return None
    return IntentState.NEEDS_REVIEW if one.signed else IntentState.FAILED


UNKNOWN_SPENDER: Final = "the token calls the authorization used, but no transaction shows it"


def _settling(
    conn: Connection[Any], payments: Sequence[Intent], epoch: int, *, strict: bool = True
) -> dict[int, Intent]:
    """authorized -> settling; `strict`: all of them, which are locked, or StaleEpoch."""
    moved = intents.move(conn, IntentState.SETTLING, [Change.of(one) for one in payments], RELAYER, epoch=epoch)
    if strict and len(moved) != len(payments):
        raise StaleEpoch("payments moved under their locks")
    return {one.intent.id: one.intent for one in moved}


def _store(
    conn: Connection[Any],
    fence: Fence,
    signer_id: int,
    payments: Sequence[Payable],
    prepared: Sequence[Prepared],
    price: Price,
) -> None:
    signed = [
        store.Signed(one.intent.id, item.nonce, item.tx_hash, item.raw, one.wanted.gas)
        for one, item in zip(payments, prepared, strict=True)
    ]
    if not store.store_payments(conn, signer_id, fence.epoch, signed, price.max_fee, price.max_priority):
        raise StaleEpoch(f"{fence.resource}: the counter moved under its lock")
