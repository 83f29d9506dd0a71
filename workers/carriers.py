"""How a worker gets deliveries of a queue: from the table itself, or by another carrier that brings the keys (design 5.3.4).

`queue_job` is the truth either way: attempts, visibility, receipts and their verdicts are those of its rows. A message of the carrier only
says that a job may be leased now. One too many finds nothing to lease, a lost one is sent again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from time import monotonic
from typing import Any, Final, Protocol

from django.conf import settings
from psycopg import Connection

from requests_app.crash_points import crash_point
from requests_app.store import carrier as store
from requests_app.store import queue
from requests_app.store.queue import Delivery, Receipt, Verdict
from requests_app.store.turns import Turns
from workers.sqs_client import Message, QueueUnavailable, SqsQueue, queue_address, sqs_queue

log = logging.getLogger("relayer.queue")

AGAIN_SECONDS: Final = 1.0  # until a message whose job was locked for a moment comes again
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 1.0
AWAY_PAUSE: Final = 5.0


class Carrier(Protocol):
    """Brings deliveries of one queue. Verdicts and receipts are those of `store.queue`."""

    def lease(self, conn: Connection[Any], limit: int, owner: str, seconds: float) -> list[Delivery]:
        """At most `limit` deliveries, hidden from others for `seconds`."""

    def extend(self, conn: Connection[Any], receipts: Sequence[Receipt], seconds: float) -> list[Verdict]:
        """Keep the jobs hidden for `seconds` from now."""

    def let_go(self, receipts: Iterable[Receipt]) -> None:
        """The deliveries have ended in the table, however: acknowledged, put off, parked."""


class TableCarrier:
    """The table carries its own jobs."""

    def __init__(self, queue_name: str, turns: Turns | None = None) -> None:
        self._queue = queue_name
        self._turns = turns

    def lease(self, conn: Connection[Any], limit: int, owner: str, seconds: float) -> list[Delivery]:
        """By priority, then in turn by tenant, each tenant's oldest first."""
        crash_point("before_lease_payments_commit")
        deliveries = queue.lease_jobs(conn, self._queue, limit, owner, seconds, turns=self._turns)
        crash_point("after_lease_payments_commit")
        return deliveries

    def extend(self, conn: Connection[Any], receipts: Sequence[Receipt], seconds: float) -> list[Verdict]:
        """Keep the jobs hidden for `seconds` from now."""
        crash_point("before_extend_payments_commit")
        verdicts = queue.extend_jobs(conn, receipts, seconds)
        crash_point("after_extend_payments_commit")
        return verdicts

    def let_go(self, receipts: Iterable[Receipt]) -> None:
        """Nothing beside the table knows of them."""


class SqsCarrier:
    """Amazon SQS carries the keys (`workers.drain` publishes them); the jobs are leased in the table, by key.

    The receipt handle of a message belongs to the receipt of the lease that it led to. A message is deleted when its delivery has ended,
    however it ended: a job that comes again is published again. So SQS's own redelivery is only needed for a consumer that died.
    """

    def __init__(self, queue_name: str, sqs: Callable[[], SqsQueue]) -> None:
        self._queue = queue_name
        self._sqs = sqs  # opened when it is used: while SQS is away, whoever leases has other work to do
        self._table = TableCarrier(queue_name)
        self._handles: dict[Receipt, list[str]] = {}
        self._pause = FIRST_PAUSE
        self._due_at = 0.0

    def lease(self, conn: Connection[Any], limit: int, owner: str, seconds: float) -> list[Delivery]:
        """Receive keys and lease their jobs; nothing while SQS is away. After that or an empty answer it is not asked for a moment."""
        if limit <= 0 or monotonic() < self._due_at:
            return []
        messages = self._receive(limit, seconds)
        if not messages:
            return []
        handles: dict[str, list[str]] = {}
        for message in messages:
            handles.setdefault(message.body, []).append(message.handle)
        crash_point("before_lease_keys_commit")
        leased = store.lease_keys(conn, self._queue, list(handles), owner, seconds)
        crash_point("after_lease_keys_commit")
        self._handles |= {one.receipt: handles[key] for key, one in leased.items()}
        self._turn_away(conn, {key: found for key, found in handles.items() if key not in leased})
        return list(leased.values())

    def extend(self, conn: Connection[Any], receipts: Sequence[Receipt], seconds: float) -> list[Verdict]:
        """In the table, and for those that are still ours with SQS."""
        verdicts = self._table.extend(conn, receipts, seconds)
        kept = [one for one, verdict in zip(receipts, verdicts, strict=True) if verdict is Verdict.OK]
        with _harmless():
            crash_point("before_hide_keys_rpc")
            self._sqs().hide([handle for one in kept for handle in self._handles.get(one, ())], seconds)
            crash_point("after_hide_keys_rpc")
        return verdicts

    def let_go(self, receipts: Iterable[Receipt]) -> None:
        """Delete the messages. A death between the table and this leaves messages that lead to nothing."""
        handles = [handle for one in receipts for handle in self._handles.pop(one, ())]
        if handles:
            with _harmless():
                crash_point("before_delete_keys_rpc")
                self._sqs().delete(handles)
                crash_point("after_delete_keys_rpc")

    def _receive(self, limit: int, seconds: float) -> list[Message]:
        found: list[Message] = []
        pause = AWAY_PAUSE
        with _harmless():
            crash_point("before_receive_keys_rpc")
            found = self._sqs().receive(limit, seconds)
            crash_point("after_receive_keys_rpc")
            pause = self._pause = FIRST_PAUSE if found else min(LONGEST_PAUSE, 2 * self._pause)
        self._due_at = 0.0 if found else monotonic() + pause
        return found

    def _turn_away(self, conn: Connection[Any], unleased: dict[str, list[str]]) -> None:
        """Messages that led to no lease leave, unless their job can be leased in a moment."""
        waiting = store.waiting_keys(conn, self._queue, list(unleased))
        again = [handle for key in waiting for handle in unleased[key]]
        over = [handle for key, found in unleased.items() if key not in waiting for handle in found]
        with _harmless():
            crash_point("before_turn_away_keys_rpc")
            self._sqs().hide(again, AGAIN_SECONDS)
            self._sqs().delete(over)
            crash_point("after_turn_away_keys_rpc")


def carrier_of(queue_name: str, turns: Turns | None = None) -> Carrier:
    """What carries a queue in this deployment: SQS when QUEUE_URL names it, the table otherwise, where `turns` knows whose turn it is.

    Raises ConfigurationError for a QUEUE_URL that is none.
    """
    url = str(settings.QUEUE_URL)
    if not url:
        return TableCarrier(queue_name, turns or Turns(queue_name))
    queue_address(url)
    return SqsCarrier(queue_name, partial(sqs_queue, url))


@contextmanager
def _harmless() -> Iterator[None]:
    """What SQS does not do while it is away costs a message too many, or a moment: the table knows better."""
    try:
        yield
    except QueueUnavailable as error:
        log.warning("%s", error, extra={"action": "sqs_away"})
