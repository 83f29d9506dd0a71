"""Taking turns at a cluster's work: what a shift (workers/slots.py) and a plain worker do all the time.

A *turn* is an object with `name`, `run(context) -> int` (items handled, 0 for idle) and `close()`. The loop goes round the turns, again
at once while there is work, after about 50 ms when there is none. A turn that raises is logged and rested; the others go on.
"""

from __future__ import annotations

import logging
import os
import random
import time
import uuid
from collections.abc import Callable, Sequence
from functools import lru_cache
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

import psycopg
from django.conf import settings
from django.utils.module_loading import import_string

from requests_app import backoff
from requests_app.config import config
from requests_app.store.session import connect
from workers.leases import LeaseKeeper

if TYPE_CHECKING:
    from workers.chain import Clients

log = logging.getLogger("relayer.shift")

A_LOT = 100
"""Items of a round after which there may well be more: the next round follows at once."""
_FIRST_REST, _LONGEST_REST = 0.1, 5.0


class Turn(Protocol):
    """One kind of work of a cluster."""

    name: str

    def run(self, context: ShiftContext) -> int:
        """Do a bounded amount of work; how many items it was, 0 when there was nothing to do."""

    def close(self) -> None:
        """Let go of everything the turn keeps between runs."""


class ShiftContext:
    """What a turn works with. `conn` is this loop's own autocommit connection, new again after the database was away."""

    def __init__(self, instance: str, leases: LeaseKeeper, stopping: Callable[[], bool]) -> None:
        self.instance = instance
        self.leases = leases
        self._stopping = stopping
        self._conn: psycopg.Connection[Any] | None = None

    @property
    def conn(self) -> psycopg.Connection[Any]:
        """The raw connection. Raises psycopg.OperationalError when the database cannot be reached."""
        if self._conn is None or self._conn.closed:
            self._conn = connect("worker", name=self.instance)
        return self._conn

    @property
    def clients(self) -> Clients:
        """The chain clients of this process, opened at the first use after the fork."""
        return _clients(os.getpid())

    def stopping(self) -> bool:
        """Whether the turn should come to an end at its next good moment."""
        return self._stopping()

    def mend(self) -> None:
        """After an error: leave no transaction open, and no connection that has failed."""
        if self._conn is None or self._conn.closed:
            return
        if self._conn.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            self._conn.close()

    def close(self) -> None:
        """End the connection."""
        if self._conn is not None:
            self._conn.close()


@lru_cache(maxsize=1)
def _clients(pid: int) -> Clients:
    # By process: a kept socket must not be shared with a fork. Kept from shift to shift.
    from workers.chain import open_clients

    return open_clients(config())


class TurnLoop:
    """Goes round the turns until `over`; `after_round` is called after every round.

    After a round that found nothing it rests for about `poll_seconds`. One that found a little is followed by the next after
    `pace_seconds` at the earliest, counted from its beginning: what comes meanwhile is one batch, at the price of one request.

    `over` is not the context's `stopping`: a turn may be asked to come back for a moment while the loop itself goes on.
    """

    def __init__(
        self,
        context: ShiftContext,
        turns: Sequence[Turn],
        poll_seconds: float,
        *,
        over: Callable[[], bool],
        pace_seconds: float = 0.0,
        after_round: Callable[[], None] = lambda: None,
    ) -> None:
        self._context = context
        self._turns = turns
        self._poll_seconds = poll_seconds
        self._pace_seconds = pace_seconds
        self._over = over
        self._after_round = after_round
        self._failures = dict.fromkeys((turn.name for turn in turns), 0)
        self._resume_at = dict.fromkeys(self._failures, 0.0)
        self._jitter = random.Random(os.getpid() ^ time.time_ns())

    def run(self) -> int:
        """Work until told to stop; how many items were handled."""
        total = 0
        while not self._over():
            began = monotonic()
            handled = sum(self._take(turn) for turn in self._turns if self._may_run(turn))
            self._context.leases.turned()
            self._after_round()
            total += handled
            if not handled and not self._over():
                # Jitter keeps two shifts from polling in step (engine_spike T10).
                time.sleep(self._poll_seconds * self._jitter.uniform(0.8, 1.2))
            elif handled < A_LOT and not self._over():
                time.sleep(max(0.0, began + self._pace_seconds - monotonic()))
        return total

    def close(self) -> None:
        """Close every turn, whatever the others do."""
        for turn in self._turns:
            try:
                turn.close()
            except Exception:
                log.exception("turn not closed", extra={"action": "turn_close", "turn": turn.name})

    def _may_run(self, turn: Turn) -> bool:
        return self._resume_at[turn.name] <= monotonic() and not self._context.stopping()

    def _take(self, turn: Turn) -> int:
        try:
            handled = turn.run(self._context)
        except Exception as error:
            self._rest(turn, error)
            return 0
        self._failures[turn.name] = 0
        return handled

    def _rest(self, turn: Turn, error: Exception) -> None:
        self._failures[turn.name] += 1
        failures = self._failures[turn.name]
        rest = backoff.doubled(failures, _FIRST_REST, _LONGEST_REST) * self._jitter.uniform(0.8, 1.2)
        self._resume_at[turn.name] = monotonic() + rest
        details = {"action": "turn_failed", "turn": turn.name, "failures": failures, "rest_seconds": round(rest, 2)}
        if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            log.warning("turn met an unreachable database: %s", error, extra=details)
        else:
            log.error("turn failed", exc_info=error, extra=details)
        self._context.mend()


def cluster_loop(
    context: ShiftContext,
    cluster: str,
    *,
    over: Callable[[], bool],
    after_round: Callable[[], None] = lambda: None,
) -> TurnLoop:
    """The loop of a cluster, with new turns of it. Only the settle cluster has a pace: sends are what is made in batches."""
    poll, pace = float(settings.SHIFT_POLL_SECONDS), float(settings.SHIFT_PACE_SECONDS)
    settles = cluster == "settle"
    return TurnLoop(
        context,
        make_turns(cluster),
        poll if settles else 5 * poll,
        over=over,
        pace_seconds=pace if settles else 0.0,
        after_round=after_round,
    )


def make_turns(cluster: str) -> list[Turn]:
    """New turn objects of a cluster, as settings.SHIFT_TURNS names them (classes, or functions that return lists)."""
    turns: list[Turn] = []
    for name in settings.SHIFT_TURNS[cluster]:
        made = import_string(name)()
        turns.extend(made if isinstance(made, list | tuple) else [made])
    return turns


def new_instance(place: str) -> str:
    """A holder's name: where it runs, its process id, and what makes it unique in the world."""
    return f"{place}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
