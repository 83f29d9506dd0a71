"""Idempotency keys: claim, complete, release (reference queue_settle 1.3).

`scope` is the client account, so two clients with the same key do not see each other. `fingerprint` is 32 bytes over what was sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from psycopg import Connection

from requests_app.errors import RelayerError
from requests_app.store.session import fetch_only, run

LEASE_SECONDS: Final = 30.0
KEPT_SECONDS: Final = 86_400.0
# Each round is lost to a twin that moved on in between; four clients at once lost two at the most.
_ROUNDS: Final = 8


class KeyContended(RelayerError):
    """The key kept changing hands while it was claimed; try again."""


class Claimed(NamedTuple):
    """The key is ours for LEASE_SECONDS; `attempt` guards what is written in its name."""

    attempt: int


class Completed(NamedTuple):
    """The same request has been answered: its status, headers and body bytes."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class InFlight:
    """The same request is being worked on."""


class OtherRequest:
    """The key belongs to another request of this client."""


class Disabled:
    """The account may not write."""


Claim: TypeAlias = Claimed | Completed | InFlight | OtherRequest | Disabled


def claim(conn: Connection[Any], scope: int, key: str, fingerprint: bytes) -> Claim:
    """Take the key for this request, or learn what became of it. Raises KeyContended after eight lost races."""
    parameters = {
        "scope": scope,
        "key": key,
        "fingerprint": fingerprint,
        "lease": LEASE_SECONDS,
        "kept": KEPT_SECONDS,
    }
    for _ in range(_ROUNDS):
        row = fetch_only(conn, "idempotency", "claim", parameters)
        if not row.account_active:
            return Disabled()
        if row.attempt is not None:
            return Claimed(row.attempt)
        if row.fingerprint is not None:
            return _standing(row, fingerprint)
    raise KeyContended


def _standing(row: Any, fingerprint: bytes) -> Claim:
    if bytes(row.fingerprint) != fingerprint:
        return OtherRequest()
    if row.response_status is None:
        return InFlight()
    return Completed(row.response_status, row.response_headers, bytes(row.response_body))


def complete(conn: Connection[Any], scope: int, key: str, attempt: int, answer: Completed) -> bool:
    """Store the answer in the caller's transaction. False when the claim was taken over: the caller must undo what it did."""
    parameters = {
        "scope": scope,
        "key": key,
        "attempt": attempt,
        "status": answer.status,
        "headers": msgspec.json.encode(answer.headers).decode(),
        "body": answer.body,
    }
    return run(conn, "idempotency", "complete", parameters) == 1


def release(conn: Connection[Any], scope: int, key: str, attempt: int) -> bool:
    """Give the key back unused: the next request may be another one. False when it is not ours any more, or completed."""
    return run(conn, "idempotency", "release", {"scope": scope, "key": key, "attempt": attempt}) == 1


def purge_keys(conn: Connection[Any], limit: int) -> int:
    """Remove at most `limit` records that have long been over; how many."""
    return run(conn, "idempotency", "purge_keys", {"limit": limit})
