"""Webhooks and their deliveries as rows. Times are the database's; intervals are seconds; secrets are 32 bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

from psycopg import Connection

from requests_app.models.accounts import AccountStatus
from requests_app.states import TEST_EVENT, DeliveryState, Kind, WebhookState
from requests_app.store.session import Row, fetch_all, fetch_one, fetch_only, run

_COLUMNS: Final = (
    "id, public_id, account_id, url, description, events, kinds, state, created_at, updated_at, former_until"
)
NEWEST: Final = 2**63 - 1
COUNTED_AT_MOST: Final = 10_000


class Webhook(NamedTuple):
    """A client's webhook, without its secret."""

    id: int
    public_id: str
    account_id: int
    url: str
    description: str
    events: tuple[str, ...]
    kinds: tuple[Kind, ...]
    state: WebhookState
    created_at: datetime
    updated_at: datetime
    former_until: datetime | None


class Wanted(NamedTuple):
    """What a client asks of its webhook; None keeps what there is."""

    url: str | None = None
    description: str | None = None
    events: Sequence[str] | None = None
    kinds: Sequence[Kind] | None = None


@dataclass(frozen=True, slots=True)
class Due:
    """A delivery in hand: `attempt` is the fence of what is recorded of it. `sent_at` is the database's clock, in seconds since 1970."""

    id: int
    attempt: int
    webhook_id: int
    public_id: UUID
    event: str
    kind: Kind | None
    subject: str | None
    occurred_at: datetime
    url: str
    secrets: tuple[bytes, ...] = field(repr=False)
    sent_at: int


class Record(NamedTuple):
    """What an attempt came to. `status` is the receiver's; `error` says why it is none, or not 2xx; `delay` until the next one."""

    id: int
    attempt: int
    target: DeliveryState
    status: int | None
    error: str | None
    delay: float


class Told(NamedTuple):
    """A delivery as its client sees it."""

    id: int
    public_id: UUID
    event: str
    kind: int | None
    subject: str | None
    occurred_at: datetime
    state: str
    attempts: int
    next_attempt_at: datetime
    last_attempt_at: datetime | None
    last_status: int | None
    last_error: str | None
    delivered_at: datetime | None


class Figures(NamedTuple):
    """For the metrics; counts go up to 10,000. `failed`: in the last day."""

    enabled: int
    waiting: int
    failed: int
    oldest_due_seconds: float


def lock_account(conn: Connection[Any], account_id: int) -> bool:
    """Lock the account in the caller's transaction; whether it is there and active."""
    row = fetch_one(conn, "webhooks", "lock_account", {"account": account_id})
    return row is not None and row.status == AccountStatus.ACTIVE.value


def insert_webhook(
    conn: Connection[Any], account_id: int, public_id: str, wanted: Wanted, secret: bytes, limit: int
) -> Webhook | None:
    """A new webhook of a locked account; None when it has `limit` already."""
    parameters = {
        **_wanted(wanted),
        "account": account_id,
        "public_id": public_id,
        "secret": secret,
        "limit": limit,
    }
    return _webhook(fetch_one(conn, "webhooks", "insert_webhook", parameters, columns=_COLUMNS))


def list_webhooks(conn: Connection[Any], account_id: int) -> list[Webhook]:
    """The account's webhooks, oldest first."""
    rows = fetch_all(conn, "webhooks", "list_webhooks", {"account": account_id}, columns=_COLUMNS)
    return [_read(row) for row in rows]


def find_webhook(conn: Connection[Any], account_id: int, public_id: str) -> Webhook | None:
    """The account's webhook of this id; None for a removed one, an unknown id and somebody else's."""
    parameters = {"account": account_id, "public_id": public_id}
    return _webhook(fetch_one(conn, "webhooks", "find_webhook", parameters, columns=_COLUMNS))


def change_webhook(
    conn: Connection[Any],
    account_id: int,
    public_id: str,
    wanted: Wanted,
    target: WebhookState | None,
    sources: Sequence[str],
) -> Webhook | None:
    """The webhook after the change; None when the account has none of this id in one of `sources`."""
    parameters = {
        **_wanted(wanted),
        "account": account_id,
        "public_id": public_id,
        "target": None if target is None else target.value,
        "sources": list(sources),
    }
    return _webhook(fetch_one(conn, "webhooks", "change_webhook", parameters, columns=_COLUMNS))


def rotate_secret(
    conn: Connection[Any], account_id: int, public_id: str, secret: bytes, overlap: float
) -> Webhook | None:
    """Sign with `secret` from now on, and for `overlap` seconds with the one before, too."""
    parameters = {"account": account_id, "public_id": public_id, "secret": secret, "overlap": overlap}
    return _webhook(fetch_one(conn, "webhooks", "rotate_secret", parameters, columns=_COLUMNS))


def remove_webhook(
    conn: Connection[Any], account_id: int, public_id: str, target: WebhookState, sources: Sequence[str]
) -> bool:
    """Forget the secrets and tell it nothing any more; False when the account has none of this id."""
    parameters = {"account": account_id, "public_id": public_id, "target": target.value, "sources": list(sources)}
    return fetch_one(conn, "webhooks", "remove_webhook", parameters) is not None


