"""Whose turn it is at a queue: fair leasing by tenant and priority (design 5.3.1; reference queue_settle 2.4, 2.6).

A lease takes so many of each tenant's oldest jobs, so that one tenant's hundred thousand do not stand before another's one. Which
tenants have jobs is found by a loose scan of the index; a process remembers them, and for each the smallest id of its last claim:
below that lie the jobs it has leased, jobs that are put off, and index entries that an old snapshot keeps from being pruned, all of
which a claim need not walk over again. Every half second a scan looks for tenants between those that are known. As often, but for
at most a tenth of the time, everything is forgotten and looked at anew: jobs below the remembered ids may have become visible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import ceil, inf
from time import monotonic
from typing import Any, Final, TypeVar

from psycopg import Connection

from requests_app import sql
from requests_app.store.session import fetch_all

SCAN_SECONDS: Final = 0.5
SCAN_SHARE: Final = 0.1  # of the time may go into looking at everything anew
LONGEST_REST_SECONDS: Final = 0.1  # of a queue without work: a stall of the machine must not put it off
LONGEST_MEMORY_SECONDS: Final = 5.0  # of a queue with work: how late a retry may be found when looking takes long
MOST_PAIRS: Final = 2000
MOST_TURNS: Final = 128
NEUTRAL_EVERY: Final = 10  # every so manieth claim looks at no priority, so that no class starves
R = TypeVar("R", bound=tuple[Any, ...])
Pair = tuple[int, int]  # priority, tenant
_BEFORE_ALL: Final[Pair] = (-1, -1)
_BEHIND_ALL: Final[Pair] = (2**15 - 1, 2**63 - 1)
FRESH_SECONDS: Final = 0.02  # how long a look that was made for another queue is as good as one's own
# And when this loop itself has just brought jobs there: those it takes now, what else came soon after.
HELD_SECONDS: Final = 0.1
# What a look around may find beside jobs: publications that wait, commands that may be carried out.
STAGED: Final = "staged"
COMMANDS: Final = "commands"


@dataclass(slots=True)
class Turn:
    """A tenant's jobs of one priority. `low`: no visible job of it has a smaller id, as far as this process knows."""

    priority: int
    tenant: int
    low: int = 0


class Turns:
    """What one process knows of the tenants of one queue. Made new, it asks the queue at the next lease."""

    def __init__(self, queue: str, board: Board | None = None) -> None:
        self.queue = queue
        self._board = board
        self._turns: list[Turn] = []
        self._after = _BEFORE_ALL
        self._first = 0
        self._claims = 0
        self._asked: list[Turn] = []  # of the last claim
        self._limit = 0
        self._scan_at = self._forget_at = self._soonest = 0.0
        self._cost = 0.0  # seconds that looking anew has taken: the scan, and the first claim after it
        self._anew = False  # the next claim is that one

    def known(self, conn: Connection[Any], last: int) -> list[Turn]:
        """The turns with priority up to `last`, found anew when that is due, or when there is none."""
        turns = self._up_to(last)
        now = monotonic()
        if now >= self._forget_at or (not turns and now >= self._soonest):
            self._look_anew(conn)
            turns = self._up_to(last)
        elif now >= self._scan_at:
            self._look_between(conn)
            turns = self._up_to(last)
        return turns

    def take(
        self,
        conn: Connection[Any],
        limit: int,
        last: int,
        deferred: int,
        fetch: Callable[[str, dict[str, Any]], list[R]],
    ) -> list[R]:
        """What `fetch` gets for the next claim of priorities up to `last`: called with the statement's part and its parameters.

        Its rows begin with priority, tenant and id, in the order of priority and id.
        """
        known = self.known(conn, last) if limit > 0 else []
        if not known:
            return []
        started = monotonic()
        rows = fetch(*self.claim(known, limit, deferred))
        self.claimed(rows, monotonic() - started)
        return rows

    def claim(self, turns: list[Turn], limit: int, deferred: int) -> tuple[str, dict[str, Any]]:
        """What the next claim takes of these turns: the text of that part of the statement, and its parameters.

        Each gets its share of `limit` twice over, because others may have none. Priorities from `deferred` on always come last.
        """
        self._claims += 1
        self._limit = limit
        neutral = self._claims % NEUTRAL_EVERY == 0
        self._first += MOST_TURNS
        start = self._first % len(turns) if len(turns) > MOST_TURNS else 0
        self._asked = chosen = (turns[start:] + turns[:start])[:MOST_TURNS]
        if len(chosen) == 1:
            (one,) = chosen
            parameters = {"priority": one.priority, "tenant": one.tenant, "low": one.low}
            return sql.statement("queue", "claim_alone"), {"queue": self.queue, "limit": limit, **parameters}
        ranks = [0 if neutral and turn.priority < deferred else turn.priority for turn in chosen]
        sizes = {rank: ranks.count(rank) for rank in set(ranks)}
        return sql.statement("queue", "claim"), {
            "queue": self.queue,
            "limit": limit,
            "priority": [turn.priority for turn in chosen],
            "tenant": [turn.tenant for turn in chosen],
            "low": [turn.low for turn in chosen],
            "take": [limit if sizes[rank] == 1 else ceil(2 * limit / sizes[rank]) for rank in ranks],
            "rank": ranks,
        }

    def claimed(self, found: Sequence[tuple[Any, ...]], seconds: float) -> None:
        """Learn from the last claim, which took `seconds`: where each tenant's jobs begin now, and who has none at the moment.

        `found`: what it got, by priority and id; each begins with its priority, tenant and id.
        """
        now = monotonic()
        self._soonest = max(self._soonest, now + min(LONGEST_REST_SECONDS, _rest(seconds)))
        if self._anew:
            self._cost, self._anew = self._cost + seconds, False
            self._forget_at = now + max(SCAN_SECONDS, min(LONGEST_MEMORY_SECONDS, _rest(self._cost)))
        firsts = found[:1] if len(self._asked) == 1 else reversed(found)
        lowest: dict[tuple[int, int], int] = {one[:2]: one[2] for one in firsts}
        idle: set[tuple[int, int]] = set()
        if len(found) < self._limit:  # somebody may have work that this claim did not see
            self._forget_at = min(self._forget_at, max(self._soonest, now + _rest(self._cost)))
            idle = {(turn.priority, turn.tenant) for turn in self._asked} - lowest.keys()
        self._turns = [turn for turn in self._turns if (turn.priority, turn.tenant) not in idle]
        for turn in self._turns:
            turn.low = lowest.get((turn.priority, turn.tenant), turn.low)

    def _up_to(self, last: int) -> list[Turn]:
        return [turn for turn in self._turns if turn.priority <= last]

    def _look_anew(self, conn: Connection[Any]) -> None:
        """Forget everything, and find who has jobs, from where the last look had to stop."""
        started = monotonic()
        if self._board is not None and self._after == _BEFORE_ALL:
            found = self._board.look(conn, self.queue)[:MOST_PAIRS]
        else:
            found = self._find(conn, [self._after], [_BEHIND_ALL])
        self._after = found[-1] if len(found) == MOST_PAIRS else _BEFORE_ALL
        self._turns = [Turn(*pair) for pair in found]
        now = monotonic()
        self._cost, self._anew = now - started, True
        self._soonest = now + min(LONGEST_REST_SECONDS, _rest(self._cost))
        self._scan_at = now + SCAN_SECONDS
        self._forget_at = max(self._soonest, self._scan_at)

    def _look_between(self, conn: Connection[Any]) -> None:
        """Find who has come to have jobs, without a look at those that are known."""
        pairs = sorted((turn.priority, turn.tenant) for turn in self._turns)
        if len(pairs) < MOST_PAIRS:
            self._turns += [Turn(*pair) for pair in self._find(conn, [_BEFORE_ALL, *pairs], [*pairs, _BEHIND_ALL])]
        self._scan_at = monotonic() + SCAN_SECONDS

    def _find(self, conn: Connection[Any], above: list[Pair], below: list[Pair]) -> list[Pair]:
        """The pairs of priority and tenant with jobs, between one of `above` and the one of `below` at its place."""
        return [pair for _, pair in _find_pairs(conn, [self.queue] * len(above), above, below)]


