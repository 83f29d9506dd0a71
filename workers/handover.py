"""From the readiness turn to the send turn of one loop: requests that are admitted and leased by one statement, and sent in the same round."""

from __future__ import annotations

from collections.abc import Iterable

from requests_app.store.queue import LeasedRequest


class Handover:
    """What readiness has leased for sending. The send turn takes it, or puts it back into the queue."""

    def __init__(self) -> None:
        self.room = 0
        """How many the send turn can take, as it last knew; 0 while it can send nothing."""
        self._given: list[LeasedRequest] = []

    def give(self, deliveries: Iterable[LeasedRequest]) -> None:
        """Leave these to the send turn, which has room for so many less until it says otherwise."""
        before = len(self._given)
        self._given += deliveries
        self.room -= len(self._given) - before

    def take(self, most: int | None = None) -> list[LeasedRequest]:
        """At most so many of what was given, oldest first; `None`: all."""
        taken, self._given = self._given[:most], [] if most is None else self._given[most:]
        return taken