def insert_test(conn: Connection[Any], webhook_id: int) -> UUID | None:
    """A delivery that only tries the way; None while the webhook is not enabled or a test waits."""
    row = fetch_one(conn, "webhooks", "insert_test", {"webhook": webhook_id, "event": TEST_EVENT})
    return None if row is None else row.public_id


def page_deliveries(conn: Connection[Any], webhook_id: int, before: int, limit: int) -> list[Told]:
    """At most `limit` deliveries of a webhook with ids below `before`, newest first."""
    parameters = {"webhook": webhook_id, "before": before, "limit": limit}
    return [Told(*row) for row in fetch_all(conn, "webhooks", "page_deliveries", parameters)]


def claim(
    conn: Connection[Any], by: str, in_hand: Mapping[int, int], *, limit: int, each: int, lease_seconds: float
) -> list[Due]:
    """Take at most `limit` deliveries that are due, so many of a webhook that with those `in_hand` it has no more than `each`.

    They are due again after `lease_seconds`, should nobody say what became of them.
    """
    parameters = {
        "by": by,
        "busy": list(in_hand),
        "held": list(in_hand.values()),
        "limit": limit,
        "each": each,
        "lease": lease_seconds,
    }
    return [
        Due(
            row.id,
            row.attempt,
            row.webhook_id,
            row.public_id,
            row.event,
            None if row.kind is None else Kind(row.kind),
            row.subject,
            row.occurred_at,
            row.url,
            tuple(bytes(secret) for secret in (row.secret, row.former_secret) if secret is not None),
            row.sent_at,
        )
        for row in fetch_all(conn, "webhooks", "claim", parameters)
    ]


def record_deliveries(conn: Connection[Any], records: Sequence[Record]) -> list[tuple[int, DeliveryState]]:
    """Write what attempts came to: those that counted, and where they stand now."""
    if not records:
        return []
    parameters = {
        "ids": [one.id for one in records],
        "attempts": [one.attempt for one in records],
        "targets": [one.target.value for one in records],
        "statuses": [one.status for one in records],
        "errors": [one.error for one in records],
        "delays": [one.delay for one in records],
        "source": DeliveryState.WAITING.value,
    }
    rows = fetch_all(conn, "webhooks", "record_deliveries", parameters)
    return [(row.id, DeliveryState(row.state)) for row in rows]


def drop_deliveries(
    conn: Connection[Any], source: DeliveryState, target: DeliveryState, reason: str, limit: int
) -> int:
    """End at most `limit` deliveries of removed webhooks: how many."""
    parameters = {"source": source.value, "target": target.value, "reason": reason, "limit": limit}
    return run(conn, "webhooks", "drop_deliveries", parameters)


def expire_deliveries(
    conn: Connection[Any], source: DeliveryState, target: DeliveryState, reason: str, seconds: float, limit: int
) -> int:
    """End at most `limit` deliveries that have waited for `seconds`: how many."""
    parameters = {
        "source": source.value,
        "target": target.value,
        "reason": reason,
        "seconds": seconds,
        "limit": limit,
    }
    return run(conn, "webhooks", "expire_deliveries", parameters)


def redrive_delivery(conn: Connection[Any], delivery_id: int, source: DeliveryState, target: DeliveryState) -> bool:
    """Make a delivery due now, its attempts forgotten; False when it is not in `source`, or its webhook was removed."""
    parameters = {"id": delivery_id, "source": source.value, "target": target.value}
    return fetch_one(conn, "webhooks", "redrive_delivery", parameters) is not None


def purge_deliveries(conn: Connection[Any], seconds: float, limit: int) -> int:
    """Delete at most `limit` deliveries that ended `seconds` ago: how many."""
    return run(conn, "webhooks", "purge_deliveries", {"seconds": seconds, "limit": limit})


def purge_webhooks(conn: Connection[Any], limit: int) -> int:
    """Delete at most `limit` removed webhooks of which nothing is left: how many."""
    return run(conn, "webhooks", "purge_webhooks", {"limit": limit})


def webhook_figures(conn: Connection[Any]) -> Figures:
    """How the outbox stands."""
    return Figures(*fetch_only(conn, "webhooks", "webhook_figures", {"cap": COUNTED_AT_MOST}))


def _wanted(wanted: Wanted) -> dict[str, Any]:
    return {
        "url": wanted.url,
        "description": wanted.description,
        "events": None if wanted.events is None else list(wanted.events),
        "kinds": None if wanted.kinds is None else [kind.value for kind in wanted.kinds],
    }


def _webhook(row: Row | None) -> Webhook | None:
    return None if row is None else _read(row)


def _read(row: Row) -> Webhook:
    read = {"events": tuple(row.events), "kinds": tuple(map(Kind, row.kinds)), "state": WebhookState(row.state)}
    return Webhook(**{**row._asdict(), **read})
