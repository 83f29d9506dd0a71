"""The building blocks of a page: facts, tables and notices. Templates draw them, nothing else does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values of one thing, side by side."""

    title: str
    rows: Sequence[tuple[str, Any]]
    template: str = field(default="admin/relayer/facts.html", init=False)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under headings. `numeric` names the columns (by index) that are aligned as numbers."""

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[Any]]
    empty: str = "Nothing here."
    numeric: frozenset[int] = frozenset()
    note: str = ""
    template: str = field(default="admin/relayer/table.html", init=False)

    def labelled(self) -> list[list[tuple[str, Any]]]:
        """Each row's cells with the headings of their columns."""
        return [list(zip(self.headers, row, strict=True)) for row in self.rows]


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the reader should see first. Tones: info, good, warn, bad, review."""

    title: str
    text: str
    tone: str = "info"
    points: Sequence[str] = ()
    template: str = field(default="admin/relayer/notice.html", init=False)


@dataclass(frozen=True, slots=True)
class Figure:
    """One number with its meaning, for the first page."""

    label: str
    value: str
    tone: str = "neutral"
    note: str = ""
    url: str = ""


@dataclass(frozen=True, slots=True)
class Figures:
    """A strip of figures."""

    title: str
    items: Sequence[Figure]
    template: str = field(default="admin/relayer/figures.html", init=False)


class Section(Protocol):
    """Whatever names the template that draws it."""

    @property
    def template(self) -> str:
        """Path of the template; it gets the section as `section`."""


@dataclass(frozen=True, slots=True)
class Secret:
    """Something that is shown this once."""

    title: str
    text: str
    secret: str
    template: str = field(default="admin/relayer/secret.html", init=False)
