"""Confirming payments that the log does not show: their receipts are asked for (reference queue_settle 4.7)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from requests_app import finality
from requests_app.crash_points import crash_point
from requests_app.errors import RelayerError
from requests_app.finality import Chain, Policy, Verdict
from requests_app.models.reviews import ReasonCode
from requests_app.states import IntentState
from requests_app.store.intents import Intent
from requests_app.store.session import retry_serialization
from requests_app.store.signing import Fence
from requests_app.transitions import confirming
from requests_app.transitions.confirming import Doubt
from workers.chain.hexdata import hex_data
from workers.chain.rpc_errors import Ok
from workers.chain.views import Receipt
from workers.duties import chain_evidence

if TYPE_CHECKING:
    from workers.shift import ShiftContext

log = logging.getLogger("relayer.confirm")

LOOK_AFTER_SECONDS: Final = 15.0  # the listener shows what is mined within a moment
LIMIT: Final = 200
REVERTED: Final = "its transaction reverted, final"
NOTHING: Final = "its transaction is final, but shows nothing of this payment"


def look(context: ShiftContext, fence: Fence, chain: Chain, policy: Policy, hidden: Sequence[Intent]) -> int:
    """Judge those of `hidden` that are confirming for a while: how many payments moved.

    The log shows nothing of them. Without an answer of the node nothing is judged.
    """
    after = min(LOOK_AFTER_SECONDS, policy.lost_after)
    found = [one for one in hidden if one.state is IntentState.CONFIRMING and one.age_seconds >= after][:LIMIT]
    if not found:
        return 0
    crash_point("before_hidden_receipts_rpc")
    answers = context.clients.gateway.receipts([one.tx_hash or b"" for one in found])
    crash_point("after_hidden_receipts_rpc")
    lost: list[tuple[Intent, str]] = []
    doubts: list[Doubt] = []
    for intent, answer in zip(found, answers, strict=True):
        receipt = answer.value if isinstance(answer, Ok) else None
        if not isinstance(answer, Ok) or (receipt is not None and receipt.tx_hash != intent.tx_hash):
            continue
        verdict = finality.judge(
            included=receipt is not None,
            block=receipt.block_number if receipt else None,
            success=bool(receipt and receipt.status == 1),
            chain=chain,
            waited_seconds=intent.age_seconds,
            policy=policy,
        )
        if verdict is Verdict.LOST:
            lost.append((intent, f"not in any block for {finality.in_words(intent.age_seconds)}"))
        elif verdict is Verdict.FAILED:
            doubts.append(Doubt(intent, ReasonCode.REVERTED_FINAL, REVERTED, _evidence(receipt)))
        elif verdict is Verdict.FINAL and receipt is not None and not _repaired(context, intent, receipt):
            doubts.append(Doubt(intent, ReasonCode.OUTCOME_UNKNOWN, NOTHING, _evidence(receipt)))
    moved = retry_serialization(lambda: confirming.lose(context.conn, fence, lost))
    if moved:
        log.warning("payments in no block", extra={"action": "payments_lost", "count": len(moved)})
    return len(moved) + len(retry_serialization(lambda: confirming.doubt(context.conn, fence, doubts)))


def _repaired(context: ShiftContext, intent: Intent, receipt: Receipt) -> bool:
    """Whether the receipt shows something of the payment; what the log lacks of it is stored and applied."""
    try:
        return chain_evidence.repair(context, [receipt], intent.ref)
    except RelayerError as error:
        log.critical(
            "what a receipt shows cannot be applied: %s",
            error,
            extra={"action": "repair_failed", "intent": intent.public_id},
        )
        return True  # it is shown: that it cannot be applied is no evidence against the payment


def _evidence(receipt: Receipt | None) -> dict[str, Any]:
    if receipt is None:
        return {}
    return {
        "tx_hash": hex_data(receipt.tx_hash),
        "block": receipt.block_number,
        "block_hash": hex_data(receipt.block_hash),
        "status": receipt.status,
    }
