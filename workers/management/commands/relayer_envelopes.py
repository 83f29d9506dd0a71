"""Work on the envelope log by hand: parked envelopes and publications, cursor keys, bands."""

from __future__ import annotations

import json
import sys
from typing import Any

import psycopg
from django.core.management.base import BaseCommand, CommandError, CommandParser

from requests_app.config import config
from requests_app.management.json_option import offer_json
from requests_app.store import consumers, cursor_keys, publish, retirement
from requests_app.store.session import connect, transaction
from workers.apply import Applier
from workers.facts import Reader, contracts_of
from workers.listener import GATEWAY
from workers.replay import redrive
from workers.thresholds import thresholds_of


class Command(BaseCommand):
    """`relayer_envelopes <action>`. Exit code 2: something stays parked."""

    help = "Redrive parked envelopes or publications, rotate or retire cursor keys, list bands."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """One sub-command an action."""
        actions = parser.add_subparsers(dest="action", required=True)
        dead = actions.add_parser("redrive", help="apply parked chain events once more")
        dead.add_argument("--source", type=int, default=GATEWAY, help="originator id (default: the gateway)")
        dead.add_argument("--position", type=int, action="append", default=[], help="only this one; may be repeated")
        staged = actions.add_parser("unpark", help="let parked publications try again")
        staged.add_argument("--id", type=int, help="only this staging id")
        rotate = actions.add_parser("rotate-key", help="sign cursors with a new key; the old ones stay valid")
        retire = actions.add_parser("retire-key", help="refuse all cursors of a key from now on")
        retire.add_argument("version", type=int)
        listed = actions.add_parser("bands", help="the newest bands with their sizes in bytes")
        listed.add_argument("--source", type=int, default=GATEWAY, help="originator id (default: the gateway)")
        for sub in (dead, staged, rotate, retire):
            sub.add_argument("--dry-run", action="store_true", help="say what would be done")
        offer_json(parser, actions)

    def handle(self, *args: Any, **options: Any) -> None:
        """Do one action."""
        with connect("worker", name="envelopes") as conn:
            try:
                result = getattr(self, "_" + options["action"].replace("-", "_"))(conn, options)
            except psycopg.errors.NumericValueOutOfRange:
                raise CommandError("a number is larger than any originator, position, id or version") from None
        if options["json"]:
            self.stdout.write(json.dumps(result, default=str))
        else:
            for name, value in result.items():
                self.stdout.write(f"{name}: {value}")
        if any(result.get("failed", {})):
            sys.exit(2)

    def _redrive(self, conn: Any, options: dict[str, Any]) -> dict[str, Any]:
        source, wanted = options["source"], options["position"]
        if options["dry_run"]:
            return {"would_redrive": consumers.parked_positions(conn, source, wanted)}
        from workers.chain import open_clients

        settled = config()
        reader = Reader(contracts_of(settled), thresholds_of(settled, open_clients(settled)))
        found = redrive(conn, Applier(source, reader), source, wanted)
        return {
            "redriven": [position for position, why in found.items() if why is None],
            "failed": {str(position): why for position, why in found.items() if why is not None},
        }

    def _unpark(self, conn: Any, options: dict[str, Any]) -> dict[str, Any]:
        if options["dry_run"]:
            return {"would_unpark": publish.parked_ids(conn, options["id"])}
        return {"unparked": publish.unpark(conn, options["id"])}

    def _rotate_key(self, conn: Any, options: dict[str, Any]) -> dict[str, Any]:
        with transaction(conn, force_rollback=options["dry_run"]):
            version = cursor_keys.add_key(conn)
        if version is None:
            most = cursor_keys.MOST
            raise CommandError(f"no new key: another rotation took place at the same time, or {most} were made already")
        return {"would_be" if options["dry_run"] else "version": version}

    def _retire_key(self, conn: Any, options: dict[str, Any]) -> dict[str, Any]:
        version = options["version"]
        if cursor_keys.key_of(conn, version) is None:
            raise CommandError(f"key {version} does not exist or is retired already")
        return {"retired": version, "done": not options["dry_run"] and cursor_keys.retire_key(conn, version)}

    def _bands(self, conn: Any, options: dict[str, Any]) -> dict[str, Any]:
        rows = retirement.band_sizes(conn, options["source"], 200)
        return {f"band {row.band_no}": f"{row.state}, {row.meta_bytes} + {row.blob_bytes} bytes" for row in rows}
