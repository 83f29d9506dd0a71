"""The state of the system in a terminal: what waits, what is stuck, who works."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from requests_app.admin.cells import duration, kind_words
from requests_app.admin.troubles import troubles
from requests_app.overview import Overview, overview
from requests_app.states import REQUEST_KINDS, IntentState, Kind, Status


class Command(BaseCommand):
    """Prints the overview. Exit code 0 when all is well, 2 when something needs attention."""

    help = "Show requests by state, queues, leases, signers, listeners and open reviews."

    def add_arguments(self, parser: CommandParser) -> None:
        """Output form only: the command reads."""
        parser.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        """Read once, print once."""
        now = overview()
        found = troubles(now)
        if options["json"]:
            self.stdout.write(json.dumps(document(now, found), default=_plain))
        else:
            self.stdout.write("\n".join(lines(now, found)))
        if found:
            raise SystemExit(2)


def document(now: Overview, found: list[str]) -> dict[str, Any]:
    """Everything as plain values; bytes as 0x hex, wei as text."""
    parts: dict[str, Any] = {
        field.name: [row._asdict() for row in getattr(now, field.name)]
        for field in dataclasses.fields(now)
        if isinstance(getattr(now, field.name), list)
    }
    counts = {kind.slug: {status.value: n for status, n in of.items()} for kind, of in now.counts().items()}
    paid = {state.value: n for state, n in now.payment_counts().items()}
    return {
        "troubles": found,
        "requests": counts,
        "payments_by_state": paid,
        "taken_at": now.taken_at.isoformat(),
        **parts,
    }


def _plain(value: Any) -> str:
    if isinstance(value, bytes | memoryview):
        return "0x" + bytes(value).hex()
    if isinstance(value, Decimal):
        return str(int(value))
    raise TypeError(type(value).__name__)


def lines(now: Overview, found: list[str]) -> list[str]:
    """The text form."""
    counts, oldest = now.counts(), now.oldest()
    out = ["working" if not found else "needs attention:", *(f"  - {text}" for text in found), ""]
    out += table(
        ("requests", *(status.value for status in Status)),
        [
            (kind.slug, *(_count(counts[kind][status], oldest[kind].get(status)) for status in Status))
            for kind in REQUEST_KINDS
        ],
    )
    ages = {row.state: row.oldest_seconds for row in now.payments}
    paid = now.payment_counts()
    out += table(
        ("payments", *(state.value for state in IntentState)),
        [("payment", *(_count(paid[state], ages.get(state)) for state in IntentState))],
    )
    out += table(
        ("queue", "kind", "jobs", "claimable", "leased", "oldest"),
        [
            (row.queue, Kind(row.kind).slug, row.jobs, row.visible, row.leased, duration(row.oldest_visible_seconds))
            for row in now.queues
        ],
    )
    out += table(
        ("signer", "status", "next nonce", "ahead", "open slots", "owner"),
        [
            (f"0x{row.address.hex()}", row.status, row.next_nonce, row.nonce_distance, row.open_slots, row.owner or "-")
            for row in now.signers
        ],
    )
    out += table(
        ("listener", "chain", "block", "cursor moved", "owner"),
        [
            (row.name, row.chain_id, row.block, duration(row.cursor_age_seconds), row.instance or "-")
            for row in now.listeners
        ],
    )
    out += table(
        ("lease", "holder", "epoch", "left"),
        [
            (row.resource, row.instance, row.epoch, duration(row.seconds_left) if row.seconds_left > 0 else "expired")
            for row in now.leases
        ],
    )
    out += table(
        ("review", "kind", "cases", "oldest"),
        [(row.reason_code, kind_words(row.kind), row.rows, duration(row.oldest_seconds)) for row in now.reviews],
    )
    return out


def _count(count: int, age: float | None) -> str:
    return f"{count} ({duration(age)})" if age is not None else str(count)


def table(headers: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """Aligned columns and an empty line; nothing for no rows."""
    texts = [[str(cell) for cell in row] for row in rows]
    if not texts:
        return []
    widths = [max(len(row[i]) for row in (list(headers), *texts)) for i in range(len(headers))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (list(headers), *texts)
    ] + [""]
