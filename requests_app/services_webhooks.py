"""Webhooks on behalf of clients: make, change, try, remove. States change in `transitions.deliveries`."""

from __future__ import annotations

import secrets
from typing import Any, Final
from uuid import UUID

import psycopg
from django.conf import settings

from requests_app.crash_points import crash_point
from requests_app.errors import AccountDisabled, RelayerError
from requests_app.states import WebhookState
from requests_app.store import webhooks as store
from requests_app.store.session import transaction
from requests_app.store.webhooks import Wanted, Webhook
from requests_app.transitions import deliveries
from requests_app.webhook_messages import new_secret, shown_secret
from requests_app.webhook_targets import judged_within, parse_target

LOOKUP_SECONDS: Final = 3.0
OVERLAP_SECONDS: Final = 86_400.0
"""How long the secret of before signs too."""
Connection = psycopg.Connection[Any]


class WebhookMissing(RelayerError):
    """There is no such webhook of this account."""

    http_status = 404


class TooManyWebhooks(RelayerError):
    """The account has as many webhooks as it may have."""

    http_status = 409


class NotTestable(RelayerError):
    """The webhook is paused, or its last test is still on its way."""

    http_status = 409


def check_url(url: str) -> None:
    """Judge a receiver's URL and where it leads now. Raises TargetRefused, TargetUnknown."""
    judged_within(parse_target(url), LOOKUP_SECONDS)


def create(conn: Connection, account_id: int, wanted: Wanted) -> tuple[Webhook, str]:
    """A new webhook, enabled, and its secret, which exists nowhere else in this form. The URL was checked.

    Raises TooManyWebhooks, AccountDisabled.
    """
    secret = new_secret()
    with transaction(conn):
        _lock_active(conn, account_id)
        made = store.insert_webhook(
            conn, account_id, f"wh_{secrets.token_hex(12)}", wanted, secret, int(settings.WEBHOOKS_PER_ACCOUNT)
        )
        if made is None:
            raise TooManyWebhooks
        crash_point("before_create_webhook_commit")
    crash_point("after_create_webhook_commit")
    return made, shown_secret(secret)


def find(conn: Connection, account_id: int, public_id: str) -> Webhook:
    """The account's webhook. Raises WebhookMissing, also for somebody else's."""
    return _found(store.find_webhook(conn, account_id, public_id))


def change(conn: Connection, account_id: int, public_id: str, wanted: Wanted, target: WebhookState | None) -> Webhook:
    """The webhook after the change; `target` enables or pauses it. A new URL was checked. Raises WebhookMissing, AccountDisabled."""
    with transaction(conn):
        _lock_active(conn, account_id)
        changed = deliveries.change_webhook(conn, account_id, public_id, wanted, target)
        crash_point("before_change_webhook_commit")
    crash_point("after_change_webhook_commit")
    return _found(changed)


def rotate(conn: Connection, account_id: int, public_id: str) -> tuple[Webhook, str]:
    """The webhook and its new secret; the one of before signs too for OVERLAP_SECONDS. Raises WebhookMissing, AccountDisabled."""
    secret = new_secret()
    with transaction(conn):
        _lock_active(conn, account_id)
        rotated = store.rotate_secret(conn, account_id, public_id, secret, OVERLAP_SECONDS)
        crash_point("before_rotate_webhook_commit")
    crash_point("after_rotate_webhook_commit")
    return _found(rotated), shown_secret(secret)


def remove(conn: Connection, account_id: int, public_id: str) -> None:
    """Nothing leaves for it any more. Raises WebhookMissing, AccountDisabled."""
    with transaction(conn):
        _lock_active(conn, account_id)
        removed = deliveries.remove_webhook(conn, account_id, public_id)
        crash_point("before_remove_webhook_commit")
    crash_point("after_remove_webhook_commit")
    if not removed:
        raise WebhookMissing


def send_test(conn: Connection, account_id: int, public_id: str) -> UUID:
    """A delivery that only tries the way: its id. Raises WebhookMissing, NotTestable, AccountDisabled."""
    with transaction(conn):
        _lock_active(conn, account_id)
        webhook = find(conn, account_id, public_id)
        made = store.insert_test(conn, webhook.id)
        crash_point("before_test_webhook_commit")
    crash_point("after_test_webhook_commit")
    if made is None:
        raise NotTestable
    return made


def redrive(conn: Connection, delivery_id: int) -> bool:
    """Send a failed delivery again, for an operator; False when it is not failed (any more), or its webhook was removed."""
    with transaction(conn):
        redriven = deliveries.redrive(conn, delivery_id)
        crash_point("before_redrive_webhook_commit")
    crash_point("after_redrive_webhook_commit")
    return redriven


def _lock_active(conn: Connection, account_id: int) -> None:
    """Keep the account from being disabled until the transaction ends (I11). Raises AccountDisabled when it is."""
    if not store.lock_account(conn, account_id):
        raise AccountDisabled


def _found(webhook: Webhook | None) -> Webhook:
    if webhook is None:
        raise WebhookMissing
    return webhook
