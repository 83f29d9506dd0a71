"""`manage.py relayer_example settle`: the example of three payments, in a database of its own that is dropped afterwards."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandParser
from django.db import connections

from requests_app.store import scratch
from requests_app.store.queue import Verdict
from requests_app.store.session import connect
from workers.examples.settle import HEAD, Example, Result
from workers.settling import AttemptLog


class Command(BaseCommand):
    """Prints what happened line by line. Exit code 1 when the journal's head is not the reference's, or a late ack was taken."""

    help = (
        "Run the example of the settle worker: production queue, states, journal and worker; scripted node and clock."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Which example, and how."""
        parser.add_argument("example", choices=("settle",))
        parser.add_argument(
            "--attempt-log", action="store_true", help="with the attempt log, as in production: no review is needed"
        )
        parser.add_argument(
            "--json", action="store_true", help="print JSON with the head and the verdict on the late ack"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Make the database, run, print, drop it."""
        policy = AttemptLog.ON if options["attempt_log"] else AttemptLog.OFF
        with scratch_database(), connect("worker", name="example") as conn:
            result = Example(conn, policy).run()
        if options["json"]:
            self.stdout.write(json.dumps(_document(result)))
        else:
            self.stdout.write("\n".join(result.lines))
        if result.late_ack is Verdict.OK or (policy is AttemptLog.OFF and result.head != HEAD):
            self.stderr.write(f"head {result.head.seq}:{result.head.hash.hex()}, late ack {result.late_ack}")
            sys.exit(1)


@contextmanager
def scratch_database() -> Iterator[str]:
    """A migrated database under Django's default alias for the block, dropped at its end whatever happens."""
    name, before = f"relayer_example_{secrets.token_hex(6)}", connections["default"].settings_dict["NAME"]
    with connect("maintenance", name="example") as server:
        scratch.create_database(server, name)
        try:
            _point_at(name)
            call_command("migrate", verbosity=0, interactive=False)
            yield name
        finally:
            _point_at(before)
            scratch.drop_database(server, name)


def _point_at(name: str) -> None:
    """From now on the default alias is this database. What Django remembers of content types belongs to the other one."""
    connections["default"].close()
    connections["default"].settings_dict["NAME"] = name
    ContentType.objects.clear_cache()


def _document(result: Result) -> dict[str, Any]:
    return {
        "lines": result.lines,
        "head": {"seq": result.head.seq, "hash": result.head.hash.hex()},
        "late_ack": result.late_ack.value,
    }
