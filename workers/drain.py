"""The drainer: publishes the keys of due settle jobs to the carrier that QUEUE_URL names (design 5.3.4).

A job is hidden for a moment, its key published, and only then hidden for long. A death before the key is out makes it due again after
GRACE_SECONDS; a key that got lost on its way, after REPUBLISH_SECONDS. A key that is published twice leads to one lease.
"""

from __future__ import annotations

import logging
from time import monotonic
from typing import Final, Protocol

from django.conf import settings

from requests_app.crash_points import crash_point
from requests_app.store import carrier
from requests_app.store.intents import SETTLE
from requests_app.store.turns import Turns
from workers.shift import ShiftContext
from workers.sqs_client import sqs_queue

log = logging.getLogger("relayer.queue")

BATCH: Final = 100
GRACE_SECONDS: Final = 15.0
REPUBLISH_SECONDS: Final = 900.0
PAUSE_SECONDS: Final = 0.1


class Outlet(Protocol):
    """Where keys go."""

    def send(self, bodies: list[str]) -> set[int]:
        """Publish: the places of those that were taken."""


class DrainTurn:
    """Publishing as a turn of the settle cluster. Any number may run: two never have the same job at once."""

    name = "drain"

    def __init__(self, outlet: Outlet | None = None) -> None:
        self._outlet = outlet
        self._turns = Turns(SETTLE)
        self._due_at = 0.0

    def run(self, context: ShiftContext) -> int:
        """Publish what is due, batch by batch, until nothing is or the shift ends; how many keys went out."""
        url = str(settings.QUEUE_URL)
        if (self._outlet is None and not url) or monotonic() < self._due_at:
            return 0
        outlet = sqs_queue(url) if self._outlet is None else self._outlet
        published = 0
        while not context.stopping():
            due, sent = self._publish(context, outlet)
            published += sent
            if due < BATCH or sent < due:
                break
        if not published:
            self._due_at = monotonic() + PAUSE_SECONDS
        return published

    def close(self) -> None:
        """Nothing is kept between runs."""

    def _publish(self, context: ShiftContext, outlet: Outlet) -> tuple[int, int]:
        crash_point("before_claim_due_commit")
        due = carrier.claim_due(context.conn, self._turns, BATCH, GRACE_SECONDS)
        crash_point("after_claim_due_commit")
        if not due:
            return 0, 0
        crash_point("before_publish_keys_rpc")
        taken = outlet.send([one.job_key for one in due])
        crash_point("after_publish_keys_rpc")
        published = [one for place, one in enumerate(due) if place in taken]
        crash_point("before_keep_published_commit")
        carrier.keep_published(context.conn, published, REPUBLISH_SECONDS)
        crash_point("after_keep_published_commit")
        log.info("keys published", extra={"action": "keys_published", "of": len(due), "taken": len(published)})
        return len(due), len(published)
