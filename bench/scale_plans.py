"""Which statements a piece of work runs, and how many rows each of their plans reads.

Statements are taken down at psycopg's cursor, which the ORM and the named statements share. Each is then run again under EXPLAIN (ANALYZE)
in a transaction that is rolled back: once planned for its values and, where a connection may come to prepare it, once as planned for any.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg._queries import PostgresQuery
from psycopg.adapt import Transformer

_EXPLAINED = re.compile(r"\s*(--[^\n]*\n\s*)*(SELECT|WITH|INSERT|UPDATE|DELETE)\b", re.IGNORECASE)
_PLANNING = 100.0  # PostgreSQL's allowance for planning anew: 2.5 for each table and one more
# Nodes that hand on what a scan below them has read, or that read no table.
_PASSING = {
    "CTE Scan",
    "Subquery Scan",
    "Function Scan",
    "Values Scan",
    "Table Function Scan",
    "Named Tuplestore Scan",
    "WorkTable Scan",
}


@dataclass(frozen=True)
class Statement:
    """A statement as it was sent."""

    text: str
    params: Any
    prepared: bool
    """Whether its connection may come to run it as a prepared statement; the ORM's own cursors never do."""

    @property
    def key(self) -> str:
        """The same for the same statement with the same values."""
        return f"{self.text}{self.params}"

    @property
    def short(self) -> str:
        """Its beginning, on one line, for messages."""
        return re.sub(r"\s+", " ", re.sub(r"--[^\n]*\n", "", self.text))[:150]


@dataclass(frozen=True)
class Cost:
    """What one plan read: rows over all its table scans, those thrown away included, and pages of 8 kB."""

    statement: Statement
    generic: bool
    rows: int
    pages: int
    milliseconds: float
    expected: float
    """What the planner thinks, in its own units."""
    plan: str

    def __str__(self) -> str:
        return f"{self.rows:,} rows, {self.pages:,} pages, {self.milliseconds:.1f} ms{' (generic plan)' if self.generic else ''}: {self.statement.short}"


@contextmanager
def taken_down() -> Iterator[list[Statement]]:
    """Every statement that any psycopg cursor of this process runs inside the block."""
    found: list[Statement] = []
    original = psycopg.Cursor.execute

    def execute(self: Any, query: Any, params: Any = None, **options: Any) -> Any:
        text = (
            query
            if isinstance(query, str)
            else query.as_string(self.connection)
            if hasattr(query, "as_string")
            else str(query)
        )
        found.append(Statement(text, params, not isinstance(self, psycopg.ClientCursor)))
        return original(self, query, params, **options)

    psycopg.Cursor.execute = execute  # type: ignore[method-assign, assignment]
    try:
        yield found
    finally:
        psycopg.Cursor.execute = original  # type: ignore[method-assign]


def questions(statements: Sequence[Statement]) -> list[Statement]:
    """Those that read or write rows; without BEGIN, SET and the like."""
    return [one for one in statements if _EXPLAINED.match(one.text)]


def costs(conn: psycopg.Connection[Any], statements: Sequence[Statement]) -> list[Cost]:
    """The costs of each statement under every plan that it may get.

    PostgreSQL takes to the plan for any values only when it does not expect it to be dearer than those for the values at hand.
    """
    found = []
    for one in questions(statements):
        found.append(_cost(conn, one, generic=False))
        if one.prepared and one.params:
            other = _cost(conn, one, generic=True)
            if other.expected <= found[-1].expected + _PLANNING:
                found.append(other)
    return found


def _cost(conn: psycopg.Connection[Any], one: Statement, *, generic: bool) -> Cost:
    options = "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) "
    with conn.transaction(force_rollback=True):
        if generic:
            conn.execute("SET LOCAL plan_cache_mode = force_generic_plan")
            call = _prepare(conn, one)
            row = conn.execute(options + call).fetchone()
            conn.execute("DEALLOCATE scale_plan")
        else:
            with psycopg.ClientCursor(conn) as cursor:
                row = cursor.execute(options + one.text, one.params or None).fetchone()
    assert row is not None
    document = row[0] if isinstance(row[0], list) else json.loads(row[0])
    plan = document[0]["Plan"]
    pages = plan.get("Shared Hit Blocks", 0) + plan.get("Shared Read Blocks", 0)
    return Cost(
        one,
        generic,
        round(rows_read(plan)),
        pages,
        document[0]["Execution Time"],
        plan["Total Cost"],
        json.dumps(plan, indent=1),
    )


def rows_read(plan: Mapping[str, Any]) -> float:
    """Rows that the table scans of a plan have read, kept or not."""
    own = 0.0
    kind = plan["Node Type"]
    if kind.endswith("Scan") and kind not in _PASSING and kind != "Bitmap Index Scan":
        read = sum(
            plan.get(name, 0) for name in ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Index Recheck")
        )
        own = read * plan.get("Actual Loops", 1)
    return own + sum(rows_read(child) for child in plan.get("Plans", []))


def _prepare(conn: psycopg.Connection[Any], one: Statement) -> str:
    """Make the statement a prepared one; the EXECUTE that runs it with its values."""
    query = PostgresQuery(Transformer(conn))
    query.convert(one.text, one.params)
    conn.execute(b"PREPARE scale_plan AS " + query.query)
    values = [one.params] if not isinstance(one.params, Mapping) else []
    ordered = list(values[0]) if values else [one.params[name] for name in _names(one.text)]
    with psycopg.ClientCursor(conn) as cursor:
        return f"EXECUTE scale_plan({', '.join(cursor.mogrify('%s', [value]) for value in ordered)})"


def _names(text: str) -> list[str]:
    """Names of the placeholders in the order in which psycopg numbers them: that of their first appearance."""
    return list(dict.fromkeys(re.findall(r"%\((\w+)\)[sbt]", text)))
