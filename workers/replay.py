"""Applying a range of the log again, and parked envelopes once more. Outside the cursor, idempotent, page by page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from psycopg import Connection

from requests_app.crash_points import crash_point
from requests_app.errors import RelayerError
from requests_app.store import consumers
from requests_app.store.consumers import REQUESTS, Stored
from requests_app.store.envelopes import last_position
from requests_app.store.sqlstates import is_permanent
from workers.apply import Applier
from workers.facts import Reader

PAGE: Final = 500
Progress = Callable[[int, int], None]


@dataclass(slots=True)
class Report:
    """What a replay did. `skipped`: position -> why it cannot be applied; `receipts` and `completed`: rows by the slug of their kind."""

    envelopes: int = 0
    kinds: Counter[int] = field(default_factory=Counter)
    skipped: dict[int, str] = field(default_factory=dict)
    receipts: Counter[str] = field(default_factory=Counter)
    completed: Counter[str] = field(default_factory=Counter)


def replay(
    conn: Connection[Any],
    applier: Applier,
    reader: Reader,
    source_id: int,
    lo: int,
    hi: int,
    *,
    dry_run: bool = False,
    progress: Progress = lambda done, position: None,
    page: int = PAGE,
) -> Report:
    """Apply the stored envelopes of blocks lo..hi again, up to the seal; with `dry_run` only read and decode them.

    Every page is one transaction, so a replay that was interrupted is simply started again. Raises what the database raises.
    """
    standing = consumers.read_consumer(conn, source_id)
    after, upto = (lo << 20) - 1, last_position(min(hi, standing.sealed))
    report = Report()
    while after < upto:
        rows = consumers.read_page(conn, source_id, after, upto, page)
        if not rows:
            break
        decoded, bad = reader.decode(rows)
        report.skipped.update({at: f"{type(why).__name__}: {why}" for at, why in bad.items()})
        report.kinds.update(row.kind for row in rows)
        if not dry_run and decoded:
            readable = {one.position for one, _ in decoded}
            _apply(conn, applier, [row for row in rows if row.position in readable], report)
        report.envelopes += len(rows)
        after = rows[-1].position
        progress(report.envelopes, after)
    return report


def _apply(conn: Connection[Any], applier: Applier, rows: Sequence[Stored], report: Report) -> None:
    """One page; halved after a failure that blames an envelope, down to that one, which is skipped."""
    try:
        done = applier.apply_now(conn, rows)
    except Exception as error:
        if not is_permanent(error):
            raise
        if len(rows) == 1:
            report.skipped[rows[0].position] = f"{type(error).__name__}: {error}"
            return
        middle = len(rows) // 2
        _apply(conn, applier, rows[:middle], report)
        _apply(conn, applier, rows[middle:], report)
        return
    report.receipts.update({kind.slug: n for kind, n in done.receipts.items()})
    report.completed.update({kind.slug: n for kind, n in done.completed.items()})


def redrive(
    conn: Connection[Any], applier: Applier, source_id: int, positions: Sequence[int] = (), *, consumer: str = REQUESTS
) -> dict[int, str | None]:
    """Apply parked envelopes of a source (all unresolved, or these) once more: position -> None, or why it failed again."""
    found: dict[int, str | None] = {}
    for position in consumers.parked_positions(conn, source_id, positions, consumer=consumer):
        stored = consumers.read_page(conn, source_id, position - 1, position, 1)
        try:
            if not stored:
                raise RelayerError("the envelope is no longer stored")
            applier.apply_now(conn, stored)
        except Exception as error:
            if not is_permanent(error):
                raise
            crash_point("before_park_again_commit")
            consumers.park_envelopes(conn, source_id, {position: error}, consumer=consumer)
            crash_point("after_park_again_commit")
            found[position] = f"{type(error).__name__}: {error}"
            continue
        crash_point("before_resolve_parked_commit")
        consumers.resolve_parked(conn, source_id, [position], consumer=consumer)
        crash_point("after_resolve_parked_commit")
        found[position] = None
    return found
