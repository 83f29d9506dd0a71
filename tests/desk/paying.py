"""Payments in every state, made by the product's own transitions, with their books."""

from __future__ import annotations

from typing import Any

from requests_app.ledger import hold_of, post_of, void_of
from requests_app.models.reviews import ReasonCode
from requests_app.states import IntentActor, IntentState, Kind
from requests_app.store import ledger, letters, queue
from requests_app.store.intents import Intent
from requests_app.store.letters import GivenUp
from requests_app.store.queue import Subject
from requests_app.store.session import transaction, web_connection
from requests_app.transitions import intents
from requests_app.transitions.intents import Change
from tests.payments.terms import TERMS, authorization

S, A = IntentState, IntentActor


def payment(
    account: int, state: IntentState, tx_hash: bytes, *, why: ReasonCode = ReasonCode.OUTCOME_UNKNOWN
) -> Intent:
    """One payment brought to `state` the way the product brings it there."""
    conn = web_connection()
    with transaction(conn):
        made = intents.create(conn, account, TERMS)
        if state is S.CREATED:
            return made
        if state is S.CANCELED:
            return intents.cancel(conn, made.public_id, "canceled by client", account_id=account)
        made = intents.authorize(conn, account, made.public_id, authorization(made)).intent
        if state is S.AUTHORIZED:
            return made
        made = _moved(conn, S.SETTLING, Change.of(made), A.RELAYER)
        ledger.append(conn, [hold_of(made)])
        if state is S.SETTLING:
            return made
        if state is S.FAILED:
            made = _moved(conn, S.FAILED, Change.of(made, reason="the authorization ended unused"), A.RELAYER)
            ledger.append(conn, [void_of(made, A.RELAYER, memo="the authorization ended unused")])
            return made
        if state is S.NEEDS_REVIEW:
            change = Change.of(made, reason="no node knows its transaction", evidence={"nonce": 17, "deliveries": 4})
            return _moved(conn, S.NEEDS_REVIEW, change, A.RELAYER, review=why)
        made = _moved(conn, S.CONFIRMING, Change.of(made, tx_hash=tx_hash), A.RELAYER)
        if state is S.SETTLED:
            made = _moved(conn, S.SETTLED, Change.of(made, tx_hash=tx_hash), A.LISTENER)
            ledger.append(conn, [post_of(made)])
        return made


def given_up(intent: Intent) -> None:
    """Its job as a dead letter."""
    conn = web_connection()
    subject = Subject(Kind.PAYMENT, intent.id)
    with transaction(conn):
        queue.enqueue_jobs(conn, "scene", [(subject, 1)])
        (job,) = queue.lease_jobs(conn, "scene", 1, "scene", 30)
        letters.park_jobs(conn, [GivenUp(job.receipt, "the token refuses it: blacklisted", intent.state.value)])


def _moved(conn: Any, target: IntentState, change: Change, actor: IntentActor, **more: Any) -> Intent:
    (moved,) = intents.move(conn, target, [change], actor, **more)
    return moved.intent
