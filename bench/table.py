"""The table that every benchmark prints: figures, goals, verdicts."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn


@dataclass(slots=True)
class Result:
    """One line of the table. `goal` None: a figure to look at."""

    name: str
    value: float
    unit: str
    goal: float | None = None
    at_least: bool = True
    note: str = ""

    @staticmethod
    def of(line: dict[str, Any]) -> Result:
        """What `document` wrote."""
        fields = ("name", "value", "unit", "goal", "at_least", "note")
        return Result(**{name: line[name] for name in fields})

    @property
    def passed(self) -> bool | None:
        """Whether the bar is met; None without one."""
        if self.goal is None:
            return None
        return self.value >= self.goal if self.at_least else self.value <= self.goal


@dataclass(slots=True)
class Table:
    """The results of one run."""

    results: list[Result] = field(default_factory=list)

    def least(self, name: str, value: float, unit: str, goal: float | None = None, note: str = "") -> None:
        """A figure that should be at least its goal."""
        self.add(Result(name, value, unit, goal, True, note))

    def most(self, name: str, value: float, unit: str, goal: float | None = None, note: str = "") -> None:
        """A figure that should be at most its goal."""
        self.add(Result(name, value, unit, goal, False, note))

    def add(self, result: Result) -> None:
        """Keep a figure and print its line."""
        self.results.append(result)
        sign = "" if result.goal is None else f"{'>=' if result.at_least else '<='} {result.goal:g}"
        verdict = {None: "", True: "pass", False: "MISS"}[result.passed]
        print(
            f"{result.name:64} {result.value:12,.2f} {result.unit:8} {sign:>12} {verdict:5} {result.note}", flush=True
        )

    def document(self) -> str:
        """The table as JSON."""
        return json.dumps([
            {"name": one.name, "value": round(one.value, 4), "unit": one.unit, "goal": one.goal, "at_least": one.at_least, "passed": one.passed, "note": one.note}
            for one in self.results
        ])  # fmt: skip


def publish(table: Table, path: str | None) -> None:
    """Print the results as JSON, and write them to `path` where one is given."""
    print(table.document())
    if path:
        Path(path).write_text(table.document())


def leave(table: Table) -> NoReturn:
    """End the process: exit code 1 when a bar is missed."""
    sys.exit(int(any(one.passed is False for one in table.results)))
