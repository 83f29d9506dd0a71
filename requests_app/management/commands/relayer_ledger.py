"""The journal for auditors: `relayer_ledger verify | head | balances | export`."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError, CommandParser
from psycopg import Connection
from tqdm import tqdm

from requests_app.ledger import GENESIS, Broken, Chained, Head, follow, rfc3339
from requests_app.store import ledger
from requests_app.store.ledger import UnreadableEntry
from requests_app.store.session import connect

EXIT_BROKEN: Final = 1
LARGEST_NUMBER: Final = 2**63 - 1
_PAGE: Final = 2_000
_COLUMNS: Final = (
    "seq", "id", "kind", "ref", "holds", "chain", "token", "account", "amount", "by", "at", "tx_hash", "memo", "prev_hash", "hash"
)  # fmt: skip


class Command(BaseCommand):
    """Reads only. `verify` ends with code 1 and the first bad number when the journal is not what it claims."""

    help = "Verify the journal's hash chain, print its head and balances, export it as CSV or JSON lines."

    def add_arguments(self, parser: CommandParser) -> None:
        """One sub-command each."""
        actions = parser.add_subparsers(dest="action", required=True)
        verify = actions.add_parser("verify", help="walk the chain from its beginning; exit code 1 where it breaks")
        verify.add_argument("--head", help="also compare with a head that was published: SEQ:HASH")
        head = actions.add_parser("head", help="number and hash of the last entry, to be kept outside the database")
        balances = actions.add_parser("balances", help="pending and posted of every account and asset")
        balances.add_argument("--account", help="one ledger account, such as merchant:0x...")
        export = actions.add_parser("export", help="every entry, to standard output or a file")
        export.add_argument(
            "--format", choices=("csv", "json"), default="csv", help="csv: a line a leg; json: a line an entry"
        )
        export.add_argument("--after", type=int, default=0, help="only entries after this number")
        export.add_argument("--output", help="a file instead of standard output")
        for sub in (verify, head, balances):
            sub.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        """Open a connection without a time limit and do it."""
        with connect("maintenance", name="ledger") as conn:
            try:
                getattr(self, f"_{options['action']}")(conn, options)
            except UnreadableEntry as error:
                raise CommandError(f"#{error.broken.seq} ({error.broken.entry_id}) cannot be read: {error}") from None

    def _verify(self, conn: Connection[Any], options: dict[str, Any]) -> None:
        published = _published(options["head"])
        last = ledger.head(conn)
        broken, reached = walk(self._shown(ledger.journal(conn, page=_PAGE), last.seq, options["json"]), published)
        if options["json"]:
            found = None if broken is None else broken._asdict()
            document = {"ok": broken is None, "entries": reached.seq, "head": reached.hash.hex(), "broken": found}
            self.stdout.write(json.dumps(document))
        elif broken is None:
            self.stdout.write(f"{reached.seq} entries, every one follows; head {reached.seq}:{reached.hash.hex()}")
        else:
            self.stdout.write(f"broken at #{broken.seq} ({broken.entry_id}): {broken.why}")
        if broken is not None:
            sys.exit(EXIT_BROKEN)

    def _head(self, conn: Connection[Any], options: dict[str, Any]) -> None:
        last = ledger.head(conn)
        document = {"seq": last.seq, "hash": last.hash.hex()}
        self.stdout.write(json.dumps(document) if options["json"] else f"{last.seq}:{last.hash.hex()}")

    def _balances(self, conn: Connection[Any], options: dict[str, Any]) -> None:
        rows = ledger.balances(conn, options["account"])
        if options["json"]:
            texts = [{**row._asdict(), "pending": str(row.pending), "posted": str(row.posted)} for row in rows]
            self.stdout.write(json.dumps(texts))
            return
        for row in rows:
            self.stdout.write(
                f"{row.account:52} {row.chain} {row.token}  pending {row.pending:>+24,}  posted {row.posted:>+24,}"
            )
        self.stdout.write(f"{len(rows)} balances")

    def _export(self, conn: Connection[Any], options: dict[str, Any]) -> None:
        after = options["after"]
        if not 0 <= after <= LARGEST_NUMBER:
            raise CommandError(f"--after is a number from 0 to {LARGEST_NUMBER}")
        rows = self._shown(ledger.journal(conn, after, _PAGE), ledger.head(conn).seq - after, not options["output"])
        if options["output"]:
            try:
                with open(options["output"], "w", encoding="utf-8", newline="") as file:
                    _write(file, rows, options["format"])
            except OSError as error:
                raise CommandError(f"{options['output']} cannot be written: {error.strerror}") from None
        else:
            _write(self.stdout, rows, options["format"])

    def _shown(self, rows: Iterator[Chained], total: int, quiet: bool) -> Iterable[Chained]:
        """The rows with a bar on standard error where somebody looks."""
        hidden = quiet or not sys.stderr.isatty()
        shown: Iterable[Chained] = tqdm(rows, total=max(0, total), unit=" entries", disable=hidden)
        return shown


def walk(rows: Iterable[Chained], published: Head | None = None) -> tuple[Broken | None, Head]:
    """The first broken place, if any, and how far the journal holds. A published head must be on the way."""
    head = Head(0, GENESIS)
    try:
        for row in rows:
            after = follow(head, row)
            if isinstance(after, Broken):
                return after, head
            head = after
            if published is not None and head.seq == published.seq and head.hash != published.hash:
                return Broken(head.seq, row.entry.entry_id, "its hash is not the one that was published"), head
    except UnreadableEntry as error:
        return error.broken, head
    if published is not None and head.seq < published.seq:
        return Broken(head.seq + 1, "", f"the published entry {published.seq} is missing"), head
    return None, head


def _published(text: str | None) -> Head | None:
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,18}):(?:0x)?([0-9a-f]{64})", text)
    if found is None:
        raise CommandError(f"{text!r} is no head such as 7:{'0' * 8}…")
    head = Head(int(found[1]), bytes.fromhex(found[2]))
    if head.seq == 0 and head.hash != GENESIS:
        raise CommandError(f"the head of an empty journal is 0:{GENESIS.hex()}")
    return head


def _write(out: Any, rows: Iterable[Chained], form: str) -> None:
    if form == "json":
        for row in rows:
            legs = [{"account": leg.account, "amount": str(leg.amount)} for leg in row.entry.legs]
            out.write(json.dumps({**_document(row), "legs": legs}) + "\n")
        return
    table = csv.DictWriter(out, _COLUMNS, lineterminator="\n")
    table.writeheader()
    for row in rows:
        document = _document(row)
        for leg in row.entry.legs:
            table.writerow({**document, "account": leg.account, "amount": leg.amount})
        if not row.entry.legs:
            table.writerow(document)


def _document(row: Chained) -> dict[str, Any]:
    entry = row.entry
    return {
        "seq": row.seq, "id": entry.entry_id, "kind": entry.kind.value, "ref": f"0x{entry.ref.hex()}", "holds": entry.holds or "",
        "chain": entry.chain, "token": entry.token, "by": entry.by.value, "at": rfc3339(entry.at),
        "tx_hash": f"0x{entry.tx_hash.hex()}" if entry.tx_hash else "", "memo": entry.memo,
        "prev_hash": row.prev.hex(), "hash": row.hash.hex(),
    }  # fmt: skip
