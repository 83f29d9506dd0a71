"""Long-poll: many web threads wait for their rows, one thread a process asks the database for all of them.

A waiting thread holds no database connection. The poller runs one statement each 100 ms while somebody waits, and ends
(and lets its connection go) when nobody has for a while. Places are limited so that waiting can never take all threads
of the server: whoever finds none is answered at once (design 5.1.9).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from django.conf import settings
from django.db import connections

from requests_app.selectors import find_statuses
from requests_app.states import FINAL, Kind, Status
from requests_app.store.payments import active_payments
from requests_app.store.publish import waiting_ids
from requests_app.store.session import web_connection

Subject = tuple[int, int]  # a kind, or PUBLICATION, and an id
StatusSource = Callable[[Sequence[Subject]], dict[Subject, Status | None]]

LONGEST_SECONDS: Final = 25.0
POLL_SECONDS: Final = 0.1
IDLE_SECONDS: Final = 10.0
DEFAULT_PLACES: Final = 24
PUBLICATION: Final = 0
"""In the place of a kind: a staged publication, which is over when it is published or parked."""

# What has no status of a request: which of the ids still wait.
_ROWS_THAT_WAIT: Final[dict[int, Callable[[Any, Sequence[int]], set[int]]]] = {
    PUBLICATION: waiting_ids,
    Kind.PAYMENT.value: active_payments,
}
_log = logging.getLogger("relayer.api")


def _read_statuses(subjects: Sequence[Subject]) -> dict[Subject, Status | None]:
    conn = web_connection()
    jobs = [(Kind(kind), row_id) for kind, row_id in subjects if kind not in _ROWS_THAT_WAIT]
    found: dict[Subject, Status | None] = dict(find_statuses(conn, jobs).items()) if jobs else {}
    for kind, still_waiting in _ROWS_THAT_WAIT.items():
        ids = [row_id for other, row_id in subjects if other == kind]
        waiting = still_waiting(conn, ids) if ids else set()
        found |= {(kind, row_id): Status.QUEUED if row_id in waiting else None for row_id in ids}
    return found


class StatusWatch:
    """Wakes waiting threads when their rows reach a final state (or disappear)."""

    def __init__(
        self,
        places: int = DEFAULT_PLACES,
        poll_seconds: float = POLL_SECONDS,
        idle_seconds: float = IDLE_SECONDS,
        source: StatusSource = _read_statuses,
    ) -> None:
        self._places = threading.BoundedSemaphore(places)
        self._poll_seconds = poll_seconds
        self._idle_seconds = idle_seconds
        self._source = source
        self._waiting: dict[Subject, list[threading.Event]] = {}
        self._changed = threading.Condition()
        self._poller: threading.Thread | None = None

    def wait(self, subject: Subject, seconds: float) -> bool:
        """Block until the row is final or `seconds` are over. False at once when every place is taken."""
        if not self._places.acquire(blocking=False):
            return False
        try:
            let_connection_go()
            event = threading.Event()
            self._join(subject, event)
            try:
                return event.wait(min(seconds, LONGEST_SECONDS))
            finally:
                self._leave(subject, event)
        finally:
            self._places.release()

    def waiting(self) -> int:
        """How many threads wait now."""
        with self._changed:
            return sum(len(events) for events in self._waiting.values())

    def _join(self, subject: Subject, event: threading.Event) -> None:
        with self._changed:
            self._waiting.setdefault(subject, []).append(event)
            if self._poller is None or not self._poller.is_alive():
                self._poller = threading.Thread(target=self._run, name="relayer-long-poll", daemon=True)
                self._poller.start()
            self._changed.notify()

    def _leave(self, subject: Subject, event: threading.Event) -> None:
        with self._changed:
            events = self._waiting[subject]
            events.remove(event)
            if not events:
                del self._waiting[subject]

    def _run(self) -> None:
        try:
            while subjects := self._next_subjects():
                started = time.monotonic()
                self._poll(subjects)
                time.sleep(max(0.0, self._poll_seconds - (time.monotonic() - started)))
        finally:
            connections["default"].close()

    def _next_subjects(self) -> list[Subject]:
        """Everything waited for; empty when the poller has been idle long enough to end."""
        with self._changed:
            if not self._waiting and not self._changed.wait_for(lambda: bool(self._waiting), self._idle_seconds):
                self._poller = None
                return []
            return list(self._waiting)

    def _poll(self, subjects: Sequence[Subject]) -> None:
        try:
            statuses = self._source(subjects)
        except Exception:
            # The waiters are answered with the state they saw when their time is over; the next turn reconnects.
            _log.warning("long-poll read failed", exc_info=True, extra={"action": "long_poll_failed"})
            connections["default"].close()
            return
        with self._changed:
            for subject, status in statuses.items():
                if status is None or status in FINAL:
                    for event in self._waiting.get(subject, ()):
                        event.set()


def let_connection_go() -> None:
    """Give this thread's database connection back, to the pool where there is one."""
    connection = connections["default"]
    if not connection.in_atomic_block:
        connection.close()


watch: Final = StatusWatch(places=int(settings.LONG_POLL_PLACES))
