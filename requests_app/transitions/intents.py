"""The only writer of payment intents' states (design 2.2; reference queue_settle 1.2). The table is `states.INTENT_TRANSITIONS`.

`move` changes many at once and answers which really changed; `create`, `authorize`, `cancel` and `expire` are whole decisions,
each one transaction. Whatever is written, the ref is derived from the terms again and compared.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import Connection

from requests_app.crash_points import crash_point
from requests_app.errors import (
    AccountDisabled,
    EvidenceMismatch,
    IntentMissing,
    MissingEvidence,
    RelayerError,
    VersionConflict,
)
from requests_app.identity import payment_ref
from requests_app.metrics import observe_status
from requests_app.models.reviews import ReasonCode
from requests_app.states import INTENT_FINAL, IntentActor, IntentState, Kind
from requests_app.store import bills
from requests_app.store import intents as store
from requests_app.store.intents import Intent
from requests_app.store.queue import NORMAL
from requests_app.store.session import transaction
from requests_app.transitions import generic
from requests_app.transitions.intent_rules import check_edge, check_ref, judge

_DIGITS: Final = 78  # of a uint256
EXPIRED: Final = "expired"  # the reason of a payment that the system canceled


class Terms(NamedTuple):
    """What a payment is: texts exactly as received, because the ref commits to them. `amount` is token units, above 0."""

    chain: str
    token: str
    payer: str
    merchant: str
    amount: int


class Change(NamedTuple):
    """One intent to move, as the caller read it. `tx_hash` is 32 bytes; `evidence` is shown to the reviewer of a case."""

    id: int
    version: int
    state: IntentState
    tx_hash: bytes | None = None
    reason: str | None = None
    by_user: str | None = None
    authorization: Mapping[str, Any] | None = None
    evidence: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, intent: Intent, **brought: Any) -> Change:
        """The change of an intent that was read."""
        return cls(intent.id, intent.version, intent.state, **brought)


class Moved(NamedTuple):
    """A change that happened: the intent after it, the state it left, and how long it had been there (seconds)."""

    intent: Intent
    was: IntentState
    spent_seconds: float


class Authorized(NamedTuple):
    """The intent after `authorize`. `queued` False: it was authorized already, or its job is still there."""

    intent: Intent
    queued: bool


def move(
    conn: Connection[Any],
    target: IntentState,
    changes: Sequence[Change],
    actor: IntentActor,
    *,
    review: ReasonCode | None = None,
    epoch: int | None = None,
) -> list[Moved]:
    """Bring intents to `target`, each only if it still has the version and state that were read; the answer is in id order.

    In the caller's transaction, who holds the fence if there is one. An intent that moved on meanwhile is left out, and so is one
    whose guard fails (authorizing after `expires_at`, settling with another hash than is on record). Writes the history, opens the
    case of those that go to needs_review (with `review` as its reason), closes the case of those that leave it (and of those that settle by the
    very transaction that nobody had expected), clears the hash of
    those that go to settling, settles or releases the usage that an ended payment was the bill of. Raises IllegalTransition, ForbiddenActor or MissingEvidence before anything is written, and
    RefMismatch when a ref is not that of its terms: the transaction must be given up then.
    """
    if not changes:
        return []
    _need_transaction(conn)
    for change in changes:
        check_edge(change.state, target, actor, change.tx_hash, change.reason, f"intent {change.id}")
    if (target is IntentState.NEEDS_REVIEW) != (review is not None):
        raise MissingEvidence("a case has a reason, and only a case")
    moves = [
        store.Move(
            change.id,
            change.version,
            change.state,
            change.tx_hash,
            change.reason,
            change.by_user,
            None if change.authorization is None else json.dumps(dict(change.authorization)),
        )
        for change in changes
    ]
    moved = [Moved(*one) for one in store.move_intents(conn, target, moves, actor.value, epoch)]
    for one in moved:
        check_ref(one.intent)
        observe_status(Kind.PAYMENT, one.was, one.spent_seconds)
    if review is not None:
        evidence = {change.id: change.evidence or {} for change in changes}
        generic.open_reviews(conn, Kind.PAYMENT, {one.intent.id: evidence[one.intent.id] for one in moved}, review)
    left = [one.intent.id for one in moved if one.was is IntentState.NEEDS_REVIEW]
    if left:
        generic.close_reviews(conn, Kind.PAYMENT, left, target.value)
    if target is IntentState.SETTLED and moved:
        generic.close_explained(conn, [one.intent.id for one in moved])
    if target in INTENT_FINAL:
        move_usage = bills.settle_bills if target is IntentState.SETTLED else bills.release_bills
        move_usage(conn, [one.intent.public_id for one in moved])
    return moved


def step(
    conn: Connection[Any],
    intent: Intent,
    target: IntentState,
    actor: IntentActor,
    *,
    tx_hash: bytes | None = None,
    reason: str | None = None,
    by_user: str | None = None,
    review: ReasonCode | None = None,
) -> Intent:
    """One change of one intent with its outcome as an exception: those of `judge`, or VersionConflict when somebody was faster.

    In the caller's transaction. The intent comes back as it is when it is in `target` already.
    """
    if not judge(intent, target, actor, tx_hash=tx_hash, reason=reason):
        return intent
    change = Change.of(intent, tx_hash=tx_hash, reason=reason, by_user=by_user)
    moved = move(conn, target, [change], actor, review=review)
    if not moved:
        raise VersionConflict(f"{intent.public_id} is not at version {intent.version} any more")
    return moved[0].intent


def new_public_id() -> str:
    """`pi_` and 24 hex digits: 96 random bits, unrelated to anything a client sends."""
    return f"pi_{secrets.token_hex(12)}"


def create(
    conn: Connection[Any],
    account_id: int,
    terms: Terms,
    *,
    expires_at: datetime | None = None,
    lifetime_seconds: float | None = None,
    public_id: str | None = None,
) -> Intent:
    """A new intent of an account, in `created`. It is to be authorized before `expires_at`, or within `lifetime_seconds` of now.

    One transaction, or part of the caller's. Raises IntentMissing for no such account, AccountDisabled, and ValueError for an
    amount that is not above 0. The terms are stored as they are: the door checks them.
    """
    if not 0 < terms.amount < 1 << 256:
        raise ValueError("an amount is above 0 and fits 256 bits")
    name = public_id or new_public_id()
    parameters = {
        **terms._asdict(),
        "amount": Decimal(terms.amount),
        "public_id": name,
        "ref": payment_ref(name, *terms),
        "account": account_id,
        "expires_at": expires_at,
        "lifetime": lifetime_seconds,
    }
    with transaction(conn):
        _lock_owner(conn, account_id)
        intent = store.insert_intent(conn, parameters, IntentActor.API.value)
        check_ref(intent)
        crash_point("before_create_intent_commit")
    crash_point("after_create_intent_commit")
    return intent


def authorize(
    conn: Connection[Any], account_id: int, public_id: str, authorization: Mapping[str, Any], *, priority: int = NORMAL
) -> Authorized:
    """created -> authorized with the payer's signed authorization, and the job `<public_id>/settle`, in one transaction.

    The signature is the door's to check; here its nonce must be the intent's ref, and its window two decimal texts, which every later
    reading relies on. An intent that is authorized already stays as it is. Raises IntentMissing (no such intent of this account), AccountDisabled, those of `judge`, EvidenceMismatch, VersionConflict.
    """
    with transaction(conn):
        _lock_owner(conn, account_id)
        intent = _lock_own(conn, public_id, account_id)
        if not judge(intent, IntentState.AUTHORIZED, IntentActor.API):
            return Authorized(intent, False)
        _check_authorization(intent, authorization)
        change = Change.of(intent, authorization=authorization)
        moved = move(conn, IntentState.AUTHORIZED, [change], IntentActor.API)
        if not moved:
            raise VersionConflict(f"{public_id} is not at version {intent.version} any more")
        queued = store.enqueue_settle(conn, [intent.id], priority)
        crash_point("before_authorize_commit")
    crash_point("after_authorize_commit")
    return Authorized(moved[0].intent, bool(queued))


def cancel(
    conn: Connection[Any],
    public_id: str,
    reason: str,
    *,
    account_id: int | None,
    actor: IntentActor = IntentActor.API,
    by_user: str | None = None,
) -> Intent:
    """created or authorized -> canceled, its job removed, in one transaction. Of a client's account, or (None) of anyone's.

    A canceled intent comes back as it is. Raises IntentMissing, AccountDisabled, those of `judge` (IllegalTransition once bytes were
    signed), VersionConflict.
    """
    with transaction(conn):
        if account_id is not None:
            _lock_owner(conn, account_id)
        intent = _lock_own(conn, public_id, account_id)
        canceled = step(conn, intent, IntentState.CANCELED, actor, reason=reason, by_user=by_user)
        store.drop_settle(conn, [canceled.id])
        crash_point("before_cancel_intent_commit")
    crash_point("after_cancel_intent_commit")
    return canceled


def expire(conn: Connection[Any], limit: int, *, epoch: int | None = None) -> list[Moved]:
    """The system cancels what was not signed in time: created past `expires_at`; authorized past its window without a live slot.

    In the caller's transaction, who holds the duty's lease. Those that somebody works on are left to the next run.
    """
    _need_transaction(conn)
    late = store.expirable(conn, limit)
    changes = [Change.of(intent, reason=EXPIRED) for intent in late]
    moved = move(conn, IntentState.CANCELED, changes, IntentActor.SYSTEM, epoch=epoch)
    if moved:
        store.drop_settle(conn, [one.intent.id for one in moved])
    return moved


def _check_authorization(intent: Intent, authorization: Mapping[str, Any]) -> None:
    if str(authorization.get("nonce", "")).lower() != f"0x{intent.ref.hex()}":
        raise EvidenceMismatch(f"{intent.public_id}: the authorization's nonce is not the ref")
    window = [authorization.get(name) for name in ("valid_after", "valid_before")]
    if not all(isinstance(text, str) and text.isascii() and text.isdigit() and len(text) <= _DIGITS for text in window):
        raise EvidenceMismatch(f"{intent.public_id}: the authorization's window is not two numbers")


def _lock_owner(conn: Connection[Any], account_id: int) -> None:
    active = store.lock_owner(conn, account_id)
    if active is None:
        raise IntentMissing("there is no such account")
    if not active:
        raise AccountDisabled


def _lock_own(conn: Connection[Any], public_id: str, account_id: int | None) -> Intent:
    found = store.find_intent(conn, public_id, account_id)
    if found is None:
        raise IntentMissing
    return store.lock_intents(conn, [found.id])[0]


def _need_transaction(conn: Connection[Any]) -> None:
    if conn.info.transaction_status is psycopg.pq.TransactionStatus.IDLE:
        raise RelayerError("states change in a transaction")
