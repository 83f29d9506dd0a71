"""The ladder for a nonce that does not get mined: the same bytes again, higher offers, nothing at all, a person (queue_settle 4.6).

Every step is a stored attempt of the same slot before it is sent; whichever is mined wins. Only the lowest unmined nonce of a
signer can be stuck, and only when the chain's count has stood still while blocks were made: a chain that makes no blocks is not
helped by money. After MOST_OFFERS priced attempts the nonce is spent on nothing (0 wei to ourselves), so that the ones behind it
go on; its row goes to a person. So does a row whose bytes the node refuses for good.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import rlp
from django.conf import settings

from requests_app.crash_points import crash_point
from requests_app.models.reviews import ReasonCode
from requests_app.models.signing import AttemptKind, AttemptState
from requests_app.store import attempts as store
from requests_app.store import nonces
from requests_app.store.attempts import Outgoing, Replaceable, Replacement
from requests_app.store.queue import Subject
from requests_app.store.signing import SignerReason
from requests_app.transitions import sending
from workers import stranded
from workers.broadcast import broadcast
from workers.chain.calldata import ContractCall
from workers.chain.fees import FeeCeilingExceeded, Fees, bumped
from workers.chain.rpc_errors import Ok, RpcError, RpcUnavailable
from workers.lane import Lane

if TYPE_CHECKING:
    from workers.shift import ShiftContext

log = logging.getLogger("relayer.send")

INTERVAL_SECONDS: Final = 5.0
STUCK_BLOCKS: Final = 5
LIMIT: Final = 50
MOST_OFFERS: Final = 5
MOST_ATTEMPTS: Final = 8  # with the offers for the no-op
MOST_FILLS: Final = 3
_CALLS: Final = (AttemptKind.PAY, AttemptKind.REPLACE)
NOOP_GAS: Final = 50_000  # where the node gives no estimate (Arbitrum counts its own data into gas)


def replace(context: ShiftContext, lane: Lane) -> int:
    """Take the next step of the ladder where that is due; how many transactions were broadcast."""
    now = lane.clock()
    if not lane.has_open or now < lane.replace_at or lane.held.lost:
        return 0
    lane.replace_at = now + INTERVAL_SECONDS
    stuck_after = float(settings.STUCK_SECONDS)
    candidates = store.attempts_to_replace(
        context.conn, lane.id, from_nonce=lane.chain_latest, stuck_after=stuck_after, limit=LIMIT
    )
    if not candidates:
        return 0
    asked = market(context)
    if asked is None:
        return 0
    still = now - lane.moved_at >= stuck_after
    wanted = [
        item
        for item in candidates
        if item.underpriced or (still and (_outbid(item, asked) or _passed_over(context, lane, item)))
    ]
    ceiling = context.clients.gateway.config.fee_ceiling
    offers = [(item, bumped(Fees(item.highest_max_fee, item.highest_priority), asked)) for item in wanted]
    spent = [item for item, fees in offers if item.seq >= MOST_ATTEMPTS or fees.max_fee_per_gas > ceiling]
    _give_up(context, lane, spent, "no further fee offer is allowed for this nonce")
    left = [pair for pair in offers if pair[0] not in spent]
    cancel = [item for item, _ in left if item.seq >= MOST_OFFERS and item.purpose in _CALLS]
    _give_up(context, lane, cancel, "five offers were not mined: the nonce is spent on nothing")
    return _offer(context, lane, left)


def fill(context: ShiftContext, lane: Lane) -> int:
    """Spend nonces on nothing whose own bytes the node refuses for good; how many no-ops were broadcast."""
    if not lane.fill_due or lane.clock() < lane.fill_at or lane.held.lost:
        return 0
    lane.fill_due = False
    open_nonces = nonces.attempts_to_fill(context.conn, lane.id, LIMIT)
    if not open_nonces:
        return 0
    asked = market(context)
    if asked is None:
        lane.fill_due = True
        return 0
    refused = [item.nonce for item in open_nonces if item.fills >= MOST_FILLS]
    if refused:
        # Not even nothing is taken: something is wrong with the key, the chain or the node. What stands behind is stranded.
        text = f"not even an empty transaction is taken at nonce {refused[0]}: nothing behind it can be mined"
        stranded.block_from(context, lane, SignerReason.REFUSED_BYTES, refused[0], text)
    made: list[Replacement] = []
    subjects: list[Subject] = []
    gas = noop_gas(context, lane)
    for item in open_nonces:
        if item.fills < MOST_FILLS:
            fees = bumped(Fees(item.max_fee, item.max_priority), asked)
            made.append(noop(lane, item.nonce, item.seq + 1, fees, gas, AttemptKind.FILL))
            subjects.append(item.subject)
    lane.fill_due = len(open_nonces) == LIMIT and bool(made)  # there may be more of them
    return send(context, lane, made, subjects)


def noop(
    lane: Lane, nonce: int, seq: int, fees: Fees, gas: int, purpose: AttemptKind, command_id: str | None = None
) -> Replacement:
    """A signed transfer of 0 wei from the signer to itself."""
    raw, tx_hash = lane.signer.sign(nonce, lane.address, b"", gas, fees.max_fee_per_gas, fees.max_priority_fee)
    return Replacement(nonce, seq, tx_hash, raw, fees.max_fee_per_gas, fees.max_priority_fee, gas, purpose, command_id)


def call_of(raw: bytes) -> tuple[bytes, bytes, int]:
    """(20-byte contract, calldata, gas limit) of a stored type-2 transaction."""
    fields = rlp.decode(raw[1:])
    return fields[5], fields[7], int.from_bytes(fields[4], "big")


def market(context: ShiftContext) -> Fees | None:
    """What the chain asks now; None while it does not say, or asks more than the ceiling."""
    try:
        return asked_fees(context)
    except (RpcError, RpcUnavailable, FeeCeilingExceeded) as error:
        log.warning("no usable fees for a replacement: %s", error, extra={"action": "no_fees"})
        return None


def asked_fees(context: ShiftContext, ceiling: int | None = None) -> Fees:
    """What the chain asks now, under the settings' ceiling or this one (wei a gas). Raises FeeCeilingExceeded, RpcError, RpcUnavailable."""
    crash_point("before_market_rpc")
    fees = context.clients.gateway.fees(ceiling)
    crash_point("after_market_rpc")
    return fees


