"""`manage.py relayer_check_invariants`: does everything that must hold of payments and their journal hold?"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandParser
from psycopg import Connection
from tqdm import tqdm

from requests_app.store import invariants
from requests_app.store.invariants import INVARIANTS, Invariant, Over, Violation
from requests_app.store.session import connect

EXIT_VIOLATED: Final = 1
WINDOW: Final = 20_000
SHOWN: Final = 20


class Command(BaseCommand):
    """Reads only, in windows, beside whatever works. Exit code 1 when anything is violated; the rows are named."""

    help = "Check the invariants of payments, journal, nonces and bills; name every row that violates one."

    def add_arguments(self, parser: CommandParser) -> None:
        """Which, how wide, which form."""
        names = sorted({one.name for one in INVARIANTS})
        parser.add_argument("--only", action="append", choices=names, help="only this one; may be given several times")
        parser.add_argument("--window", type=int, default=WINDOW, help="rows a statement looks at (default: 20000)")
        parser.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        """Judge every window of every invariant, then say what was found."""
        chosen = [one for one in INVARIANTS if not options["only"] or one.name in options["only"]]
        found: dict[str, list[Violation]] = {one.name: [] for one in chosen}
        with connect("maintenance", name="invariants") as conn:
            planned = list(looks(conn, chosen, max(1, options["window"])))
            hidden = options["json"] or not sys.stderr.isatty()
            for invariant, low, high in tqdm(planned, unit=" windows", disable=hidden):
                found[invariant.name] += invariants.check(conn, invariant, low, high)
        self._say(chosen, found, as_json=options["json"])
        if any(found.values()):
            sys.exit(EXIT_VIOLATED)

    def _say(self, chosen: list[Invariant], found: dict[str, list[Violation]], *, as_json: bool) -> None:
        if as_json:
            rows = [
                {
                    "number": one.number,
                    "name": one.name,
                    "violations": [{"subject": row.subject, "detail": row.detail} for row in found[one.name]],
                }
                for one in chosen
            ]
            self.stdout.write(json.dumps({"ok": not any(found.values()), "invariants": rows}))
            return
        for one in chosen:
            bad = found[one.name]
            self.stdout.write(
                f"{one.number:>2} {one.name:<22} {f'{len(bad)} VIOLATIONS' if bad else 'holds':<16} {one.meaning}"
            )
            for row in bad[:SHOWN]:
                self.stdout.write(f"     {row.subject}: {row.detail}")
            if len(bad) > SHOWN:
                self.stdout.write(f"     and {len(bad) - SHOWN} more (--json names them)")


def looks(conn: Connection[Any], chosen: list[Invariant], window: int) -> Iterator[tuple[Invariant, int, int]]:
    """Every window of every invariant, as far as the tables reach now."""
    reach = invariants.spans(conn)
    for one in chosen:
        if one.over is Over.WHOLE:
            yield one, 0, 0
            continue
        first, last = reach[one.over]
        for low in range(first, last, window):
            yield one, low, min(low + window, last)
