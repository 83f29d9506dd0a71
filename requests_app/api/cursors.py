"""Opaque cursors of lists (design 5.5.4): signed with a versioned key from the database, bound to account, list and filter.

Text: base64url of version (1 byte), HMAC-SHA256 (32 bytes), state (JSON). What does not verify, for whatever reason, is one and
the same refusal: it tells nothing about keys, accounts or filters.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from psycopg import Connection

from requests_app.api.refusals import Detail, Refused, validation_failed
from requests_app.store import cursor_keys

_DIGEST: Final = 32
_LONGEST: Final = 16_384


@dataclass(frozen=True, slots=True)
class Scope:
    """What a cursor belongs to: an account, a list, and everything that chooses its rows."""

    account_id: int
    kind: str
    selection: Sequence[str] = ()

    def bound(self) -> bytes:
        """The bytes that enter the signature beside the state."""
        return msgspec.json.encode([self.account_id, self.kind, list(self.selection)])


def seal(conn: Connection[Any], scope: Scope, state: object) -> str:
    """The cursor of a state (JSON values), signed with the current key."""
    key = cursor_keys.current_key(conn)
    body = msgspec.json.encode(state)
    raw = bytes([key.version]) + _sign(key.secret, key.version, scope, body) + body
    return _text(raw)


def unseal(conn: Connection[Any], scope: Scope, text: str) -> Any:
    """The state of a cursor. Raises Refused(validation_failed) for a foreign, altered or retired one."""
    raw = _bytes(text)
    if len(raw) <= 1 + _DIGEST:
        raise not_valid()
    version, digest, body = raw[0], raw[1 : 1 + _DIGEST], raw[1 + _DIGEST :]
    key = cursor_keys.key_of(conn, version)
    if key is None or not hmac.compare_digest(digest, _sign(key.secret, version, scope, body)):
        raise not_valid()
    return msgspec.json.decode(body)


def not_valid() -> Refused:
    """The one answer to every cursor that cannot be used."""
    return validation_failed([Detail("cursor", "Not a valid cursor of this list")])


def _bytes(text: str) -> bytes:
    if len(text) > _LONGEST:
        raise not_valid()
    try:
        # validate: b64decode would skip foreign characters, and two texts would be one cursor
        found = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError, ValueError):
        raise not_valid() from None
    if _text(found) != text:  # the bits of the last character that mean nothing: two texts would be one cursor again
        raise not_valid()
    return found


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _sign(secret: bytes, version: int, scope: Scope, body: bytes) -> bytes:
    bound = scope.bound()
    message = b"relayer-cursor" + bytes([version]) + len(bound).to_bytes(4, "big") + bound + body
    return hmac.new(secret, message, hashlib.sha256).digest()
