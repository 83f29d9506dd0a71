"""What the envelope benchmarks share: originators, rows of 1 kB, timings, the printed table."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from time import perf_counter, process_time
from typing import Any

import psycopg

Connection = psycopg.Connection[Any]
PAYLOAD = 1000


@dataclass(slots=True)
class Row:
    """An envelope as record_range takes it."""

    position: int
    kind: int
    payload: bytes
    ref: bytes | None
    contract: bytes = b"\x01" * 20
    block_hash: bytes = b"\x02" * 32
    tx_hash: bytes = b"\x03" * 32
    digest: bytes = b""

    def __post_init__(self) -> None:
        self.digest = sha256(self.block_hash + self.tx_hash + self.payload).digest()


def rows(first_block: int, count: int, size: int = PAYLOAD) -> list[Row]:
    """One envelope a block, random payloads."""
    noise = os.urandom(size + count)
    return [Row(first_block + n << 20, 5, noise[n : n + size], noise[n : n + 32]) for n in range(count)]


@dataclass(slots=True)
class Result:
    """One line of the table. `goal` None: a figure to look at."""

    name: str
    value: float
    unit: str
    goal: float | None = None
    at_least: bool = True
    note: str = ""

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
        self._add(Result(name, value, unit, goal, True, note))

    def most(self, name: str, value: float, unit: str, goal: float | None = None, note: str = "") -> None:
        """A figure that should be at most its goal."""
        self._add(Result(name, value, unit, goal, False, note))

    def _add(self, result: Result) -> None:
        self.results.append(result)
        sign = "" if result.goal is None else f"{'>=' if result.at_least else '<='} {result.goal:g}"
        verdict = {None: "", True: "pass", False: "MISS"}[result.passed]
        print(
            f"{result.name:64} {result.value:12,.2f} {result.unit:8} {sign:>12} {verdict:5} {result.note}", flush=True
        )

    def document(self) -> str:
        """The table as JSON."""
        return json.dumps([
            {"name": one.name, "value": round(one.value, 4), "unit": one.unit, "goal": one.goal, "passed": one.passed, "note": one.note}
            for one in self.results
        ])  # fmt: skip


def timed(work: Callable[[], object]) -> float:
    """Seconds of one call."""
    began = perf_counter()
    work()
    return perf_counter() - began


def repeat(work: Callable[[int], object], times: int) -> list[float]:
    """Milliseconds of each of `times` calls, after one that is not counted."""
    work(-1)
    return [timed(lambda n=n: work(n)) * 1000 for n in range(times)]  # type: ignore[misc]


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of them lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def median(values: Sequence[float]) -> float:
    """The middle value."""
    return statistics.median(values)


def client_cpu(work: Callable[[], object]) -> float:
    """CPU seconds of this process during one call."""
    began = process_time()
    work()
    return process_time() - began


def source(conn: Connection, source_id: int, band_blocks: int = 131_072) -> Any:
    """A chain originator whose lease this run holds; the fence of its listener."""
    from requests_app.store import envelopes
    from requests_app.store.envelopes import Fence

    conn.execute(
        "INSERT INTO exec_lease (resource, instance, epoch, lease_until) VALUES (%s, 'bench', 1, 'infinity') ON CONFLICT DO NOTHING",
        (f"listener:{source_id}",),
    )
    envelopes.add_source(conn, source_id, name=f"bench-{source_id}", chain_id=1, start_block=1, band_blocks=band_blocks)
    return Fence(f"listener:{source_id}", "bench", 1)
