"""One trial of the model: rows, faults, then calm, then the rules R1 to R7 (queue_settle 4.3, 4.4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psycopg

from tests.model.world import World, stepped

STORM_TICKS = 200


@dataclass
class Outcome:
    """What came of one trial."""

    seed: int
    happened: Counter[str]
    problems: list[str] = field(default_factory=list)
    unfinished: int = 0
    twice: int = 0
    reviews: int = 0
    gaps: int = 0
    stale_writes: int = 0  # nonces that a process took whose lease somebody else had by then

    @property
    def good(self) -> bool:
        return not (self.problems or self.unfinished or self.twice or self.reviews or self.gaps)


def run(
    conn: psycopg.Connection[Any],
    seed: int,
    account: int,
    *,
    rows: int = 12,
    idle: list[psycopg.Connection[Any]] | None = None,
    on_tick: Callable[[World], None] | None = None,
) -> Outcome:
    """A storm of STORM_TICKS steps, then as many calm ones as are needed. `idle`: sessions that trials hand on to each other."""
    world = World(conn, seed, rows, idle=[] if idle is None else idle, on_tick=on_tick)
    world.add_rows(account)
    with stepped(world):
        try:
            for _ in range(STORM_TICKS):
                world.step()
            world.settle()
            return judge(world)
        finally:
            world.close()


def judge(world: World) -> Outcome:
    """Compare rows, slots and chain."""
    outcome = Outcome(world.seed, world.happened, list(world.problems))
    executed = world.chain.executed()
    ids = [subject.id for subject in world.subjects]
    outcome.twice = sum(1 for data in world.data if executed[data] > 1)
    never = [subject for data, subject in world.data.items() if executed[data] == 0]
    statuses = Counter(
        row[0] for row in world.conn.execute("SELECT status FROM public_decrypt_req WHERE id = ANY(%s)", (ids,))
    )
    outcome.stale_writes = world.stale_writes
    outcome.reviews = statuses["needs_review"]
    outcome.unfinished = len(never) or world.open_work()
    if statuses["failure"] or statuses["timed_out"]:
        outcome.problems.append(f"negative verdicts: {dict(statuses)}")
    _judge_nonces(world, outcome)
    return outcome


def _judge_nonces(world: World, outcome: Outcome) -> None:
    for key, following, slots, first, last in world.conn.execute(
        "SELECT g.address, g.next_nonce, count(n.nonce), min(n.nonce), max(n.nonce) FROM signer g"
        " LEFT JOIN nonce_slot n ON n.signer_id = g.id WHERE g.address = ANY(%s) GROUP BY g.id",
        (world.addresses(),),
    ):
        if slots and not (first == 0 and last == slots - 1 and following == slots):
            outcome.problems.append(f"R4/R7: slots {first}..{last} ({slots}), next nonce {following}")
        count = world.chain.counts.get(bytes(key), 0)
        if slots and count != following:
            outcome.gaps += 1
    double = world.conn.execute(
        "SELECT count(*) FROM (SELECT subject_id FROM nonce_slot WHERE kind = 2 AND subject_id = ANY(%s) AND state <> 'dead'"
        " GROUP BY 1 HAVING count(*) > 1) d",
        ([subject.id for subject in world.subjects],),
    ).fetchone()
    if double and double[0]:
        outcome.problems.append(f"R1: {double[0]} requests with two slots")
