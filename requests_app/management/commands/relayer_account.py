"""Clients and keys: create, disable, enable, issue, rotate, revoke, list."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from requests_app import clients
from requests_app.management.json_option import offer_json
from requests_app.models.accounts import AccountStatus
from requests_app.store.accounts import list_accounts
from requests_app.store.session import transaction, web_connection


class Command(BaseCommand):
    """`relayer_account <action> [name]`. A new key is printed once and can never be read again. Exit code 1 on refusal."""

    help = "Create and disable client accounts; issue, rotate and revoke their API keys (a key is shown once)."

    def add_arguments(self, parser: CommandParser) -> None:
        """One sub-command an action."""
        actions = parser.add_subparsers(dest="action", required=True)
        for action, text in (
            ("create", "make an account and its first key"),
            ("disable", "stop all writes of the account at once"),
            ("enable", "let it write again"),
            ("operator", "let its keys change runtime settings over HTTP, or with --revoke no longer"),
            ("issue", "give it a further key"),
            ("rotate", "give it a new key and revoke the old"),
            ("revoke", "revoke one key, or all"),
        ):
            sub = actions.add_parser(action, help=text)
            sub.add_argument("name", help="the account's name")
            if action in {"rotate", "revoke"}:
                sub.add_argument("--prefix", help="only the key of this prefix (default: all)")
            if action == "operator":
                sub.add_argument("--revoke", action="store_true", help="take the right away")
            sub.add_argument("--dry-run", action="store_true", help="say what would be done and undo it")
        actions.add_parser("list", help="the accounts with their number of valid keys")
        offer_json(parser, actions)

    def handle(self, *args: Any, **options: Any) -> None:
        """Do one action in one transaction."""
        conn = web_connection()
        if options["action"] == "list":
            self._list(options["json"])
            return
        try:
            with transaction(conn, force_rollback=options["dry_run"]):
                result = self._act(options)
        except clients.AccountRefused as error:
            raise CommandError(str(error)) from None
        if options["dry_run"]:
            result = {**result, "dry_run": True}
            result.pop("key", None)  # it was rolled back: a key that opens nothing must not be handed on
        self._print(result, options["json"])

    def _act(self, options: dict[str, Any]) -> dict[str, Any]:
        conn, name = web_connection(), options["name"]
        match options["action"]:
            case "create":
                if not clients.create_account(conn, name):
                    raise clients.AccountRefused(f"account {name!r} exists already")
                key = clients.issue_key(conn, name)
                return {"account": name, "status": "active", "prefix": key.prefix, "key": key.text}
            case "disable" | "enable" as action:
                status = AccountStatus.DISABLED if action == "disable" else AccountStatus.ACTIVE
                return {"account": name, "status": status.value, "changed": clients.set_status(conn, name, status)}
            case "operator":
                operator = not options["revoke"]
                return {"account": name, "operator": operator, "changed": clients.set_operator(conn, name, operator)}
            case "issue":
                key = clients.issue_key(conn, name)
                return {"account": name, "prefix": key.prefix, "key": key.text}
            case "rotate":
                key, revoked = clients.rotate_key(conn, name, options["prefix"])
                return {"account": name, "prefix": key.prefix, "key": key.text, "revoked": revoked}
            case _:
                return {"account": name, "revoked": clients.revoke_key(conn, name, options["prefix"])}

    def _print(self, result: dict[str, Any], as_json: bool) -> None:
        if as_json:
            self.stdout.write(json.dumps(result))
            return
        for name, value in result.items():
            self.stdout.write(f"{name + ':':10} {', '.join(value) if isinstance(value, list) else value}")
        if "key" in result:
            self.stderr.write("Keep the key now: it is not stored and cannot be shown again.")

    def _list(self, as_json: bool) -> None:
        rows = list_accounts(web_connection())
        if as_json:
            document = [
                {
                    "name": row.name,
                    "status": row.status,
                    "operator": row.operator,
                    "created_at": row.created_at.isoformat(),
                    "valid_keys": row.valid_keys,
                }
                for row in rows
            ]
            self.stdout.write(json.dumps(document))
            return
        self.stdout.write(f"{'name':30} {'status':10} {'keys':>5}  {'created':20}  right")
        for row in rows:
            right = "operator" if row.operator else ""
            text = f"{row.name:30} {row.status:10} {row.valid_keys:5}  {row.created_at:%Y-%m-%d %H:%M} UTC  {right}"
            self.stdout.write(text.rstrip())
