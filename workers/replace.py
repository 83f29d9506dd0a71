"""Higher offers for transactions that the market has left behind: same nonce, same call, more gas money (queue_settle 4.6).

Every offer is a stored attempt of the same slot before it is sent; whichever is mined wins. Only the lowest unmined nonce of a
signer can be stuck, and only when the chain's count has stood still and its market asks more than we offered: a chain that
makes no blocks is not helped by money.
"""

from __future__ import annotations

import logging
from time import monotonic
from typing import TYPE_CHECKING, Final

import rlp

from requests_app.crash_points import crash_point
from requests_app.models.reviews import ReasonCode
from requests_app.models.signing import AttemptState
from requests_app.store import attempts as store
from requests_app.store.attempts import Outgoing, Replaceable, Replacement
from requests_app.transitions import sending
from workers.broadcast import broadcast
from workers.chain.fees import CEILING_WEI, FeeCeilingExceeded, Fees, bumped
from workers.chain.rpc_errors import RpcError, RpcUnavailable
from workers.signers import Lane

if TYPE_CHECKING:
    from workers.shift import ShiftContext

log = logging.getLogger("relayer.send")

INTERVAL_SECONDS: Final = 5.0
STUCK_SECONDS: Final = 60.0
LIMIT: Final = 50
MOST_ATTEMPTS: Final = 5


def replace(context: ShiftContext, lane: Lane) -> int:
    """Offer more where that is due; how many offers were broadcast."""
    now = monotonic()
    if not lane.has_open or now < lane.replace_at or lane.held.lost:
        return 0
    lane.replace_at = now + INTERVAL_SECONDS
    candidates = store.attempts_to_replace(
        context.conn, lane.id, from_nonce=lane.chain_latest, stuck_after=STUCK_SECONDS, limit=LIMIT
    )
    if not candidates:
        return 0
    market = _market(context)
    if market is None:
        return 0
    still = now - lane.moved_at >= STUCK_SECONDS
    wanted = [item for item in candidates if item.underpriced or (still and _outbid(item, market))]
    offers = [(item, bumped(Fees(item.highest_max_fee, item.highest_priority), market)) for item in wanted]
    spent = [item for item, fees in offers if item.seq >= MOST_ATTEMPTS or fees.max_fee_per_gas > CEILING_WEI]
    _give_up(context, lane, spent)
    return _offer(context, lane, [pair for pair in offers if pair[0] not in spent])


def call_of(raw: bytes) -> tuple[bytes, bytes, int]:
    """(20-byte contract, calldata, gas limit) of a stored type-2 transaction."""
    fields = rlp.decode(raw[1:])
    return fields[5], fields[7], int.from_bytes(fields[4], "big")


def _market(context: ShiftContext) -> Fees | None:
    crash_point("before_market_rpc")
    try:
        fees = context.clients.gateway.fees()
    except (RpcError, RpcUnavailable, FeeCeilingExceeded) as error:
        log.warning("no usable fees for a replacement: %s", error, extra={"action": "no_fees"})
        return None
    crash_point("after_market_rpc")
    return fees


def _outbid(item: Replaceable, market: Fees) -> bool:
    """Whether the next block asks more than the current offer. A quote is twice the base fee plus the priority fee."""
    needed = (market.max_fee_per_gas + market.max_priority_fee) // 2
    return item.max_fee < needed or item.max_priority < market.max_priority_fee


def _offer(context: ShiftContext, lane: Lane, offers: list[tuple[Replaceable, Fees]]) -> int:
    replacements = []
    for item, fees in offers:
        to, calldata, gas = call_of(item.raw)
        raw, tx_hash = lane.signer.sign(item.nonce, to, calldata, gas, fees.max_fee_per_gas, fees.max_priority_fee)
        replacements.append(
            Replacement(item.nonce, item.seq + 1, tx_hash, raw, fees.max_fee_per_gas, fees.max_priority_fee, gas)
        )
    crash_point("before_store_replacements_commit")
    stored = store.store_replacements(context.conn, lane.fence, lane.id, replacements)
    crash_point("after_store_replacements_commit")
    items = [
        Outgoing(new.nonce, new.seq, new.tx_hash, new.raw, AttemptState.PREPARED, True, item.subject)
        for (item, _), new in zip(offers, replacements, strict=True)
        if new.nonce in stored
    ]
    if items:
        log.info(
            "replacing with higher fees",
            extra={"action": "replaced", "signer": lane.name, "attempts": len(items), "first_nonce": items[0].nonce},
        )
        broadcast(context, lane, items)
    return len(items)


def _give_up(context: ShiftContext, lane: Lane, spent: list[Replaceable]) -> None:
    """To a person: the offers are used up or the ceiling is reached. The stored bytes stay on offer."""
    evidence = {
        item.subject: {
            "signer": lane.name,
            "nonce": item.nonce,
            "attempts": item.seq,
            "max_fee_per_gas": str(item.max_fee),
        }
        for item in spent
    }
    text = "no further fee offer is allowed for this nonce"
    sending.park(context.conn, lane.fence, ReasonCode.FEE_CEILING, evidence, text)
