"""A database of a given size, for measuring: `relayer_seed --scale 10M` (design 5.6.4)."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError, CommandParser
from tqdm import tqdm

from requests_app.store.seeding import filling
from requests_app.store.seeding.layout import Layout
from requests_app.store.session import connect

_UNITS: Final = {"": 1, "k": 1_000, "m": 1_000_000}


class Command(BaseCommand):
    """Fills an empty, migrated database. Exit code 1 when it has rows (unless --force-free) or anything works on it."""

    help = "Fill an empty database with so many finished and live requests of all kinds, with everything that hangs on them."

    def add_arguments(self, parser: CommandParser) -> None:
        """Sizes and output forms."""
        parser.add_argument("--scale", required=True, help="finished requests, such as 200k or 10M")
        parser.add_argument("--live", help="requests under way; a hundredth of the finished ones by default")
        parser.add_argument("--reviews", help="live requests that wait for a person; a fiftieth of the live ones")
        parser.add_argument("--force-free", action="store_true", help="empty the tables first when they have rows")
        parser.add_argument("--dry-run", action="store_true", help="say what would be written")
        parser.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        """Check, fill, count, tidy, report."""
        layout = layout_of(options["scale"], options["live"], options["reviews"])
        with connect("maintenance", name="seed") as conn:
            found = filling.obstacles(conn)
            blocked = bool(found) and (filling.working(conn) or not options["force_free"])
            if options["dry_run"]:
                self._say_plan(layout, found, blocked, as_json=options["json"])
                return
            if blocked:
                raise CommandError(
                    "not seeded: " + "; ".join(found) + " (--force-free empties tables of an idle database)"
                )
            # The embedded server's other settings are for small data; a bar only where somebody looks.
            hidden = options["json"] or not sys.stderr.isatty()
            with tqdm(total=round(filling.work_of(conn, layout)), unit_scale=True, disable=hidden) as bar:
                phases = _run(conn, layout, bar)
            self._say_result(layout, phases, filling.sizes(conn), as_json=options["json"])

    def _say_plan(self, layout: Layout, found: list[str], blocked: bool, *, as_json: bool) -> None:
        rows = layout.estimate()
        document = {"finished": layout.finished, "live": layout.live, "reviews": layout.reviews, "rows": rows}
        if as_json:
            self.stdout.write(json.dumps({**document, "obstacles": found, "would_run": not blocked}))
            return
        for name, count in rows.items():
            self.stdout.write(f"{name:24} about {count:>12,} rows")
        for line in found:
            self.stdout.write(line)
        self.stdout.write("nothing would be written" if blocked else "would be written; nothing was")

    def _say_result(
        self, layout: Layout, phases: dict[str, float], sizes: list[filling.TableSize], *, as_json: bool
    ) -> None:
        total = sum(one.table_bytes + one.index_bytes for one in sizes)
        if as_json:
            document = {
                "finished": layout.finished,
                "live": layout.live,
                "reviews": layout.reviews,
                "seconds": phases,
                "bytes": total,
                "tables": [one._asdict() for one in sizes],
            }
            self.stdout.write(json.dumps(document))
            return
        for one in sizes:
            table, index = one.table_bytes / 1e6, one.index_bytes / 1e6
            self.stdout.write(f"{one.name:24} {one.rows:>12,} rows {table:>10,.1f} MB {index:>10,.1f} MB of indexes")
        spent = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in phases.items())
        self.stdout.write(f"{layout.finished:,} finished and {layout.live:,} live: {total / 1e9:.2f} GB; {spent}")


def layout_of(scale: str, live: str | None, reviews: str | None) -> Layout:
    """The layout that the options name. Raises CommandError."""
    finished = count_of(scale)
    alive = finished // 100 if live is None else count_of(live)
    waiting = alive // 50 if reviews is None else count_of(reviews)
    try:
        return Layout(finished, alive, waiting)
    except ValueError as error:
        raise CommandError(str(error)) from None


def count_of(text: str) -> int:
    """A number with an optional k or M. Raises CommandError."""
    found = re.fullmatch(r"(\d{1,9})([kKmM]?)", text)
    if found is None:
        raise CommandError(f"{text!r} is no number such as 200k or 10M")
    return int(found[1]) * _UNITS[found[2].lower()]


def _run(conn: Any, layout: Layout, bar: Any) -> dict[str, float]:
    """Every phase with its seconds."""

    def progress(what: str, work: float) -> None:
        bar.set_description_str(f"{what[:30]:30}", refresh=False)
        bar.update(round(work))

    base = datetime.now(UTC)
    return {
        "fill": _timed(lambda: filling.fill(conn, layout, base, progress)),
        "figures": _timed(lambda: filling.count_figures(conn, progress)),
        "tidy": _timed(lambda: filling.tidy(conn, layout, progress)),
    }


def _timed(work: Callable[[], None]) -> float:
    began = time.monotonic()
    work()
    return round(time.monotonic() - began, 1)
