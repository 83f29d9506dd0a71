"""The state of the whole system in one value, read at most every two seconds a process.

The first page, /metrics and relayer_status read it from here, so ten open browsers and two scrapers cost the database
what one does. Ended rows are not counted but read from the figures that a sweep duty keeps (design 5.6.4), and so is what
waits, where it is many rows.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Generic, TypeVar

from requests_app.states import REQUEST_KINDS, IntentState, Kind, Status
from requests_app.store import ledger
from requests_app.store import overview as store
from requests_app.store.figures import EndedRows, ended_ever
from requests_app.store.session import web_connection

FRESH_SECONDS = 2.0

T = TypeVar("T")


class Cached(Generic[T]):
    """A value that is made anew when it is older than `seconds`; one thread makes it, the others wait for that one.

    A failure is not kept: the next caller tries again and sees its own error.
    """

    def __init__(self, make: Callable[[], T], seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._make = make
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._made: tuple[float, T] | None = None

    def get(self) -> T:
        """The value, at most `seconds` old."""
        with self._lock:
            if self._made is None or self._clock() - self._made[0] >= self._seconds:
                value = self._make()
                # Stamped when it is ready: those who waited for a slow making take it and do not make it again.
                self._made = (self._clock(), value)
            return self._made[1]

    def clear(self) -> None:
        """Forget the value (tests, and after a write whose effect must show at once)."""
        with self._lock:
            self._made = None


@dataclass(frozen=True, slots=True)
class Overview:
    """One consistent enough picture: each part is one statement, all within a few milliseconds."""

    live: list[store.LiveRequests]
    final: list[EndedRows]
    queues: list[store.QueueDepth]
    leases: list[store.Lease]
    listeners: list[store.Listener]
    beats: list[store.Beat]
    signers: list[store.Signer]
    attempts: list[store.OpenAttempts]
    reviews: list[store.OpenReviews]
    commands: list[store.WaitingCommands]
    dead: list[store.DeadEnvelopes]
    payments: list[store.LivePayments]
    ended_payments: list[EndedRows]
    reconciled: list[store.Reconciled]
    letters: store.ParkedLetters
    books: ledger.Figures
    taken_at: datetime

    def counts(self) -> dict[Kind, dict[Status, int]]:
        """Rows by kind and state; states without rows are 0. Ended ones: since the figures began, some 20 s late."""
        table = {kind: dict.fromkeys(Status, 0) for kind in REQUEST_KINDS}
        rows: list[store.LiveRequests | EndedRows] = [*self.live, *self.final]
        for row in rows:
            table[Kind(row.kind)][Status(row.status)] = row.rows
        return table

    def oldest(self) -> dict[Kind, dict[Status, float]]:
        """Seconds the oldest waiting row has been in its state, by kind and state."""
        table: dict[Kind, dict[Status, float]] = {kind: {} for kind in REQUEST_KINDS}
        for row in self.live:
            table[Kind(row.kind)][Status(row.status)] = row.oldest_seconds
        return table

    def payment_counts(self) -> dict[IntentState, int]:
        """Payments by state, as `counts`."""
        table = dict.fromkeys(IntentState, 0)
        for row in self.payments:
            table[IntentState(row.state)] = row.rows
        for ended in self.ended_payments:
            table[IntentState(ended.status)] = ended.rows
        return table

    def open_review_count(self) -> int:
        """Cases that wait for a person."""
        return sum(row.rows for row in self.reviews)


def _read() -> Overview:
    conn = web_connection()
    ended = ended_ever(conn)
    return Overview(
        live=store.live_requests(conn),
        final=[row for row in ended if row.kind in REQUEST_KINDS],
        queues=store.queue_depths(conn),
        leases=store.leases(conn),
        listeners=store.listeners(conn),
        beats=store.beats(conn),
        signers=store.signers(conn),
        attempts=store.open_attempts(conn),
        reviews=store.open_reviews(conn),
        commands=store.waiting_commands(conn),
        dead=store.dead_envelopes(conn),
        payments=store.live_payments(conn),
        ended_payments=[row for row in ended if row.kind == Kind.PAYMENT],
        reconciled=store.reconciled(conn),
        letters=store.parked_letters(conn),
        books=ledger.figures(conn),
        taken_at=datetime.now(UTC),
    )


_overview = Cached(_read, FRESH_SECONDS)


def overview() -> Overview:
    """The present picture, at most two seconds old."""
    return _overview.get()


def forget() -> None:
    """Drop everything cached, so that the next reader asks the database."""
    _overview.clear()
