"""Open nonces of a signer that nothing of ours can bring to the chain: the signer is blocked, their requests go to a person.

| what is seen | signer's reason | whose requests |
|---|---|---|
| not even a no-op is taken at a nonce (`workers.replace`) | refused_bytes | of this nonce and of all behind it |
| the chain's count stands still at a nonce that no open slot of ours has, below our lowest one | nonce_gap | of all open nonces |
| a node answered another hash than that of the bytes (`workers.broadcast`) | hash_mismatch | whose bytes they were |

The bytes stay on offer: what is mined after all takes its request up again, and closes the case (reference queue_settle 4.4, 4.8).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings

from requests_app.models.reviews import ReasonCode
from requests_app.models.signing import SignerStatus
from requests_app.store import nonces as store
from requests_app.store.queue import Subject
from requests_app.store.signing import SignerReason
from requests_app.transitions import sending
from workers import receipts, signers, verdicts
from workers.chain.rpc_errors import Ok
from workers.lane import Lane

if TYPE_CHECKING:
    from workers.shift import ShiftContext

log = logging.getLogger("relayer.send")

INTERVAL_SECONDS: Final = 5.0
LIMIT: Final = 1000  # windows are smaller


def block(
    context: ShiftContext,
    lane: Lane,
    reason: SignerReason,
    text: str,
    subjects: Mapping[Subject, Mapping[str, Any]],
) -> int:
    """Block the signer and give these subjects to a person, each with what was found; how many were not there already."""
    signers.hold_back(context, lane, SignerStatus.BLOCKED, reason)
    common = {"signer": lane.name, "signer_reason": reason.value, "chain_nonce": lane.chain_latest}
    evidence = {subject: {**common, **found} for subject, found in subjects.items()}
    parked = sending.park(context.conn, lane.fence, ReasonCode.SIGNER_BLOCKED, evidence, text)
    if parked:
        log.error(
            "open nonces are stranded",
            extra={"action": "stranded", "signer": lane.name, "reason": reason.value, "subjects": len(parked)},
        )
    return len(parked)


def block_from(context: ShiftContext, lane: Lane, reason: SignerReason, nonce: int, text: str) -> int:
    """`block` with the subjects of all open nonces from `nonce` on that have no open case yet."""
    behind = store.uncased_slots(context.conn, lane.id, nonce, LIMIT)
    return block(context, lane, reason, text, {subject: {"nonce": place} for place, subject in behind})


def look(context: ShiftContext, lane: Lane) -> int:
    """Whether the chain waits at a nonce that is not ours to fill, which then nothing of ours can pass; how many were given away.

    It comes from a transaction that was counted when the signer was first compared with the chain, and was dropped by every pool since;
    or from a chain that has forgotten what was final. What was seen mined in a block that gave way, and is in none now, is sent again.
    """
    now = lane.clock()
    if now < lane.stranded_at or lane.held.lost:
        return 0
    patience = float(settings.STUCK_SECONDS)
    if now - lane.moved_at < patience:
        return 0
    lane.stranded_at = now + INTERVAL_SECONDS
    _reopen_vanished(context, lane, patience)
    if not lane.has_open:
        return 0
    lowest = store.unreachable_nonce(context.conn, lane.id, lane.chain_latest, patience)
    if lowest is None:
        return 0
    text = (
        f"the chain waits at nonce {lane.chain_latest}, which no open transaction has; the lowest open one is {lowest}"
    )
    return block_from(context, lane, SignerReason.NONCE_GAP, lowest, text)


def _reopen_vanished(context: ShiftContext, lane: Lane, patience: float) -> None:
    """The listener takes back what it has read of a block. A receipt may be of one that it never read: nobody else would miss it."""
    mined = store.mined_from(context.conn, lane.id, lane.chain_latest, patience, LIMIT)
    if not mined:
        return
    answers = receipts.of_hashes(context, [tx_hash for _, tx_hash in mined])
    gone = [
        nonce
        for (nonce, _), answer in zip(mined, answers, strict=True)
        if isinstance(answer, Ok) and answer.value is None
    ]
    if not gone:
        return
    log.error(
        "mined transactions are in no block any more",
        extra={"action": "mined_vanished", "signer": lane.name, "nonces": gone[:20]},
    )
    verdicts.reopen(context, lane, gone)
    lane.resend_all = True
