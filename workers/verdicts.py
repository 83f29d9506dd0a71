"""Verdicts about nonces: which are decided for ever, and which are lost (reference queue_settle 4.3 R5, 4.7).

A slot is final when the finalized account nonce is past it and the block of its receipt is still the chain's. A slot is *proven
dead* only by rule R5: two endpoints or more, asked twice at least a minute apart, each say that the finalized nonce is past it and
know none of its attempts. With one endpoint nothing is ever proven dead; a person looks.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from requests_app.crash_points import crash_point
from requests_app.models.reviews import ReasonCode
from requests_app.models.signing import SignerStatus, SlotState
from requests_app.store import nonces as store
from requests_app.store import settling
from requests_app.store.attempts import OpenAttempt
from requests_app.store.queue import Subject
from requests_app.store.session import transaction
from requests_app.store.signing import SignerReason
from requests_app.transitions import sending
from workers import missing, payment_reverts, signers
from workers.chain.hexdata import MalformedHex, hex_data, quantity
from workers.chain.rpc import Call
from workers.chain.rpc_errors import Ok, RpcError, RpcUnavailable, WrongChain
from workers.lane import Absence, Lane

if TYPE_CHECKING:
    from workers.shift import ShiftContext

log = logging.getLogger("relayer.send")

MISSING_SECONDS: Final = 60.0
REVERT_DEPTH: Final = 64
FINALIZE_LIMIT: Final = 500
WITNESSES: Final = 2


@dataclass(frozen=True, slots=True)
class Depth:
    """How far the chain is: its head, its finalized block, the finalized account nonce. -1: the node does not say."""

    head: int
    finalized: int
    finalized_nonce: int

    def holds(self, block: int) -> bool:
        """Whether nothing reasonable can take the block back any more."""
        return block <= self.finalized or self.head - block >= REVERT_DEPTH


def depth(context: ShiftContext, lane: Lane) -> Depth:
    """How far the chain is."""
    gateway = context.clients.gateway
    crash_point("before_depth_rpc")
    (count,) = gateway.transaction_counts([lane.address], "finalized")
    try:
        head, finalized = gateway.head_number(), gateway.finalized().number
    except (RpcError, RpcUnavailable):
        head, finalized = -1, -1
    crash_point("after_depth_rpc")
    return Depth(head, finalized, count.value if isinstance(count, Ok) else -1)


def finalize(context: ShiftContext, lane: Lane) -> int:
    """Close the mined slots that the finalized chain has passed, once their block is seen to be the chain's; how many."""
    crash_point("before_finalized_nonce_rpc")
    (answer,) = context.clients.gateway.transaction_counts([lane.address], "finalized")
    crash_point("after_finalized_nonce_rpc")
    if not isinstance(answer, Ok) or not answer.value:
        return 0
    mined = store.slots_to_finalize(context.conn, lane.id, answer.value, FINALIZE_LIMIT)
    if not mined:
        return 0
    numbers = sorted({one.block for one in mined})
    crash_point("before_final_blocks_rpc")
    blocks = dict(zip(numbers, context.clients.gateway.blocks(numbers), strict=True))
    crash_point("after_final_blocks_rpc")
    shown = {number: one.value.hash for number, one in blocks.items() if isinstance(one, Ok) and one.value is not None}
    moved = [one.nonce for one in mined if shown.get(one.block, one.block_hash) != one.block_hash]
    if moved:
        log.error(
            "the block of a receipt is not the chain's any more",
            extra={"action": "final_hash_differs", "signer": lane.name, "nonces": moved[:20]},
        )
        reopen(context, lane, moved)
    good = [one.nonce for one in mined if shown.get(one.block) == one.block_hash]
    unsaid, unused = payment_reverts.unused(context, settling.asked_ends(context.conn, lane.id, good))
    crash_point("before_finalize_slots_commit")
    good = [nonce for nonce in good if nonce not in unsaid]
    closed = sending.close_slots(context.conn, lane.id, good, lane.held.epoch, unused)
    crash_point("after_finalize_slots_commit")
    filled = [one.nonce for one in closed if one.state is SlotState.DEAD]
    if filled:
        log.warning(
            "nonces spent on nothing are final",
            extra={"action": "nonce_filled", "signer": lane.name, "nonces": filled},
        )
    return len(closed)


def reopen(context: ShiftContext, lane: Lane, nonces: Sequence[int]) -> None:
    """Mined slots whose block is not the chain's any more are looked after again."""
    crash_point("before_reopen_slots_commit")
    store.reopen_slots(context.conn, lane.id, nonces)
    crash_point("after_reopen_slots_commit")
    lane.has_open = True


