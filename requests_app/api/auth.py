"""Who is asking: the API key of a request and the client account behind it (design 3.4, 5.5).

Keys are kept as SHA-256 digests. An effective key is remembered for a moment, so that the hot path makes one statement
fewer; a revoked key or disabled account is refused at the latest when that moment is over, and no write of a disabled
account can succeed even before: the transaction of the write checks the account itself.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from threading import Lock
from typing import Final

from django.conf import settings
from django.db.models.functions import Now
from django.http import HttpRequest

from requests_app.api.labels import UNAUTHORIZED_TEXT, Label
from requests_app.api.refusals import Refused
from requests_app.models.accounts import AccountStatus, ApiKey
from requests_app.store import requests as store
from requests_app.store.session import web_connection

HEADER: Final = "HTTP_X_API_KEY"
COOKIE: Final = "x-api-key"
REMEMBER_SECONDS: Final = 2.0
STAMP_SECONDS: Final = 60.0
# What a browser says of a request that no other site caused; programs say nothing.
_OWN_SITE: Final = ("none", "same-origin")
_REMEMBERED_AT_MOST: Final = 10_000
_LONGEST_KEY: Final = 512


@dataclass(frozen=True, slots=True)
class Client:
    """An effective client account."""

    id: int
    name: str
    operator: bool = False


class _Memory:
    """Effective keys by digest, each until a monotonic time."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[float, Client]] = {}
        self._stamped: dict[bytes, float] = {}
        self._lock = Lock()

    def find(self, digest: bytes) -> Client | None:
        entry = self._known.get(digest)
        return entry[1] if entry is not None and entry[0] > time.monotonic() else None

    def keep(self, digest: bytes, client: Client) -> None:
        with self._lock:
            if len(self._known) >= _REMEMBERED_AT_MOST:
                self._known.clear()
                self._stamped.clear()
            self._known[digest] = (time.monotonic() + REMEMBER_SECONDS, client)

    def forget(self) -> None:
        with self._lock:
            self._known.clear()
            self._stamped.clear()

    def due_for_stamp(self, digest: bytes) -> bool:
        """Whether this process should write the key's last use now: once a minute, not once a request."""
        now = time.monotonic()
        with self._lock:
            if now - self._stamped.get(digest, -STAMP_SECONDS) < STAMP_SECONDS:
                return False
            self._stamped[digest] = now
            return True


_memory = _Memory()
forget_keys = _memory.forget


def authenticate(request: HttpRequest) -> Client:
    """The client of a request. Raises Refused(unauthorized) for a missing, unknown, revoked or disabled key."""
    key = presented_key(request)
    if key is None:
        if settings.API_AUTH != "optional":
            raise unauthorized()
        return _default_client()
    if len(key) > _LONGEST_KEY:
        raise unauthorized()
    digest = hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
    client = _memory.find(digest)
    if client is None:
        client = _look_up(digest)
        _memory.keep(digest, client)
    return client


def presented_key(request: HttpRequest) -> str | None:
    """The key in x-api-key, else in Authorization: Bearer, else in the cookie x-api-key (the SDK can send each).

    A browser adds a cookie by itself: not for a page of somebody else, who would write in the client's name (cross-site request forgery).
    """
    meta = request.META
    key = meta.get(HEADER)
    if key:
        return str(key).strip()
    scheme, _, token = str(meta.get("HTTP_AUTHORIZATION", "")).partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    if "HTTP_COOKIE" not in meta or meta.get("HTTP_SEC_FETCH_SITE", "none") not in _OWN_SITE:
        return None
    return request.COOKIES.get(COOKIE)


def unauthorized() -> Refused:
    """The one answer to every kind of wrong key: it does not tell which kind."""
    return Refused(Label.UNAUTHORIZED, UNAUTHORIZED_TEXT)


class AccountIsDisabled(Refused):
    """The key is right and its account disabled. Printed like any wrong key, unless a view tells its clients more."""

    def __init__(self) -> None:
        super().__init__(Label.UNAUTHORIZED, UNAUTHORIZED_TEXT)


def _default_client() -> Client:
    """The account of requests without a key under API_AUTH=optional."""
    name = settings.API_DEFAULT_ACCOUNT
    digest = b"account:" + name.encode()
    client = _memory.find(digest)
    if client is None:
        row = store.find_account(web_connection(), name)
        if row is None:
            raise unauthorized()
        if row.status != AccountStatus.ACTIVE:
            raise AccountIsDisabled
        client = Client(row.id, row.name)
        _memory.keep(digest, client)
    return client


def _look_up(digest: bytes) -> Client:
    row = store.find_api_key(web_connection(), digest)
    if row is None:
        raise unauthorized()
    if row.status != AccountStatus.ACTIVE:
        raise AccountIsDisabled
    if _memory.due_for_stamp(digest):
        ApiKey.objects.filter(pk=row.id).update(last_used_at=Now())
    return Client(row.account_id, row.name, row.operator)
