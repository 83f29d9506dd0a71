"""Payments on behalf of clients: create, authorize, cancel (design 2.2). States change in `transitions.intents`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import psycopg
from django.conf import settings

from requests_app import authorizations, depths
from requests_app.addresses import parse_address
from requests_app.authorizations import Authorization, Transfer
from requests_app.config import config
from requests_app.crash_points import crash_point
from requests_app.errors import (
    IllegalTransition,
    IntentExpired,
    IntentMissing,
    RelayerError,
    TerminalState,
    VersionConflict,
)
from requests_app.states import INTENT_FINAL, IntentState, Kind
from requests_app.store import payments as store
from requests_app.store.intents import Intent, find_intent
from requests_app.store.session import transaction
from requests_app.transitions import intents
from requests_app.transitions.intents import Terms

CANCELED_BY_CLIENT: Final = "canceled by client"
# Each round is lost to somebody who moved the intent between our look and our change.
_ROUNDS: Final = 4
_RACES: Final = (IllegalTransition, TerminalState, VersionConflict)
Connection = psycopg.Connection[Any]


class QueueFull(RelayerError):
    """So many payments wait that no further one is taken in."""


class ExpiredAlready(RelayerError):
    """The time that was asked for is over."""


class AuthorizationRefused(RelayerError):
    """The authorization does not permit this payment; `field` is the one to blame."""

    def __init__(self, field: str, issue: str) -> None:
        super().__init__(issue)
        self.field = field


class WindowOver(RelayerError):
    """The authorization's valid_before has passed."""


class PaymentConflict(RelayerError):
    """The payment is not in a state for this; `intent` is how it stands."""

    def __init__(self, intent: Intent) -> None:
        super().__init__(f"{intent.public_id} is {intent.state}")
        self.intent = intent


class OtherAuthorization(PaymentConflict):
    """The payment carries another authorization."""


def gateway_chain() -> str:
    """The chain on which payments settle, as an intent names it."""
    return f"evm:{config().gateway.chain_id}"


def create(conn: Connection, account_id: int, terms: Terms, expires_at: datetime | None) -> Intent:
    """A new intent. Without `expires_at` it may be authorized for PAYMENT_LIFETIME_SECONDS.

    Raises QueueFull, ExpiredAlready, AccountDisabled.
    """
    _check_room(conn)
    with transaction(conn):
        intent = intents.create(
            conn, account_id, terms, expires_at=expires_at, lifetime_seconds=settings.PAYMENT_LIFETIME_SECONDS
        )
        if intent.expired:
            raise ExpiredAlready
        crash_point("before_create_payment_commit")
    crash_point("after_create_payment_commit")
    return intent


def find(conn: Connection, account_id: int, public_id: str) -> Intent:
    """The account's intent. Raises IntentMissing, also for somebody else's."""
    intent = find_intent(conn, public_id, account_id)
    if intent is None:
        raise IntentMissing
    return intent


def authorize(conn: Connection, account_id: int, public_id: str, authorization: Authorization) -> Intent:
    """Verify and store the payer's authorization, and queue the payment. The same one again changes nothing.

    Raises IntentMissing, AccountDisabled, QueueFull, OtherAuthorization, PaymentConflict (canceled), IntentExpired, WindowOver,
    AuthorizationRefused.
    """
    for _ in range(_ROUNDS):
        intent = find(conn, account_id, public_id)
        try:
            return _authorize(conn, intent, authorization)
        except _RACES:
            continue
    raise PaymentConflict(find(conn, account_id, public_id))


def cancel(conn: Connection, account_id: int, public_id: str) -> Intent:
    """Withdraw a payment for which nothing was signed by us yet; a canceled one stays as it is.

    Raises IntentMissing, AccountDisabled, PaymentConflict.
    """
    try:
        return intents.cancel(conn, public_id, CANCELED_BY_CLIENT, account_id=account_id)
    except _RACES as error:
        raise PaymentConflict(find(conn, account_id, public_id)) from error


def transfer_of(intent: Intent) -> Transfer | None:
    """What the intent moves; None when its token or chain is not configured (any more)."""
    chain = config().gateway
    tokens = chain.tokens
    token = tokens.get(parse_address(intent.token) or b"")
    payer, merchant = parse_address(intent.payer), parse_address(intent.merchant)
    if token is None or payer is None or merchant is None or intent.chain != gateway_chain():
        return None
    return Transfer(chain.chain_id, token, payer, merchant, intent.amount, intent.ref)


def valid_before(intent: Intent) -> int:
    """Until when a payer is asked to authorize: the intent's own end, in seconds since 1970."""
    return int(intent.expires_at.timestamp()) if intent.expires_at else authorizations.UINT256_MAX


def _authorize(conn: Connection, intent: Intent, authorization: Authorization) -> Intent:
    wanted = authorization.stored()
    if intent.authorization is None and intent.state is IntentState.CREATED:
        _check(intent, authorization)
        _check_room(conn)
        intent = intents.authorize(conn, intent.account_id, intent.public_id, wanted).intent
    if intent.authorization is not None and dict(intent.authorization) != wanted:
        raise OtherAuthorization(intent)
    if intent.state is IntentState.CANCELED or intent.authorization is None:
        raise PaymentConflict(intent)
    return intent


def _check(intent: Intent, authorization: Authorization) -> None:
    """Everything that the token contract will check, and that the intent is not over. By the database's clock."""
    if intent.expired:
        raise IntentExpired
    now = intent.updated_at.astimezone(UTC).timestamp() + intent.age_seconds
    if authorization.valid_before <= now:
        raise WindowOver
    if authorization.valid_after >= now:
        raise AuthorizationRefused("valid_after", "Must be over already")
    if authorization.nonce != intent.ref:
        raise AuthorizationRefused("nonce", "Must be the ref of the payment")
    transfer = transfer_of(intent)
    if transfer is None:
        raise AuthorizationRefused("token", "Payments in this token do not settle here any more")
    if not authorizations.is_signed_by_payer(transfer, authorization):
        raise AuthorizationRefused("signature", "Is not the payer's signature of these terms")


def _check_room(conn: Connection) -> None:
    if depths.recall(Kind.PAYMENT) is not None:
        return  # only what leaves room is recalled
    depth = store.settle_depth(conn, depths.door())
    depths.learn(Kind.PAYMENT, depths.Depths(0, depth))
    if depth >= depths.door():
        raise QueueFull


def has_ended(intent: Intent) -> bool:
    """Whether nothing will change any more."""
    return intent.state in INTENT_FINAL
