"""Payments whose authorization ends while they are pending (reference queue_settle 4.6).

After its valid_before the token refuses the call for ever, but its bytes may stay in a pool and hold up every nonce behind them. So
shortly before it the call gets no further offer: its nonce is spent on nothing. Whichever is mined decides; when that is the no-op, and
final, the settle worker sees that nothing can move the money any more, and the payment fails with its hold voided.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from requests_app.models.signing import AttemptKind
from requests_app.store import settling as store
from workers import replace
from workers.chain.fees import Fees, bumped
from workers.lane import Lane

if TYPE_CHECKING:
    from workers.shift import ShiftContext

MARGIN_SECONDS: Final = 15.0
"""Before the end of its window a payment is not sent for the first time, and a pending one gets its no-op."""
INTERVAL_SECONDS: Final = 2.0
LIMIT: Final = 50


def close(context: ShiftContext, lane: Lane) -> int:
    """Offer no-ops at the nonces of payments whose window is closing; how many were broadcast."""
    now = lane.clock()
    if not lane.has_open or now < lane.windows_at or lane.held.lost:
        return 0
    lane.windows_at = now + INTERVAL_SECONDS
    closing = store.closing_payments(context.conn, lane.id, lane.chain_latest, MARGIN_SECONDS, LIMIT)
    if not closing:
        return 0
    asked = replace.market(context)
    if asked is None:
        return 0
    gas = replace.noop_gas(context, lane)
    made = [
        replace.noop(
            lane, one.nonce, one.seq + 1, bumped(Fees(one.max_fee, one.max_priority), asked), gas, AttemptKind.CANCEL
        )
        for one in closing
    ]
    return replace.send(context, lane, made, [one.subject for one in closing])
