"""Payments come to their end when their block can no longer be taken back (reference queue_settle 4.7; design 2.3).

| confirming, and the log shows | what happens |
|---|---|
| its transaction, exact, in a block that is final and still the chain's | posted and settled, in one transaction |
| its transaction, but another amount or party, final | needs_review |
| nothing, and its receipt has status 0 in a final block | needs_review |
| nothing, no receipt, for LostAfter | settling: the same bytes go out again |

Nothing is judged before its block is final (B47), and "not found" is never a failure (B45).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Final

from django.conf import settings

from requests_app.crash_points import crash_point
from requests_app.finality import Chain, Policy
from requests_app.store import confirming as store
from requests_app.store import envelopes
from requests_app.store import intents as intent_store
from requests_app.store import observations as observation_store
from requests_app.store.confirming import START
from requests_app.store.signing import Fence
from workers.chain.rpc_errors import RpcError, RpcUnavailable
from workers.duties import hidden_payments, shown_payments, stuck_payments
from workers.listener import GATEWAY
from workers.shift import ShiftContext

if TYPE_CHECKING:
    from workers.leases import HeldLease

log = logging.getLogger("relayer.confirm")

INTERVAL: Final = 1.0
WIDE_SECONDS: Final = 5.0
BATCH: Final = 500
ROUNDS: Final = 8


def policy() -> Policy:
    """The configured one. Raises ConfigurationError."""
    return Policy(
        bool(settings.PAYMENT_REQUIRE_FINALIZED),
        int(settings.PAYMENT_CONFIRMATIONS),
        float(settings.PAYMENT_LOST_SECONDS),
    )


class Confirmation:
    """The duty. Made anew with each process; forgets nothing that matters.

    Every turn goes on through the log where it became final since the last one. Every WIDE_SECONDS, and in the first turn, it also looks
    at a stretch of all payments that wait, from where it stopped: those that the log does not show, shows otherwise, or shows to a row
    that was not ready, and those that could not be ended in their turn. However many wait, a turn reads a bounded number of rows.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._wide_at = 0.0
        self._place = START
        self._reached: int | None = None  # the position up to which the log was gone through

    def run(self, context: ShiftContext, lease: HeldLease) -> int:
        """Look once; how many payments came further."""
        if not store.any_active(context.conn):
            return 0
        source = envelopes.read_source(context.conn, GATEWAY)
        if source is None or source.halted is not None:
            return 0
        chain = how_far(context)
        if chain is None:
            return 0
        return self.look(context, Fence(lease.resource, lease.instance, lease.epoch), chain, source.block)

    def look(self, context: ShiftContext, fence: Fence, chain: Chain, sealed: int) -> int:
        """As `run`, with the chain as it is said to be. `sealed`: the last block that the log holds."""
        chain = Chain(chain.head, None if chain.finalized is None else min(chain.finalized, sealed))
        final = min(chain.settled(policy()), sealed)
        ended = self._final(context, fence, chain, envelopes.last_position(final)) if final >= 0 else 0
        if self._clock() < self._wide_at:
            return ended
        self._wide_at = self._clock() + WIDE_SECONDS
        return ended + self._wide(context, fence, chain, final)

    def _final(self, context: ShiftContext, fence: Fence, chain: Chain, upto: int) -> int:
        """End what the log shows at places that became final."""
        if self._reached is None or self._reached > upto:
            self._reached = upto  # what lies before is the wide look's
        ending = shown_payments.Ending(context, fence, chain, policy())
        ended = 0
        for _ in range(ROUNDS):
            if self._reached >= upto or context.stopping():
                break
            ids, self._reached = store.final_page(context.conn, GATEWAY, self._reached, upto, BATCH)
            read = intent_store.read_intents(context.conn, ids)
            ended += ending.end(read, observation_store.of_refs(context.conn, GATEWAY, [one.ref for one in read]))
        return ended

    def _wide(self, context: ShiftContext, fence: Fence, chain: Chain, final: int) -> int:
        """The next stretch of all that wait, at most once around."""
        moved = 0
        for _ in range(ROUNDS):
            ids, self._place = store.active_page(context.conn, self._place, BATCH)
            moved += self._page(context, fence, chain, final, ids)
            if self._place == START or context.stopping():
                break
        return moved

    def _page(self, context: ShiftContext, fence: Fence, chain: Chain, final: int, ids: list[int]) -> int:
        ids = observation_store.on_chain(context.conn, GATEWAY, ids)
        read = intent_store.read_intents(context.conn, ids)
        seen = observation_store.of_refs(context.conn, GATEWAY, [one.ref for one in read])
        moved = shown_payments.follow(context.conn, [one.ref for one in read if shown_payments.unheeded(one, seen)])
        if moved:
            read = intent_store.read_intents(context.conn, ids)
        moved += shown_payments.Ending(context, fence, chain, policy()).end(read, seen)
        hidden = [one for one in read if shown_payments.own(one, seen) is None]
        # Whoever is given to a person here is another version to the next look, which leaves it.
        moved += stuck_payments.look(context, fence, final, hidden)
        return moved + hidden_payments.look(context, fence, chain, policy(), hidden)


def how_far(context: ShiftContext) -> Chain | None:
    """The chain's head and marker; None when the node does not say."""
    gateway = context.clients.gateway
    crash_point("before_confirm_head_rpc")
    try:
        # The marker first: a head that is asked later is never below it.
        finalized = gateway.finalized().number if settings.PAYMENT_REQUIRE_FINALIZED else None
        head = gateway.head().number
    except (RpcError, RpcUnavailable) as error:
        log.warning("finality not read: %s", error, extra={"action": "finality_unavailable"})
        return None
    crash_point("after_confirm_head_rpc")
    return Chain(head, finalized)
