"""Deliveries of webhooks as a turn of the settle cluster: take what is due, post it by threads, record what came of it (at least once).

The turn never waits for a receiver: each post has a thread of its own, a bounded number at once and of one webhook, and what has finished
is recorded at the next turn, all in one statement. Whoever dies between a post and its record leaves a delivery that is due again when
its lease is over: the receiver gets it twice, with the same id.
"""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic
from typing import Final

from django.conf import settings

from requests_app.crash_points import crash_point
from requests_app.store import webhooks as store
from requests_app.store.webhooks import Due
from requests_app.transitions import deliveries
from requests_app.transitions.deliveries import Attempt
from requests_app.webhook_messages import message_body, message_headers, message_id
from requests_app.webhook_targets import TargetRefused, TargetUnknown, judged_addresses, parse_target
from workers.shift import ShiftContext
from workers.webhook_posting import PostFailed, post

log = logging.getLogger("relayer.webhooks")

LEASE_SECONDS: Final = 60.0
"""Longer than a post takes, with a resolver that is slow."""
LONGEST_END_SECONDS: Final = 5.0
"""Of a shift's end, for posts that are under way: its successor waits for the slot."""
SHARE: Final = 4
"""Of the threads, one webhook gets so manieth part."""


class WebhookTurn:
    """Any number may run: a delivery is taken by one of them at a time."""

    name = "webhooks"

    def __init__(self) -> None:
        self._done: SimpleQueue[Attempt] = SimpleQueue()
        self._in_hand: dict[int, Due] = {}
        self._unrecorded: list[Attempt] = []  # outlasts a database that is away
        self._context: ShiftContext | None = None
        self._due_at = 0.0

    def run(self, context: ShiftContext) -> int:
        """Record what has finished, take what is due while there are threads; how many were recorded or taken."""
        self._context = context
        self._collect()
        return self._record(context) + self._take(context)

    def close(self) -> None:
        """Wait for what is under way, about as long as a post may take, and record it. What is later comes again after its lease."""
        until = monotonic() + min(float(settings.WEBHOOK_TIMEOUT_SECONDS), LONGEST_END_SECONDS)
        self._collect()
        while len(self._unrecorded) < len(self._in_hand) and (left := until - monotonic()) > 0:
            with suppress(Empty):
                self._unrecorded.append(self._done.get(timeout=left))
        if self._context is not None:
            self._record(self._context)

    def _collect(self) -> None:
        while not self._done.empty():
            self._unrecorded.append(self._done.get())

    def _record(self, context: ShiftContext) -> int:
        finished = self._unrecorded
        if not finished:
            return 0
        crash_point("before_record_webhooks_commit")
        verbs = deliveries.record(context.conn, finished)
        crash_point("after_record_webhooks_commit")
        self._unrecorded = []
        for one in finished:
            self._in_hand.pop(one.due.id, None)
        counts = {verb.value: number for verb, number in verbs.items()}
        log.info("webhooks attempted", extra={"action": "webhooks_attempted", **counts})
        return len(finished)

    def _take(self, context: ShiftContext) -> int:
        threads = int(settings.WEBHOOK_THREADS)
        room = threads - len(self._in_hand)
        if room <= 0 or monotonic() < self._due_at:
            return 0
        held = Counter(due.webhook_id for due in self._in_hand.values())
        each = max(1, threads // SHARE)
        crash_point("before_claim_webhooks_commit")
        taken = store.claim(context.conn, context.instance, held, limit=room, each=each, lease_seconds=LEASE_SECONDS)
        crash_point("after_claim_webhooks_commit")
        if not taken:
            self._due_at = monotonic() + float(settings.WEBHOOK_POLL_SECONDS)
        for due in taken:
            self._in_hand[due.id] = due
            Thread(target=self._deliver, args=(due,), name="webhook", daemon=True).start()
        return len(taken)

    def _deliver(self, due: Due) -> None:
        """In a thread, without a database: whatever happens, there is an attempt to record."""
        try:
            self._done.put(attempt(due))
        except Exception:
            log.exception("webhook not attempted", extra={"action": "webhook_error", "delivery": due.id})
            self._done.put(Attempt(due, None, "internal error"))


def attempt(due: Due) -> Attempt:
    """Judge the receiver's address anew, and post to what was judged."""
    try:
        target = parse_target(due.url)
        addresses = judged_addresses(target)
    except (TargetRefused, TargetUnknown) as error:
        return Attempt(due, None, f"the URL: {error}")
    name = message_id(due.public_id)
    body = message_body(due.event, due.kind, due.subject, due.occurred_at)
    headers = message_headers(name, due.sent_at, body, due.secrets)
    crash_point("before_webhook_post")
    try:
        status = post(target, addresses, body, headers, float(settings.WEBHOOK_TIMEOUT_SECONDS))
    except PostFailed as error:
        return Attempt(due, None, str(error))
    crash_point("after_webhook_post")
    return Attempt(due, status)
