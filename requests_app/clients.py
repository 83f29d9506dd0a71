"""Making clients and their keys. A key is returned once, to be shown once; only its SHA-256 is kept."""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass
from typing import Any

import psycopg
from django.conf import settings

from requests_app.errors import RelayerError
from requests_app.models.accounts import AccountStatus
from requests_app.store import accounts as store
from requests_app.store.session import transaction

Connection = psycopg.Connection[Any]
_NAME = re.compile(r"[a-z0-9][a-z0-9._\-]{0,62}")


class AccountRefused(RelayerError):
    """The account does not allow this."""


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key as it is shown to its owner. `text` exists nowhere else."""

    account: str
    prefix: str
    text: str


def key_digest(text: str) -> bytes:
    """The 32 bytes under which a key is kept: SHA-256 of the whole text."""
    return hashlib.sha256(text.encode()).digest()


def make_key() -> tuple[str, str]:
    """A fresh key as (prefix, whole text): 8 characters to tell it apart, then 256 random bits."""
    prefix = f"rk_{secrets.token_hex(4)}"
    return prefix, f"{prefix}_{secrets.token_urlsafe(32)}"


def create_account(conn: Connection, name: str) -> bool:
    """Make an active account. False when the name is taken. Raises AccountRefused for a bad name."""
    if not _NAME.fullmatch(name):
        raise AccountRefused("a name has 1 to 63 of a-z 0-9 . _ - and begins with a letter or digit")
    return store.create_account(conn, name) is not None


def make_default_account(conn: Connection) -> bool:
    """Make the account of calls without a key when `API_AUTH=optional` asks for one. False when there is nothing to do."""
    return settings.API_AUTH == "optional" and create_account(conn, settings.API_DEFAULT_ACCOUNT)


def set_operator(conn: Connection, name: str, operator: bool) -> bool:
    """Let the account's keys change runtime settings over HTTP, or not. False when it already was so.

    Raises AccountRefused when it does not exist.
    """
    if store.set_operator(conn, name, operator) is not None:
        return True
    if store.account_by_name(conn, name) is None:
        raise AccountRefused(f"there is no account {name!r}")
    return False


def set_status(conn: Connection, name: str, status: AccountStatus) -> bool:
    """Disable or enable an account. False when it already was so. Raises AccountRefused when it does not exist."""
    if store.set_account_status(conn, name, status.value) is not None:
        return True
    if store.account_by_name(conn, name) is None:
        raise AccountRefused(f"there is no account {name!r}")
    return False


def issue_key(conn: Connection, name: str) -> NewKey:
    """Give an effective account a further key. Never creates the account. Raises AccountRefused."""
    prefix, text = make_key()
    if store.issue_key(conn, name, prefix, key_digest(text)) is None:
        raise AccountRefused(f"there is no active account {name!r}")
    return NewKey(name, prefix, text)


def rotate_key(conn: Connection, name: str, prefix: str | None = None) -> tuple[NewKey, list[str]]:
    """Issue a key and revoke the one of `prefix` (all others without it), in one transaction.

    Raises AccountRefused when the account is not active, or when no valid key has that prefix.
    """
    with transaction(conn):
        key = issue_key(conn, name)
        revoked = store.revoke_keys(conn, name, prefix, key.prefix)
        if prefix is not None and not revoked:
            raise AccountRefused(f"account {name!r} has no valid key {prefix!r}")
    return key, revoked


def revoke_key(conn: Connection, name: str, prefix: str | None) -> list[str]:
    """Revoke one key by prefix, or all keys. Raises AccountRefused when none was valid."""
    revoked = store.revoke_keys(conn, name, prefix, None)
    if not revoked:
        raise AccountRefused(f"account {name!r} has no valid key{f' {prefix!r}' if prefix else ''}")
    return revoked
