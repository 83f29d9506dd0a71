"""The publisher: staged publications into the envelope log, at the next positions of this deployment's originator (design 5.4.7).

One transaction locks the head, inserts the envelopes with their usage, turns the staged rows into receipts and moves the head:
"inserted but not removed" cannot exist. A publication that can never be published is parked with its reason; a batch with one in it
is halved until that one stands alone. What may work later is left as it is, and the turn loop comes back with growing rests.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from enum import Enum
from time import monotonic
from typing import Any, Final

from django.conf import settings
from psycopg import Connection

from requests_app.crash_points import crash_point
from requests_app.errors import RelayerError
from requests_app.store import publish
from requests_app.store.appending import Item, append
from requests_app.store.envelopes import ensure_band
from requests_app.store.publish import LONGEST_TOPIC, PUBLISHED, Staged
from requests_app.store.session import retry_serialization, transaction
from requests_app.store.sqlstates import is_permanent
from requests_app.store.turns import STAGED, Board
from workers.shift import ShiftContext

log = logging.getLogger("relayer.publisher")

BATCH: Final = 100


class Outcome(Enum):
    """What became of an attempt: in the log, set aside for good, to be tried later, or told to stop before it began."""

    DONE = "done"
    PARKED = "parked"
    RETRY = "retry"
    STOPPED = "stopped"


class NotPublishable(RelayerError):
    """The publication breaks a rule of the log and always will."""


class PublishTurn:
    """Publishing as a turn of the settle cluster. Any number may run: the head's lock lets one assign at a time."""

    name = "publish"

    def __init__(self, originator: int | None = None, *, batch: int = BATCH, board: Board | None = None) -> None:
        self._board = board or Board()
        self._originator = int(settings.PUBLISHER_ORIGINATOR) if originator is None else originator
        self._batch = batch
        self._opened = False
        self._due_at = 0.0

    def run(self, context: ShiftContext) -> int:
        """Publish what is staged, batch by batch, until nothing waits or the shift ends; how many were dealt with."""
        pause = float(settings.PUBLISH_POLL_SECONDS)
        if monotonic() < self._due_at or self._board.found_none(STAGED, pause):
            return 0
        handled = 0
        while not context.stopping():
            self._open(context.conn)
            waiting = publish.next_staged(context.conn, self._batch)
            if not waiting:
                break
            outcomes = self.publish(context, waiting)
            done = sum(one in (Outcome.DONE, Outcome.PARKED) for one in outcomes.values())
            handled += done
            if not done or len(waiting) < self._batch:
                break
        if not handled:
            # No more than a few statements a second while nothing is staged (P3).
            self._due_at = monotonic() + pause
        return handled

    def close(self) -> None:
        """Nothing is kept between runs."""

    def publish(self, context: ShiftContext, rows: Sequence[Staged]) -> dict[int, Outcome]:
        """Publish or park these rows, by staging id. Raises what is not a publication's fault; nothing of it is lost."""
        if context.stopping():
            return {row.id: Outcome.STOPPED for row in rows}
        try:
            return retry_serialization(lambda: self._transaction(context.conn, rows))
        except Exception as error:
            if not is_permanent(error):
                raise
            if len(rows) == 1:
                return self._park(context.conn, {rows[0].id: error})
        middle = len(rows) // 2
        return {**self.publish(context, rows[:middle]), **self.publish(context, rows[middle:])}

    def _open(self, conn: Connection[Any]) -> None:
        if not self._opened:
            crash_point("before_open_publisher_commit")
            publish.open_publisher(conn, self._originator)
            crash_point("after_open_publisher_commit")
            # The first publication should not be the one that makes the band.
            head = publish.head(conn, self._originator)
            crash_point("before_publisher_band_commit")
            ensure_band(conn, self._originator, head + 1)
            crash_point("after_publisher_band_commit")
            self._opened = True

    def _transaction(self, conn: Connection[Any], rows: Sequence[Staged]) -> dict[int, Outcome]:
        with transaction(conn):
            head = publish.lock_head(conn, self._originator)
            if head is None:  # another publisher is at work
                return {row.id: Outcome.RETRY for row in rows}
            still = publish.lock_staged(conn, [row.id for row in rows])
            bad = {row.id: wrong for row in rows if row.id in still and (wrong := _fault(row)) is not None}
            good = [row for row in rows if row.id in still and row.id not in bad]
            publish.park(conn, bad)
            placed = {row.id: head + number for number, row in enumerate(good, 1)}
            if good:
                append(conn, self._originator, [_item(row, placed[row.id]) for row in good])
                crash_point("between_append_and_finish")
                publish.finish(conn, self._originator, head, placed)
            crash_point("before_publish_commit")
        crash_point("after_publish_commit")
        _report(bad)
        gone = {row.id: Outcome.DONE for row in rows if row.id not in still}  # a twin published or parked it
        return {**gone, **dict.fromkeys(placed, Outcome.DONE), **dict.fromkeys(bad, Outcome.PARKED)}

    def _park(self, conn: Connection[Any], errors: Mapping[int, BaseException]) -> dict[int, Outcome]:
        crash_point("before_publish_park_commit")
        publish.park(conn, errors)
        crash_point("after_publish_park_commit")
        _report(errors)
        return dict.fromkeys(errors, Outcome.PARKED)


def _item(row: Staged, position: int) -> Item:
    return Item(
        position,
        PUBLISHED,
        bytes(row.payload),
        ref=bytes(row.topic),
        payer=row.client_id,
        expires_at=row.expires_at,
    )


def _fault(row: Staged) -> NotPublishable | None:
    """Why the log will never take this publication; None when it will."""
    if not 1 <= len(row.topic) <= LONGEST_TOPIC:
        return NotPublishable(f"the topic has {len(row.topic)} bytes; 1 to {LONGEST_TOPIC} are allowed")
    if len(row.payload) > settings.ENVELOPE_MAX_PAYLOAD_BYTES:
        return NotPublishable(f"the payload has {len(row.payload)} bytes")
    if row.expired:
        return NotPublishable("it expired before it was published")
    if not row.active:
        return NotPublishable("its account is not active")
    return None


def _report(errors: Mapping[int, BaseException]) -> None:
    if errors:
        reasons = {str(staged): f"{type(why).__name__}: {why}"[:200] for staged, why in errors.items()}
        log.error("publications parked", extra={"action": "publications_parked", "reasons": reasons})
