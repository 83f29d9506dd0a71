"""Runtime settings from the shell: list, set, history."""

from __future__ import annotations

import getpass
import json
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError, CommandParser

from requests_app import runtime
from requests_app.management.json_option import offer_json
from requests_app.runtime import DEFAULT, REGISTRY, SettingRefused
from requests_app.store import runtime as store
from requests_app.store.session import web_connection

MOST_CHANGES: Final = 1_000_000


class Command(BaseCommand):
    """`relayer_setting list|set|history`. Every process follows within 5 s. Exit code 1 when the value is refused."""

    help = "Show and change parameters while everything runs; every change is recorded with who, when and why."

    def add_arguments(self, parser: CommandParser) -> None:
        """One sub-command an action."""
        actions = parser.add_subparsers(dest="action", required=True)
        actions.add_parser("list", help="every parameter with its value, default and range")
        change = actions.add_parser("set", help="change one parameter")
        change.add_argument("name", help="the parameter")
        change.add_argument("value", help=f"a number or JSON, or `{DEFAULT}`")
        change.add_argument("--reason", default="", help="kept in the history")
        change.add_argument("--dry-run", action="store_true", help="say what would be done")
        history = actions.add_parser("history", help="who changed what")
        history.add_argument("name", nargs="?", help="only this parameter")
        history.add_argument("--limit", type=int, default=50, help="at most so many changes, newest first")
        offer_json(parser, actions)

    def handle(self, *args: Any, **options: Any) -> None:
        """Do one action."""
        getattr(self, f"_{options['action']}")(options)

    def _list(self, options: dict[str, Any]) -> None:
        stored = store.load_settings(web_connection())
        now, initial = runtime.effective(stored), runtime.defaults()
        rows = [
            {
                "name": parameter.name,
                "value": now[parameter.name],
                "default": initial[parameter.name],
                "changed": parameter.name in stored,
                "type": parameter.type.value,
                "min": parameter.low,
                "max": parameter.high,
                "meaning": parameter.meaning,
            }
            for parameter in REGISTRY.values()
        ]
        if options["json"]:
            self.stdout.write(json.dumps(rows))
            return
        for row in rows:
            mark = f"(default {json.dumps(row['default'])})" if row["changed"] else ""
            self.stdout.write(f"{row['name']:44} {json.dumps(row['value'])} {mark}\n    {row['meaning']}")

    def _set(self, options: dict[str, Any]) -> None:
        name, dry_run = options["name"], options["dry_run"]
        try:
            value = runtime.parse(name, options["value"])
            by = f"shell:{getpass.getuser()}"
            done = runtime.change(web_connection(), name, value, by=by, reason=options["reason"], dry_run=dry_run)
        except SettingRefused as error:
            raise CommandError(str(error)) from None
        if options["json"]:
            result = {"name": name, "before": done.before, "after": done.after, "written": done.written}
            self.stdout.write(json.dumps({**result, "dry_run": dry_run}))
            return
        verb = "would change" if dry_run else "changed" if done.written else "stays"
        self.stdout.write(f"{name} {verb}: {json.dumps(done.before)} -> {json.dumps(done.after)}")

    def _history(self, options: dict[str, Any]) -> None:
        if not 1 <= options["limit"] <= MOST_CHANGES:
            raise CommandError(f"--limit is a number from 1 to {MOST_CHANGES}")
        rows = store.history(web_connection(), options["name"], options["limit"])
        if options["json"]:
            self.stdout.write(json.dumps([{**row._asdict(), "at": row.at.isoformat()} for row in rows]))
            return
        for row in rows:
            before, after = (DEFAULT if value is None else json.dumps(value) for value in (row.before, row.after))
            self.stdout.write(
                f"{row.at:%Y-%m-%d %H:%M:%S} UTC  {row.changed_by:24} {row.name} {before} -> {after}  {row.reason}"
            )
