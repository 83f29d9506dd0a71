"""Apply a range of the envelope log again: `manage.py relayer_replay --from 100 --to 200`."""

from __future__ import annotations

import json
import sys
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError, CommandParser

from requests_app.config import config
from requests_app.store.bands import LARGEST_SOURCE
from requests_app.store.envelopes import read_source
from requests_app.store.session import connect
from workers.apply import Applier
from workers.facts import Reader, contracts_of
from workers.listener import GATEWAY
from workers.replay import Report, replay
from workers.thresholds import thresholds_of

EXIT_SKIPPED: Final = 2


class Command(BaseCommand):
    """Safe while everything runs: effects are idempotent and final rows never change. Exit code 2: some were skipped."""

    help = "Apply stored envelopes of a block range to the requests again, in order and idempotently."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Range, source, output."""
        parser.add_argument("--source", type=int, default=GATEWAY, help="originator id (default: the gateway)")
        parser.add_argument("--from", dest="lo", type=int, help="first block (default: the first one stored)")
        parser.add_argument("--to", dest="hi", type=int, help="last block (default: the seal)")
        parser.add_argument("--dry-run", action="store_true", help="read and decode everything, write nothing")
        parser.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        """Replay, then print what happened."""
        with connect("worker", name="replay") as conn:
            known = 0 < options["source"] <= LARGEST_SOURCE
            source = read_source(conn, options["source"]) if known else None
            if source is None:
                raise CommandError(f"originator {options['source']} has no blocks to replay")
            lo = source.start_block if options["lo"] is None else options["lo"]
            hi = source.block if options["hi"] is None else options["hi"]
            if lo < 0 or hi < lo:
                raise CommandError(f"{lo}..{hi} is not a range of blocks")
            reader = self._reader()
            report = replay(
                conn, Applier(source.source_id, reader), reader, source.source_id, lo, hi,
                dry_run=options["dry_run"], progress=self._progress(options["json"]),
            )  # fmt: skip
        self._print(report, lo, min(hi, source.block), options)
        if report.skipped:
            sys.exit(EXIT_SKIPPED)

    def _reader(self) -> Reader:
        from workers.chain import open_clients

        settled = config()
        return Reader(contracts_of(settled), thresholds_of(settled, open_clients(settled)))

    def _progress(self, quiet: bool) -> Any:
        show = sys.stderr.isatty() and not quiet

        def progress(done: int, position: int) -> None:
            if show:
                self.stderr.write(f"\r{done} envelopes, block {position >> 20}", ending="")

        return progress

    def _print(self, report: Report, lo: int, hi: int, options: dict[str, Any]) -> None:
        document = {
            "source": options["source"], "from": lo, "to": hi, "dry_run": options["dry_run"],
            "envelopes": report.envelopes, "kinds": {str(kind): n for kind, n in sorted(report.kinds.items())},
            "receipts": dict(report.receipts), "completed": dict(report.completed),
            "skipped": {str(at): why for at, why in sorted(report.skipped.items())},
        }  # fmt: skip
        if options["json"]:
            self.stdout.write(json.dumps(document))
            return
        verb = "would be applied" if options["dry_run"] else "applied"
        self.stdout.write(f"blocks {lo}..{hi}: {report.envelopes - len(report.skipped)} envelopes {verb}")
        for name in ("receipts", "completed"):
            for kind, count in document[name].items():
                self.stdout.write(f"  {kind} {name}: {count}")
        for position, why in document["skipped"].items():
            self.stdout.write(f"  skipped {int(position) >> 20}/{int(position) & 0xFFFFF}: {why}")
