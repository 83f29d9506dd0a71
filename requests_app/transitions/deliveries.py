"""Where deliveries of webhooks go from `waiting`, and back: the table is in `states`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from django.conf import settings
from psycopg import Connection

from requests_app import backoff
from requests_app.metrics import observe_deliveries
from requests_app.states import DELIVERY_TRANSITIONS, WEBHOOK_TRANSITIONS, DeliveryVerb, WebhookState
from requests_app.store import webhooks as store
from requests_app.store.webhooks import Due, Record, Wanted, Webhook

FIRST_DELAY_SECONDS: Final = 5.0
LONGEST_DELAY_SECONDS: Final = 6 * 3600.0
GONE: Final = 410
LONGEST_ERROR: Final = 300
REMOVED: Final = "its webhook was removed"
TOO_OLD: Final = "it had waited for too long"


class Attempt(NamedTuple):
    """What one attempt came to: the receiver's HTTP status, or why there is none."""

    due: Due
    status: int | None
    error: str | None = None


def verb_of(attempt: Attempt) -> DeliveryVerb:
    """What follows from an attempt."""
    if attempt.status is not None and 200 <= attempt.status < 300:
        return DeliveryVerb.DELIVER
    if attempt.status == GONE or attempt.due.attempt >= int(settings.WEBHOOK_ATTEMPTS):
        return DeliveryVerb.GIVE_UP
    return DeliveryVerb.POSTPONE


def record(conn: Connection[Any], attempts: Sequence[Attempt]) -> dict[DeliveryVerb, int]:
    """Move what was attempted, all in one statement; how many by what happened to them. One that another has taken up since stays."""
    verbs = {one.due.id: verb_of(one) for one in attempts}
    records = [
        Record(
            one.due.id,
            one.due.attempt,
            DELIVERY_TRANSITIONS[verbs[one.due.id]].target,
            one.status,
            _reason(one, verbs[one.due.id]),
            backoff.half_by_chance(one.due.attempt, FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS),
        )
        for one in attempts
    ]
    done = Counter(verbs[delivery_id] for delivery_id, _ in store.record_deliveries(conn, records))
    observe_deliveries(done)
    return dict(done)


def drop_removed(conn: Connection[Any], limit: int) -> int:
    """End what waits for removed webhooks: how many, at most `limit`."""
    row = DELIVERY_TRANSITIONS[DeliveryVerb.DROP]
    return store.drop_deliveries(conn, row.source, row.target, REMOVED, limit)


def expire(conn: Connection[Any], seconds: float, limit: int) -> int:
    """Give up what has waited for `seconds`: how many, at most `limit`."""
    row = DELIVERY_TRANSITIONS[DeliveryVerb.EXPIRE]
    expired = store.expire_deliveries(conn, row.source, row.target, TOO_OLD, seconds, limit)
    observe_deliveries({DeliveryVerb.EXPIRE: expired})
    return expired


def redrive(conn: Connection[Any], delivery_id: int) -> bool:
    """Send a failed delivery again; False when it is not failed (any more), or nobody is there to be told."""
    row = DELIVERY_TRANSITIONS[DeliveryVerb.REDRIVE]
    return store.redrive_delivery(conn, delivery_id, row.source, row.target)


def change_webhook(
    conn: Connection[Any], account_id: int, public_id: str, wanted: Wanted, target: WebhookState | None
) -> Webhook | None:
    """Change a webhook, enable or pause it: one that is so already stays so. None when the account has none of this id."""
    sources = {WebhookState.ENABLED, WebhookState.PAUSED} if target is None else {target, *WEBHOOK_TRANSITIONS[target]}
    return store.change_webhook(conn, account_id, public_id, wanted, target, sorted(sources))


def remove_webhook(conn: Connection[Any], account_id: int, public_id: str) -> bool:
    """Remove a webhook: its secrets at once, what waits for it soon. False when the account has none of this id."""
    target = WebhookState.REMOVED
    return store.remove_webhook(conn, account_id, public_id, target, sorted(WEBHOOK_TRANSITIONS[target]))


def _reason(attempt: Attempt, verb: DeliveryVerb) -> str | None:
    if verb is DeliveryVerb.DELIVER:
        return None
    return (attempt.error or f"the receiver answered {attempt.status}")[:LONGEST_ERROR]