def proven_dead(sightings: Sequence[Absence]) -> bool:
    """Rule R5 over what was seen: two endpoints or more, each of them twice, a minute or more apart."""
    spans: dict[str, tuple[float, float]] = {}
    for one in sightings:
        first, last = spans.get(one.endpoint, (one.at, one.at))
        spans[one.endpoint] = (min(first, one.at), max(last, one.at))
    return sum(1 for first, last in spans.values() if last - first >= MISSING_SECONDS) >= WITNESSES


def judge_missing(
    context: ShiftContext,
    lane: Lane,
    suspects: Sequence[OpenAttempt],
    depth: Depth,
    aside: Sequence[store.Signed] = (),
) -> None:
    """Nonces that the chain has consumed without any hash of ours: to a person after a minute, dead when R5 proves it.

    `aside`: the other attempts at these nonces, refused ones too, which every witness is asked for as well.
    """
    now = lane.clock()
    nonces = {item.nonce for item in suspects}
    missing.recall(context, lane, nonces)
    hashes: dict[int, list[bytes]] = {}
    signed: list[OpenAttempt | store.Signed] = [*suspects, *aside]
    for one in signed:
        if one.nonce < depth.finalized_nonce:
            hashes.setdefault(one.nonce, []).append(one.tx_hash)
    _ask_everybody(context, lane, hashes)
    evidence: dict[Subject, dict[str, Any]] = {}
    dead: list[int] = []
    for item in suspects:
        since = lane.missing_since.setdefault(item.nonce, now)
        late = item.nonce < depth.finalized_nonce and now - since >= MISSING_SECONDS
        proven = proven_dead(lane.absences.get(item.nonce, []))
        if proven:
            dead.append(item.nonce)
        if proven or late or lane.foreign_use:
            evidence[item.subject] = _evidence(lane, item, depth, proven)
    if nonces:
        missing.remember(context, lane, nonces)
    if not evidence:
        return
    text = "the chain has consumed the nonce, but knows none of the stored transactions"
    with transaction(context.conn):
        parked = sending.park(context.conn, lane.fence, ReasonCode.FOREIGN_NONCE, evidence, text)
        store.bury_slots(context.conn, lane.fence, lane.id, sorted(set(dead)))
        if parked:
            # With the cases: they are no news to the next look, and a person may have resumed the signer by then.
            signers.hold_back(context, lane, SignerStatus.BLOCKED, SignerReason.FOREIGN_NONCE)
        crash_point("before_bury_slots_commit")
    crash_point("after_bury_slots_commit")
    if parked:
        log.error(
            "nonces consumed by unknown transactions",
            extra={"action": "foreign_nonce", "signer": lane.name, "requests": len(parked)},
        )


def _evidence(lane: Lane, item: OpenAttempt, depth: Depth, proven: bool) -> dict[str, Any]:
    return {
        "signer": lane.name,
        "nonce": item.nonce,
        "tx_hash": hex_data(item.tx_hash),
        "chain_nonce": lane.chain_latest,
        "finalized_nonce": depth.finalized_nonce,
        "foreign_use_seen": lane.foreign_use,
        "proven_dead": proven,
        "witnesses": sorted({one.endpoint for one in lane.absences.get(item.nonce, [])}),
    }


def _ask_everybody(context: ShiftContext, lane: Lane, hashes: Mapping[int, Sequence[bytes]]) -> None:
    """One look of rule R5 at each endpoint for all transactions of each nonce. An endpoint that knows any of the hashes ends the suspicion of its nonce."""
    endpoints = context.clients.endpoints.all
    if not hashes or len(endpoints) < WITNESSES:
        return
    at = lane.clock()
    for endpoint in endpoints:
        calls: list[Call] = [("eth_getTransactionCount", [hex_data(lane.address), "finalized"])]
        calls += [("eth_getTransactionReceipt", [hex_data(one)]) for found in hashes.values() for one in found]
        crash_point("before_absence_rpc")
        try:
            count, *receipts = endpoint.batch(calls)
        except WrongChain:
            continue
        crash_point("after_absence_rpc")
        try:
            finalized = quantity(count.value) if isinstance(count, Ok) else -1
        except MalformedHex:
            continue
        answers = iter(receipts)
        for nonce, found in hashes.items():
            said = [next(answers) for _ in found]
            if any(isinstance(one, Ok) and one.value is not None for one in said):
                lane.absences.pop(nonce, None)
                lane.missing_since[nonce] = at
            elif finalized > nonce and all(isinstance(one, Ok) for one in said):
                lane.absences.setdefault(nonce, []).append(Absence(at, endpoint.name))