class Board:
    """The queues that a loop asks one after the other, looked at together: where there is nothing to do one statement says so of all.

    `around`: each look finds out, too, whether there are publications or commands (STAGED, COMMANDS).
    """

    def __init__(self, *queues: str, around: bool = False) -> None:
        self._turns = {queue: Turns(queue, self) for queue in queues}
        self._around = around
        self._seen: dict[str, list[Pair]] = {}
        self._seen_at = 0.0
        self._beside: frozenset[str] = frozenset()
        self._looked_at = -inf

    def turns(self, queue: str) -> Turns:
        """What is known of one of the queues."""
        return self._turns[queue]

    def look(self, conn: Connection[Any], queue: str) -> list[Pair]:
        """Who has jobs in this queue now. What the others have is remembered for a moment, for the one who asks next."""
        if queue not in self._seen or monotonic() - self._seen_at > FRESH_SECONDS:
            self._look(conn)
        return self._seen.pop(queue)

    def found_none(self, what: str, within: float) -> bool:
        """Whether a look of the last `within` seconds found none of it (STAGED, COMMANDS). False: there may be some, ask."""
        return monotonic() - self._looked_at <= within and what not in self._beside

    def note(self, queue: str, pairs: Iterable[Pair]) -> None:
        """Jobs of these pairs have just come to a queue by this loop: with them its last look still holds, and need not be repeated."""
        if queue in self._seen and monotonic() - self._seen_at <= HELD_SECONDS:
            self._seen[queue] = sorted({*self._seen[queue], *pairs})
            self._seen_at = monotonic()

    def _look(self, conn: Connection[Any]) -> None:
        names, began = list(self._turns), monotonic()
        first, last = [_BEFORE_ALL] * len(names), [_BEHIND_ALL] * len(names)
        found = _find_pairs(conn, names, first, last, around=self._around)
        self._seen = {name: [pair for queue, pair in found if queue == name] for name in names}
        self._seen_at = monotonic()
        if self._around:
            self._beside = frozenset(queue for queue, _ in found) - self._turns.keys()
            self._looked_at = began


def _find_pairs(
    conn: Connection[Any], queues: list[str], above: list[Pair], below: list[Pair], *, around: bool = False
) -> list[tuple[str, Pair]]:
    """Queue, and pair of priority and tenant with jobs in it; of each queue in their order. `around`: STAGED and COMMANDS among them."""
    parameters = {
        "queue": queues,
        "priority": [pair[0] for pair in above],
        "tenant": [pair[1] for pair in above],
        "end_priority": [pair[0] for pair in below],
        "end_tenant": [pair[1] for pair in below],
        "most": MOST_PAIRS * len(set(queues)),
    }
    if around:
        rows = fetch_all(conn, "queue", "look_around", parameters, find_turns=sql.statement("queue", "find_turns"))
    else:
        rows = fetch_all(conn, "queue", "find_turns", parameters)
    return [(row.queue, (row.priority, row.tenant_id)) for row in rows]


def _rest(seconds: float) -> float:
    """How long after a look that took `seconds` the next one may come."""
    return seconds * (1 / SCAN_SHARE - 1)
