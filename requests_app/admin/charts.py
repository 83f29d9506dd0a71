"""Charts of the first page: throughput, completion times, failures by label, drawn from the figures as plain SVG.

No script and no style attribute is needed, so the content security policy stays closed. Every chart says in words what it shows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from django.http import HttpRequest

from requests_app.admin import cells
from requests_app.admin.page import Section, Table
from requests_app.overview import Cached
from requests_app.states import Status
from requests_app.store import figures
from requests_app.store.figures import GROWTH, MINUTE, QUARTER, TWO_HOURS, Ended
from requests_app.store.session import web_connection

WIDTH: Final = 600.0
HEIGHT: Final = 120.0
FRESH_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time that a chart shows, in steps of `grain` seconds."""

    key: str
    words: str
    grain: int
    steps: int

    @property
    def seconds(self) -> int:
        """Its length."""
        return self.grain * self.steps


SPANS: Final = {
    span.key: span
    for span in (
        Span("1h", "last hour", MINUTE, 60),
        Span("24h", "last 24 hours", QUARTER, 96),
        Span("7d", "last 7 days", TWO_HOURS, 84),
    )
}


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar in chart units, with the text of its tooltip."""

    x: float
    y: float
    width: float
    height: float
    tone: str
    text: str


@dataclass(frozen=True, slots=True)
class Line:
    """One line: points as SVG wants them."""

    points: str
    tone: str
    name: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture with its scale; `summary` is what a reader who does not see it is told."""

    title: str
    summary: str
    top: str
    first: str
    last: str
    bars: Sequence[Bar] = ()
    lines: Sequence[Line] = ()
    legend: Sequence[tuple[str, str]] = ()
    width: float = WIDTH
    height: float = HEIGHT


@dataclass(frozen=True, slots=True)
class Charts:
    """The charts of one span, with links to the other spans."""

    title: str
    items: Sequence[Chart]
    spans: Sequence[tuple[str, str, bool]]
    template: str = field(default="admin/relayer/charts.html", init=False)


def chosen_span(request: HttpRequest) -> Span:
    """The span that the address asks for; the last hour otherwise."""
    return SPANS.get(request.GET.get("span", ""), SPANS["1h"])


def _reading(span: Span) -> Cached[list[Ended]]:
    return Cached(lambda: figures.ended_since(web_connection(), span.grain, span.seconds), FRESH_SECONDS)


_READINGS: Final[dict[str, Cached[list[Ended]]]] = {key: _reading(span) for key, span in SPANS.items()}


def forget() -> None:
    """Read anew at the next look (tests)."""
    for reading in _READINGS.values():
        reading.clear()


def chart_sections(span: Span) -> list[Section]:
    """Throughput and completion time over the span, failures by label over all three."""
    rows = _READINGS[span.key].get()
    steps = step_starts(span, datetime.now(UTC).timestamp())
    spans = [(one.key, one.words, one.key == span.key) for one in SPANS.values()]
    pictures = [throughput(span, steps, rows), completion(span, steps, rows)]
    return [Charts(f"The {span.words}", pictures, spans), failures({key: _READINGS[key].get() for key in SPANS})]


