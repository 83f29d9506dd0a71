"""The server's own statement log: what every process really sent, BEGIN, COMMIT and idle polls included."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tests.stack.harness import OBSERVER, Stack

_ENTRY = re.compile(r"^(\S+ \S+) UTC\|(\d+)\|([^|]*)\|LOG:  (?:statement|execute [^:]*): (.*)$")


@dataclass
class Statements:
    """Entries of the log between two moments: when, which application, and the statement's text."""

    entries: list[tuple[datetime, str, str]] = field(default_factory=list)

    def by_application(self) -> Counter[str]:
        """How many statements each kind of process sent; the observer is left out."""
        return Counter(application for _, application, _ in self.entries if application != OBSERVER)

    def times(self, application: str, text: str) -> list[datetime]:
        """When applications of this kind sent statements with this text."""
        return [at for at, who, statement in self.entries if who == application and text in statement]


@contextmanager
def logged_statements(stack: Stack) -> Iterator[Statements]:
    """Log every statement while the block runs; the entries are there afterwards."""
    log = stack.var / "pg" / "server.log"
    found = Statements()
    with stack.connect() as conn:
        for setting in ("log_statement = 'all'", "log_line_prefix = '%m|%p|%a|'", "log_timezone = 'UTC'"):
            conn.execute(f"ALTER SYSTEM SET {setting}")
        conn.execute("SELECT pg_reload_conf()")
        offset = log.stat().st_size
        try:
            yield found
        finally:
            for setting in ("log_statement", "log_line_prefix", "log_timezone"):
                conn.execute(f"ALTER SYSTEM RESET {setting}")
            conn.execute("SELECT pg_reload_conf()")
    with log.open(encoding="utf-8", errors="replace") as lines:
        lines.seek(offset)
        found.entries = list(_parse(lines))


def _parse(lines: Iterator[str]) -> Iterator[tuple[datetime, str, str]]:
    current: tuple[datetime, str, str] | None = None
    for line in lines:
        match = _ENTRY.match(line)
        if match:
            if current:
                yield current
            at = datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S.%f").replace(tzinfo=UTC)
            current = (at, _kind(match[3]), match[4])
        elif current and line.startswith("\t"):
            current = (current[0], current[1], current[2] + "\n" + line.strip())
        elif current:
            yield current
            current = None
    if current:
        yield current


def _kind(application: str) -> str:
    """`relayer-settle-host-1:slot:pid:x` and its like, without what is unique to the process."""
    for kind in ("settle", "sweep", "listener", "web", "watchdog", "bands"):
        if f"relayer-{kind}" in application:
            return kind
    return OBSERVER if application == OBSERVER else "other" if application else "unnamed"
