"""Payment intents: read and lock them, and the statements that `transitions.intents` alone uses to change them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from psycopg import Connection

from requests_app.models.reviews import ReasonCode
from requests_app.states import IntentState
from requests_app.store.session import Row, fetch_all, fetch_one, fetch_only

SETTLE: Final = "settle"  # the queue of intents that wait for a nonce
# Named one by one, for plans that outlive a migration.
_COLUMNS: Final = """r.id, r.public_id, r.ref, r.account_id, r.chain, r.token, r.payer, r.merchant, r.amount, r.authorization, r.state,
       r.version, r.tx_hash, r.state_reason, r.created_at, r.updated_at, r.expires_at,
       extract(epoch FROM clock_timestamp() - r.updated_at)::float8 AS age_seconds,
       coalesce(r.expires_at <= clock_timestamp(), false) AS expired,
       coalesce((r.authorization->>'valid_before')::numeric <= extract(epoch FROM clock_timestamp()), false) AS window_closed"""


class Intent(NamedTuple):
    """An intent as it stood when it was read. Hashes are 32 bytes, `amount` token units, `authorization` the stored JSON.

    `age_seconds` is since its last transition; `expired`: past `expires_at`; `window_closed`: the authorization's valid_before
    is over. All three by the database's clock.
    """

    id: int
    public_id: str
    ref: bytes
    account_id: int
    chain: str
    token: str
    payer: str
    merchant: str
    amount: int
    authorization: Mapping[str, Any] | None
    state: IntentState
    version: int
    tx_hash: bytes | None
    state_reason: str | None
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None
    age_seconds: float
    expired: bool
    window_closed: bool


class HistoryRow(NamedTuple):
    """One transition; `version` is the one it made. Creation is version 1, from nothing."""

    version: int
    from_state: IntentState | None
    to_state: IntentState
    actor: str
    at: datetime
    tx_hash: bytes | None
    reason: str | None
    by_user: str | None


class Move(NamedTuple):
    """One row of the CAS: what was read (`version`, `source`) and what is brought along. `authorization` is JSON text."""

    id: int
    version: int
    source: IntentState
    tx_hash: bytes | None
    reason: str | None
    by_user: str | None
    authorization: str | None


def read_intents(conn: Connection[Any], ids: Sequence[int]) -> list[Intent]:
    """The intents with these ids, in id order."""
    return [_intent(row) for row in fetch_all(conn, "intents", "read_intents", {"ids": list(ids)}, columns=_COLUMNS)]


def lock_intents(conn: Connection[Any], ids: Sequence[int]) -> list[Intent]:
    """As `read_intents`, locked in id order, as they are behind any lock wait."""
    return [_intent(row) for row in fetch_all(conn, "intents", "lock_intents", {"ids": list(ids)}, columns=_COLUMNS)]


def find_intent(conn: Connection[Any], public_id: str, account_id: int | None = None) -> Intent | None:
    """An intent by its API id; with an account only its own. None when there is none."""
    parameters = {"public_id": public_id, "account": account_id}
    row = fetch_one(conn, "intents", "find_intent", parameters, columns=_COLUMNS)
    return _intent(row) if row else None


def history(conn: Connection[Any], intent_id: int) -> list[HistoryRow]:
    """The transitions of an intent, from its creation on."""
    return [
        HistoryRow(
            row.version,
            IntentState(row.from_state) if row.from_state else None,
            IntentState(row.to_state),
            row.actor,
            row.at,
            bytes(row.tx_hash) if row.tx_hash is not None else None,
            row.reason,
            row.by_user,
        )
        for row in fetch_all(conn, "intents", "history", {"id": intent_id})
    ]


def lock_owner(conn: Connection[Any], account_id: int) -> bool | None:
    """Lock a client account FOR SHARE, the first lock of a transaction: whether it is active; None when there is none."""
    row = fetch_one(conn, "intents", "lock_owner", {"account": account_id})
    return None if row is None else bool(row.active)


def insert_intent(conn: Connection[Any], terms: Mapping[str, Any], actor: str) -> Intent:
    """Store an intent in `created` with the first row of its history. For `transitions.intents` only."""
    row = fetch_only(conn, "intents", "insert_intent", {**terms, "actor": actor}, columns=_COLUMNS)
    return _intent(row)


def move_intents(
    conn: Connection[Any], target: IntentState, moves: Sequence[Move], actor: str, epoch: int | None
) -> list[tuple[Intent, IntentState, float]]:
    """The guarded change: (the intent after it, the state left, seconds spent there) of those that moved, in id order.

    For `transitions.intents` only, which knows the table.
    """
    parameters = {
        "ids": [move.id for move in moves],
        "versions": [move.version for move in moves],
        "sources": [move.source.value for move in moves],
        "hashes": [move.tx_hash for move in moves],
        "reasons": [move.reason for move in moves],
        "users": [move.by_user for move in moves],
        "authorizations": [move.authorization for move in moves],
        "target": target.value,
        "actor": actor,
        "epoch": epoch,
    }
    rows = fetch_all(conn, "intents", "move_intents", parameters, columns=_COLUMNS)
    return [(_intent(row), IntentState(row.was), row.spent_seconds) for row in rows]


def expirable(conn: Connection[Any], limit: int) -> list[Intent]:
    """Intents whose time is over before anything was signed, locked; those that somebody works on are left out.

    Created ones past `expires_at`; authorized ones past their authorization's window that have no live slot.
    """
    return [_intent(row) for row in fetch_all(conn, "intents", "expirable", {"limit": limit}, columns=_COLUMNS)]


def enqueue_settle(conn: Connection[Any], ids: Sequence[int], priority: int) -> set[int]:
    """Put the jobs `<public_id>/settle` of these intents into the queue: the ids of those that were not there already."""
    parameters = {"ids": list(ids), "priority": priority, "queue": SETTLE}
    return {row.subject_id for row in fetch_all(conn, "intents", "enqueue_settle", parameters)}


def drop_settle(conn: Connection[Any], ids: Sequence[int]) -> set[int]:
    """Remove the settle jobs of intents that need no more work, leased or not: the ids of those that had one."""
    return {row.subject_id for row in fetch_all(conn, "intents", "drop_settle", {"ids": list(ids)})}


def cases_open(conn: Connection[Any], ids: Sequence[int]) -> dict[int, ReasonCode]:
    """The reason of the open review case of each of these intents that has one."""
    rows = fetch_all(conn, "intents", "cases_open", {"ids": list(ids)})
    return {row.subject_id: ReasonCode(row.reason_code) for row in rows}


def _intent(row: Row) -> Intent:
    return Intent(
        row.id,
        row.public_id,
        bytes(row.ref),
        row.account_id,
        row.chain,
        row.token,
        row.payer,
        row.merchant,
        int(row.amount),
        row.authorization,
        IntentState(row.state),
        row.version,
        bytes(row.tx_hash) if row.tx_hash is not None else None,
        row.state_reason,
        row.created_at,
        row.updated_at,
        row.expires_at,
        row.age_seconds,
        row.expired,
        row.window_closed,
    )
