"""What is sent to a webhook, and how it is signed: the Standard Webhooks specification (github.com/standard-webhooks), symmetric form.

A secret is 32 bytes, shown as `whsec_` and their base64. A signature is HMAC-SHA256 over `id.timestamp.body`, the id and body exactly as
sent. Every attempt of a delivery has the same id and the same body; timestamp and signature are the attempt's own.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

import msgspec

from requests_app.states import TEST_EVENT, Kind

SECRET_BYTES: Final = 32
SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - what shown secrets begin with
USER_AGENT: Final = "gateway-relayer-webhooks/1"


def new_secret() -> bytes:
    """32 random bytes."""
    return secrets.token_bytes(SECRET_BYTES)


def shown_secret(secret: bytes) -> str:
    """The secret as its owner sees it, once."""
    return SECRET_PREFIX + base64.b64encode(secret).decode()


def message_id(public_id: UUID) -> str:
    """The `webhook-id` of a delivery: the key by which receivers know what they have had."""
    return f"msg_{public_id.hex}"


def message_body(event: str, kind: Kind | None, subject: str | None, occurred_at: datetime) -> bytes:
    """The body: what happened, to what, when. Nothing that a receiver's log must not keep."""
    at = occurred_at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    data: dict[str, Any] = {}
    if event != TEST_EVENT:
        data = {
            "id": subject,
            "kind": None if kind is None else kind.slug,
            "status": event.partition(".")[2],
            "updated_at": at,
        }
    return msgspec.json.encode({"type": event, "timestamp": at, "data": data})


def message_headers(name: str, sent_at: int, body: bytes, keys: Iterable[bytes]) -> dict[str, str]:
    """The headers of an attempt, with a signature by each key. `sent_at`: seconds since 1970."""
    return {
        "content-type": "application/json",
        "user-agent": USER_AGENT,
        "webhook-id": name,
        "webhook-timestamp": str(sent_at),
        "webhook-signature": " ".join(signature(key, name, sent_at, body) for key in keys),
    }


def signature(key: bytes, name: str, sent_at: int, body: bytes) -> str:
    """`v1,` and the base64 of the HMAC."""
    signed = b".".join((name.encode(), str(sent_at).encode(), body))
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
