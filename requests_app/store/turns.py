"""Whose turn it is at a queue: fair leasing by tenant and priority (design 5.3.1; reference queue_settle 2.4, 2.6).

A lease takes so many of each tenant's oldest jobs, so that one tenant's hundred thousand do not stand before another's one. Which
tenants have jobs is found by a loose scan of the index every half second while there is work; between two scans a process
remembers them, and for each the smallest id of its last claim: below that lie the jobs it has leased, jobs that are put off, and
index entries that an old snapshot keeps from being pruned, all of which a claim need not walk over again.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from time import monotonic
from typing import Any, Final

from psycopg import Connection

from requests_app.store.session import fetch_all

SCAN_SECONDS: Final = 0.5
SCAN_SHARE: Final = 0.1  # of the time may go into scans
LONGEST_REST_SECONDS: Final = 0.1  # after a slow one: a stall of the machine must not put off the queue
MOST_PAIRS: Final = 2000
MOST_TURNS: Final = 128
NEUTRAL_EVERY: Final = 10  # every so manieth claim looks at no priority, so that no class starves
_BEFORE_ALL: Final = (-1, -1)


@dataclass(slots=True)
class Turn:
    """A tenant's jobs of one priority. `low`: no visible job of it has a smaller id, as far as this process knows."""

    priority: int
    tenant: int
    low: int = 0


class Turns:
    """What one process knows of the tenants of one queue. Made new, it asks the queue at the next lease."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self._turns: list[Turn] = []
        self._after = _BEFORE_ALL
        self._first = 0
        self._claims = 0
        self._due_at = self._soonest = 0.0

    def known(self, conn: Connection[Any], last: int) -> list[Turn]:
        """The turns with priority up to `last`, found anew when that is due, or when there is none."""
        turns = self._up_to(last)
        now = monotonic()
        if now >= self._due_at or (not turns and now >= self._soonest):
            self._scan(conn)
            turns = self._up_to(last)
        return turns

    def parameters(self, turns: list[Turn], limit: int, deferred: int) -> dict[str, Any]:
        """What the claim takes of these turns: each gets its share of `limit` twice over, because others may have none.

        Priorities from `deferred` on always come last.
        """
        self._claims += 1
        neutral = self._claims % NEUTRAL_EVERY == 0
        self._first += MOST_TURNS
        start = self._first % len(turns) if len(turns) > MOST_TURNS else 0
        chosen = (turns[start:] + turns[:start])[:MOST_TURNS]
        ranks = [0 if neutral and turn.priority < deferred else turn.priority for turn in chosen]
        sizes = {rank: ranks.count(rank) for rank in set(ranks)}
        return {
            "queue": self.queue,
            "limit": limit,
            "priority": [turn.priority for turn in chosen],
            "tenant": [turn.tenant for turn in chosen],
            "low": [turn.low for turn in chosen],
            "take": [limit if sizes[rank] == 1 else ceil(2 * limit / sizes[rank]) for rank in ranks],
            "rank": ranks,
        }

    def claimed(self, asked: dict[str, Any], rows: list[Any], seconds: float) -> None:
        """Learn from a claim that took `seconds`: where each tenant's jobs begin now, and who has none at the moment."""
        self._soonest = max(self._soonest, monotonic() + _rest(seconds))
        full = len(rows) == asked["limit"]
        if not full:
            self._due_at = self._soonest  # somebody may have work that this claim did not see
        lowest: dict[tuple[int, int], int] = {}
        for row in rows:
            pair = (row.priority, row.tenant_id)
            lowest[pair] = min(row.id, lowest.get(pair, row.id))
        idle = set() if full else set(zip(asked["priority"], asked["tenant"], strict=True)) - lowest.keys()
        self._turns = [turn for turn in self._turns if (turn.priority, turn.tenant) not in idle]
        for turn in self._turns:
            turn.low = lowest.get((turn.priority, turn.tenant), turn.low)

    def _up_to(self, last: int) -> list[Turn]:
        return [turn for turn in self._turns if turn.priority <= last]

    def _scan(self, conn: Connection[Any]) -> None:
        started = monotonic()
        parameters = {"queue": self.queue, "priority": self._after[0], "tenant": self._after[1], "most": MOST_PAIRS}
        rows = fetch_all(conn, "queue", "find_turns", parameters)
        self._turns = [Turn(row.priority, row.tenant_id) for row in rows]
        self._after = (rows[-1].priority, rows[-1].tenant_id) if len(rows) == MOST_PAIRS else _BEFORE_ALL
        self._soonest = monotonic() + _rest(monotonic() - started)
        self._due_at = max(self._soonest, started + SCAN_SECONDS)


def _rest(seconds: float) -> float:
    """How long the queue is not scanned after a look at it that took `seconds`."""
    return min(LONGEST_REST_SECONDS, seconds * (1 / SCAN_SHARE - 1))
