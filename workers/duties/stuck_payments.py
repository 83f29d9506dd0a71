"""No payment waits for ever (I3): signed long ago and in no block, it goes to a person, with what the chain says of it.

Receipts of every attempt are asked once more: an execution that is found is applied, a revert is left to its own judge. A payment whose
window is closed on the finalized chain cannot move money any more; the others may, and a person sees why they do not.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings

from requests_app.crash_points import crash_point
from requests_app.finality import in_words
from requests_app.models.reviews import ReasonCode
from requests_app.states import IntentState, Kind
from requests_app.store import confirming as store
from requests_app.store import intents as intent_store
from requests_app.store.intents import Intent
from requests_app.store.session import retry_serialization
from requests_app.store.signing import Fence
from requests_app.transitions import confirming
from requests_app.transitions.confirming import Doubt
from workers.chain.rpc_errors import Ok
from workers.chain.views import Block
from workers.duties import chain_evidence

if TYPE_CHECKING:
    from workers.shift import ShiftContext

log = logging.getLogger("relayer.confirm")

LIMIT: Final = 200
CLOSED: Final = "the payer's authorization is over on the finalized chain, and nobody has executed it"


def look(context: ShiftContext, fence: Fence, settled: int, hidden: Sequence[Intent]) -> int:
    """Give those of `hidden` that are stuck to a person; how many. The log shows nothing of them. `settled`: the newest block that
    counts as final here, which a chain without a marker has as well.

    Without an answer of the node nothing is judged.
    """
    age = float(settings.PAYMENT_STUCK_SECONDS)
    ids = [one.id for one in hidden if one.state in (IntentState.SETTLING, IntentState.CONFIRMING)]
    stuck = sorted(store.signed_before(context.conn, ids, age))[:LIMIT]
    final = _block(context, settled) if stuck and settled >= 0 else None
    if final is None:
        return 0
    found = chain_evidence.receipts(context, Kind.PAYMENT, stuck)
    decided = found.mined | found.reverted | found.unknown
    doubts = [
        _doubt(intent, final, found.evidence.get(intent.id, {"attempts": []}))
        for intent in intent_store.read_intents(context.conn, [one for one in stuck if one not in decided])
        if intent.state in (IntentState.SETTLING, IntentState.CONFIRMING)
    ]
    moved = retry_serialization(lambda: confirming.doubt(context.conn, fence, doubts))
    if moved:
        log.warning("payments stuck", extra={"action": "payments_stuck", "count": len(moved)})
    return len(moved)


def _block(context: ShiftContext, number: int) -> Block | None:
    crash_point("before_stuck_head_rpc")
    (answer,) = context.clients.gateway.blocks([number])
    crash_point("after_stuck_head_rpc")
    if isinstance(answer, Ok) and answer.value is not None:
        return answer.value
    log.warning("a final block is not read: %s", number, extra={"action": "finality_unavailable"})
    return None


def _doubt(intent: Intent, final: Block, evidence: dict[str, Any]) -> Doubt:
    valid_before = int((intent.authorization or {}).get("valid_before", 0))
    evidence = {
        **evidence,
        "state": intent.state.value,
        "valid_before": valid_before,
        "finalized_time": final.timestamp,
    }
    if final.timestamp >= valid_before:
        return Doubt(intent, ReasonCode.AUTHORIZATION_WINDOW_CLOSED, CLOSED, evidence)
    text = f"{intent.state.value} for {in_words(intent.age_seconds)}, and in no block"
    return Doubt(intent, ReasonCode.OUTCOME_UNKNOWN, text, evidence)