def step_starts(span: Span, now: float) -> list[int]:
    """The Unix seconds at which the steps of a span begin, oldest first; the last one is under way."""
    last = int(now // span.grain) * span.grain
    return [last - span.grain * back for back in range(span.steps - 1, -1, -1)]


def percentile(buckets: Mapping[int, int], share: float) -> float | None:
    """Seconds below which `share` of the rows took, to within an eighth; None without rows."""
    wanted, seen = share * sum(buckets.values()), 0
    for bucket in sorted(buckets):
        seen += buckets[bucket]
        if seen >= wanted and seen:
            return float(GROWTH ** (bucket + 0.5))
    return None


def _ceiling(value: float) -> float:
    """The next round number: 1, 2 or 5 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10 ** math.floor(math.log10(value))
    return next(float(power * factor) for factor in (1, 2, 5, 10) if value <= power * factor)


def _moment(start: int, span: Span) -> str:
    form = "%b %d %H:%M UTC" if span.grain > MINUTE else "%H:%M UTC"
    return datetime.fromtimestamp(start, UTC).strftime(form)


def throughput(span: Span, steps: Sequence[int], rows: Sequence[Ended]) -> Chart:
    """Ended rows a step, answered ones below, the others above."""
    good: Counter[int] = Counter()
    bad: Counter[int] = Counter()
    for row in rows:
        (good if row.status == Status.COMPLETED.value else bad)[int(row.at.timestamp())] += row.n
    top = _ceiling(max((good[step] + bad[step] for step in steps), default=0))
    width = WIDTH / len(steps)
    bars = []
    for index, step in enumerate(steps):
        text = f"{_moment(step, span)}: {good[step]} answered, {bad[step]} failed or timed out"
        base = HEIGHT
        for count, tone in ((good[step], "good"), (bad[step], "bad")):
            if count:
                size = max(1.0, HEIGHT * count / top)
                base -= size
                bars.append(
                    Bar(round(index * width, 2), round(base, 2), round(width * 0.8, 2), round(size, 2), tone, text)
                )
    per_minute = sum(good.values()) / (span.seconds / 60)
    rate = "fewer than 0.1" if 0 < per_minute < 0.05 else f"{per_minute:.1f}"
    words = f"{cells.number(good.total())} answered, {cells.number(bad.total())} failed or timed out; {rate} answered a minute"
    every = cells.duration(span.grain)
    return Chart(
        f"Ended requests, a bar for every {every}",
        words,
        f"{top:.0f}",
        _moment(steps[0], span),
        "now",
        bars=bars,
        legend=(("good", "answered"), ("bad", "failed or timed out")),
    )


def completion(span: Span, steps: Sequence[int], rows: Sequence[Ended]) -> Chart:
    """How long answered requests took: half of them at most p50, nineteen of twenty at most p95."""
    by_step: dict[int, Counter[int]] = {}
    total: Counter[int] = Counter()
    for row in rows:
        if row.status == Status.COMPLETED.value:
            by_step.setdefault(int(row.at.timestamp()), Counter())[row.bucket] += row.n
            total[row.bucket] += row.n
    series = {
        share: [(index, percentile(by_step[step], share)) for index, step in enumerate(steps) if step in by_step]
        for share in (0.5, 0.95)
    }
    top = _ceiling(max((value or 0.0 for points in series.values() for _, value in points), default=0.0))
    width = WIDTH / len(steps)
    lines, dots = [], []
    for share, tone, name in ((0.95, "warn", "p95"), (0.5, "info", "p50")):
        points = [(round((i + 0.5) * width, 2), round(HEIGHT * (1 - (v or 0.0) / top), 2), v) for i, v in series[share]]
        lines.append(Line(" ".join(f"{x},{y}" for x, y, _ in points), tone, name))
        dots += [Bar(x - 1.5, y - 1.5, 3, 3, tone, f"{name} {cells.duration(value)}") for x, y, value in points]
    half, most = percentile(total, 0.5), percentile(total, 0.95)
    words = "nothing was answered" if half is None else f"p50 {cells.duration(half)}, p95 {cells.duration(most)}"
    return Chart(
        "Time from acceptance to answer",
        words,
        cells.duration(top),
        _moment(steps[0], span),
        "now",
        bars=dots,
        lines=lines,
        legend=(("info", "p50"), ("warn", "p95")),
    )


def failures(rows: Mapping[str, Sequence[Ended]]) -> Table:
    """What did not end with an answer, by label, over each span."""
    counts: dict[str, Counter[str]] = {}
    for key, ended in rows.items():
        for row in ended:
            if row.status != Status.COMPLETED.value:
                counts.setdefault(row.label or row.status, Counter())[key] += row.n
    order = sorted(counts, key=lambda label: -counts[label]["7d"])
    table: list[Sequence[Any]] = [(label, *(cells.number(counts[label][key]) for key in SPANS)) for label in order]
    headers = ("Label", *(span.words.capitalize() for span in SPANS.values()))
    return Table("Failed or timed out, by label", headers, table, "Nothing failed in 7 days.", frozenset({1, 2, 3}))
