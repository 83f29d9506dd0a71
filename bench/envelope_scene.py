"""What the envelope benchmarks share: originators, rows of 1 kB, timings."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
    from requests_app.store.signing import Fence

    conn.execute(
        "INSERT INTO exec_lease (resource, instance, epoch, lease_until) VALUES (%s, 'bench', 1, 'infinity') ON CONFLICT DO NOTHING",
        (f"listener:{source_id}",),
    )
    envelopes.add_source(conn, source_id, name=f"bench-{source_id}", chain_id=1, start_block=1, band_blocks=band_blocks)
    return Fence(f"listener:{source_id}", "bench", 1)
