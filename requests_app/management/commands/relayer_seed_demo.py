"""The demo's client, key and reviewer. Runs any number of times."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group, User
from django.core.management.base import BaseCommand, CommandParser
from django.db import transaction

from requests_app import clients
from requests_app.models.accounts import AccountStatus
from requests_app.roles import APPROVER, OPERATOR
from requests_app.store.accounts import valid_key
from requests_app.store.session import web_connection

ACCOUNT = "demo"
REVIEWER = "reviewer"


class Command(BaseCommand):
    """Makes account and login for the demo and keeps their secrets in `<RELAYER_VAR>/demo.json`, mode 600."""

    help = (
        "Create the demo account with its API key and the demo reviewer's login; written to var/demo.json (mode 600)."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Output form, and whether to write."""
        parser.add_argument("--dry-run", action="store_true", help="say what would be made anew, and undo it")
        parser.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        """Reuse what the file and the database agree on; renew the rest."""
        path = Path(settings.RELAYER_VAR) / "demo.json"
        known = _read(path)
        with transaction.atomic():  # Django's: people are saved by its models
            result = {
                "account": ACCOUNT,
                "api_key": _key(str(known.get("api_key", ""))),
                "admin_user": REVIEWER,
                "admin_password": _login(str(known.get("admin_password", ""))),
            }
            transaction.set_rollback(options["dry_run"])
        if options["dry_run"]:  # what was made opens nothing and must not be handed on
            fresh = [name for name, value in result.items() if known.get(name) != value]
            text = f"would be made anew: {', '.join(fresh)}" if fresh else "all of it is there"
            self.stdout.write(json.dumps({"would_make": fresh, "file": str(path)}) if options["json"] else text)
            return
        if result != known:
            _write(path, result)
        if options["json"]:
            self.stdout.write(json.dumps({**result, "file": str(path)}))
            return
        self.stdout.write(f"API key        {result['api_key']}   (account {ACCOUNT})")
        self.stdout.write(f"Admin login    {REVIEWER} / {result['admin_password']}")
        self.stdout.write(f"Kept in        {path}")


def _key(known: str) -> str:
    """The key of the file when it still opens the door, else a new one; former demo keys are revoked."""
    conn = web_connection()
    clients.create_account(conn, ACCOUNT)
    clients.set_status(conn, ACCOUNT, AccountStatus.ACTIVE)
    if known and valid_key(conn, ACCOUNT, clients.key_digest(known)):
        return known
    key, _revoked = clients.rotate_key(conn, ACCOUNT)
    return key.text


def _login(known: str) -> str:
    """The reviewer's password: the file's when it still fits, else a new one."""
    user, _created = User.objects.get_or_create(username=REVIEWER, defaults={"is_staff": True})
    user.groups.set(Group.objects.filter(name__in=(OPERATOR, APPROVER)))
    password = known
    if not (known and user.check_password(known)):
        password = secrets.token_urlsafe(12)
        user.set_password(password)
    user.is_staff = user.is_active = True
    user.save()
    return password


def _read(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _write(path: Path, document: dict[str, str]) -> None:
    """Replace the file whole; nobody else may read it at any moment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(document, file, indent=2)
        file.write("\n")
    fresh.replace(path)