def _outbid(item: Replaceable, market: Fees) -> bool:
    """Whether the next block asks more than the current offer. A quote is twice the base fee plus the priority fee."""
    needed = (market.max_fee_per_gas + market.max_priority_fee) // 2
    return item.max_fee < needed or item.max_priority < market.max_priority_fee


def _passed_over(context: ShiftContext, lane: Lane, item: Replaceable) -> bool:
    """Whether STUCK_BLOCKS were made since this offer was first found to wait too long, none of which took it although its price is right.

    The first look is kept with the offer: on a chain with slow blocks, five of them are longer than a shift.
    """
    crash_point("before_passed_over_rpc")
    try:
        head = context.clients.gateway.head_number()
    except (RpcError, RpcUnavailable):
        return False
    crash_point("after_passed_over_rpc")
    if item.waiting_from_block is None:
        crash_point("before_note_waiting_commit")
        store.note_waiting(context.conn, lane.fence, lane.id, item.nonce, item.offer_seq, head)
        crash_point("after_note_waiting_commit")
        return False
    return head - item.waiting_from_block >= STUCK_BLOCKS


def noop_gas(context: ShiftContext, lane: Lane) -> int:
    """The gas limit of a transfer to ourselves."""
    crash_point("before_noop_gas_rpc")
    (answer,) = context.clients.gateway.estimate_gas(lane.address, [ContractCall(lane.address, b"")])
    crash_point("after_noop_gas_rpc")
    return answer.value if isinstance(answer, Ok) else NOOP_GAS


def _offer(context: ShiftContext, lane: Lane, offers: list[tuple[Replaceable, Fees]]) -> int:
    made = []
    empty_gas: int | None = None
    for item, fees in offers:
        if item.purpose in _CALLS and item.seq < MOST_OFFERS:
            made.append(repriced(lane, item.nonce, item.seq + 1, item.raw, fees))
        else:
            empty_gas = noop_gas(context, lane) if empty_gas is None else empty_gas
            purpose = AttemptKind.CANCEL if item.purpose in _CALLS else item.purpose
            made.append(noop(lane, item.nonce, item.seq + 1, fees, empty_gas, purpose))
    return send(context, lane, made, [item.subject for item, _ in offers])


def repriced(lane: Lane, nonce: int, seq: int, raw: bytes, fees: Fees, command_id: str | None = None) -> Replacement:
    """The call of stored bytes, signed again at the same nonce with other fees."""
    to, calldata, gas = call_of(raw)
    signed, tx_hash = lane.signer.sign(nonce, to, calldata, gas, fees.max_fee_per_gas, fees.max_priority_fee)
    return Replacement(
        nonce, seq, tx_hash, signed, fees.max_fee_per_gas, fees.max_priority_fee, gas, AttemptKind.REPLACE, command_id
    )


def send(context: ShiftContext, lane: Lane, made: Sequence[Replacement], subjects: Sequence[Subject]) -> int:
    """Store further attempts, then broadcast those that were stored; how many."""
    crash_point("before_store_replacements_commit")
    stored = store.store_replacements(context.conn, lane.fence, lane.id, made)
    crash_point("after_store_replacements_commit")
    items = [
        Outgoing(new.nonce, new.seq, new.tx_hash, new.raw, AttemptState.PREPARED, True, subject, new.purpose)
        for new, subject in zip(made, subjects, strict=True)
        if new.nonce in stored
    ]
    if items:
        log.info(
            "further attempts",
            extra={
                "action": "replaced",
                "signer": lane.name,
                "purposes": sorted({item.purpose.value for item in items}),
                "attempts": len(items),
                "first_nonce": items[0].nonce,
            },
        )
        lane.has_open = True
        broadcast(context, lane, items)
    return len(items)


def _give_up(context: ShiftContext, lane: Lane, spent: list[Replaceable], text: str) -> None:
    """To a person. What was signed stays on offer."""
    evidence = {
        item.subject: {
            "signer": lane.name,
            "nonce": item.nonce,
            "attempts": item.seq,
            "max_fee_per_gas": str(item.max_fee),
        }
        for item in spent
    }
    sending.park(context.conn, lane.fence, ReasonCode.FEE_CEILING, evidence, text)
