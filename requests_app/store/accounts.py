"""Statements about client accounts and their keys."""

from __future__ import annotations

from typing import Any

import psycopg

from requests_app.store.session import Row, fetch_all, fetch_one

Connection = psycopg.Connection[Any]


def create_account(conn: Connection, name: str) -> Row | None:
    """Make an account: (id, status), or None when the name is taken."""
    return fetch_one(conn, "accounts", "create_account", {"name": name})


def set_account_status(conn: Connection, name: str, status: str) -> Row | None:
    """Set active or disabled: (id), or None when there is no such account or it already is."""
    return fetch_one(conn, "accounts", "set_account_status", {"name": name, "status": status})


def set_operator(conn: Connection, name: str, operator: bool) -> Row | None:
    """Set whether the account may change runtime settings: (id), or None when there is no such account or it already is so."""
    return fetch_one(conn, "accounts", "set_operator", {"name": name, "operator": operator})


def lock_operator(conn: Connection, account_id: int) -> bool:
    """Whether the account is active and may change runtime settings, locked until the transaction ends."""
    row = fetch_one(conn, "accounts", "lock_operator", {"id": account_id})
    return row is not None and bool(row.allowed)


def account_by_name(conn: Connection, name: str) -> Row | None:
    """(id, name, status, created_at), or None."""
    return fetch_one(conn, "accounts", "account_by_name", {"name": name})


def list_accounts(conn: Connection) -> list[Row]:
    """(id, name, status, operator, created_at, valid_keys) of every account."""
    return fetch_all(conn, "accounts", "list_accounts")


def issue_key(conn: Connection, name: str, prefix: str, digest: bytes) -> Row | None:
    """Store a key's 32-byte digest for an active account: (id, account_id), or None when there is no such account."""
    return fetch_one(conn, "accounts", "issue_key", {"name": name, "prefix": prefix, "digest": digest})


def revoke_keys(conn: Connection, name: str, prefix: str | None, keep: str | None) -> list[str]:
    """Revoke the valid keys of an account: one by prefix, or all but `keep`. Returns the prefixes revoked."""
    parameters = {"name": name, "prefix": prefix, "keep": keep}
    return [row.prefix for row in fetch_all(conn, "accounts", "revoke_keys", parameters)]


def valid_key(conn: Connection, name: str, digest: bytes) -> bool:
    """Whether a digest opens the door for this account now."""
    return fetch_one(conn, "accounts", "valid_key", {"name": name, "digest": digest}) is not None
