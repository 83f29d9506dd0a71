"""Payments that the log shows: ended when their block holds, and followed when they do not stand as it shows (reference queue_settle 4.7)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from psycopg import Connection

from requests_app import finality, sightings
from requests_app.crash_points import crash_point
from requests_app.errors import LedgerConflict, LedgerRefused, RefMismatch
from requests_app.finality import Chain, Policy
from requests_app.models.reviews import ReasonCode
from requests_app.sightings import Sighting
from requests_app.states import IntentState
from requests_app.store.envelopes import INDEX_BITS
from requests_app.store.intents import Intent
from requests_app.store.observations import Observation
from requests_app.store.session import retry_serialization, transaction
from requests_app.store.signing import Fence
from requests_app.transitions import confirming, observing
from requests_app.transitions.confirming import Doubt, Ready
from workers.chain.hexdata import hex_data
from workers.chain.rpc_errors import Ok
from workers.listener import GATEWAY

if TYPE_CHECKING:
    from workers.shift import ShiftContext

log = logging.getLogger("relayer.confirm")

Seen = Mapping[bytes, Sequence[Observation]]
_BEFORE: Final = (IntentState.AUTHORIZED, IntentState.SETTLING, IntentState.NEEDS_REVIEW)


def own(intent: Intent, seen: Seen) -> Observation | None:
    """The observation to judge a payment by: that of its transaction, else the first that used its authorization."""
    judged = [(one, sightings.judge(intent, one)) for one in seen.get(intent.ref, ())]
    related = [pair for pair in judged if pair[1] not in (Sighting.FOREIGN, Sighting.CANCELED)]
    mine = [pair for pair in related if pair[0].tx_hash == intent.tx_hash] or related
    return next((one for one, sighting in mine if sighting is Sighting.EXACT), mine[0][0] if mine else None)


def unheeded(intent: Intent, seen: Seen) -> bool:
    """Whether the log shows a payment executed as asked that does not stand so: it became ready for it later, or went back."""
    found = sightings.execution(intent, seen.get(intent.ref, ()))
    if found is None:
        return False
    return intent.state in _BEFORE or (intent.state is IntentState.CONFIRMING and found.tx_hash != intent.tx_hash)


def follow(conn: Connection[Any], refs: Sequence[bytes]) -> int:
    """Let the payments of these refs follow the log, together; when one of them cannot, in halves, so that it stands alone."""
    if not refs:
        return 0

    def work() -> int:
        with transaction(conn):
            followed = observing.follow(conn, GATEWAY, refs)
            crash_point("before_heed_commit")
        crash_point("after_heed_commit")
        return len(followed)

    try:
        return retry_serialization(work)
    except (LedgerConflict, LedgerRefused, RefMismatch) as error:
        if len(refs) == 1:
            log.critical(
                "a payment cannot follow the log: %s", error, extra={"action": "heed_failed", "ref": refs[0].hex()}
            )
            return 0
        middle = len(refs) // 2
        return follow(conn, refs[:middle]) + follow(conn, refs[middle:])


class Ending:
    """One look at payments that the log shows, with the chain as it is said to be."""

    def __init__(self, context: ShiftContext, fence: Fence, chain: Chain, policy: Policy) -> None:
        self._context, self._conn, self._fence = context, context.conn, fence
        self._chain, self._policy = chain, policy
        self._hashes: dict[int, bytes] = {}

    def end(self, intents: Sequence[Intent], seen: Seen) -> int:
        """End those that are final, or give them to a person: how many. Those in review stay there."""
        limit = self._chain.settled(self._policy)
        pairs = [
            (one, found)
            for one in intents
            if one.state is not IntentState.NEEDS_REVIEW
            and (found := own(one, seen)) is not None
            and found.position >> INDEX_BITS <= limit
        ]
        self._ask({found.position >> INDEX_BITS for _, found in pairs})
        ready: list[Ready] = []
        doubts: list[Doubt] = []
        for intent, found in pairs:
            sighting = sightings.judge(intent, found)
            if not self._holds(found):
                doubts += _contradicted(intent, found)
            elif sighting is Sighting.EXACT:
                ready.append(Ready(intent, found))
            elif sighting in sightings.MISMATCHES:
                doubts.append(_mismatched(intent, found, sighting))
        settled = self._settle(ready)
        return settled + _report_doubts(retry_serialization(lambda: confirming.doubt(self._conn, self._fence, doubts)))

    def _settle(self, ready: Sequence[Ready]) -> int:
        """Settle them together; when the journal refuses, in halves, so that the one at fault goes to a person alone."""
        if not ready:
            return 0
        try:
            settled = retry_serialization(lambda: confirming.settle(self._conn, GATEWAY, self._fence, ready))
        except (LedgerRefused, LedgerConflict) as error:
            if len(ready) > 1:
                middle = len(ready) // 2
                return self._settle(ready[:middle]) + self._settle(ready[middle:])
            ((intent, seen),) = ready
            text = f"final and exact, but the journal refuses its post: {error}"
            log.critical(text, extra={"action": "journal_refuses", "intent": intent.public_id})
            case = Doubt(intent, ReasonCode.OUTCOME_UNKNOWN, text, _evidence(intent, seen))
            return len(confirming.doubt(self._conn, self._fence, [case]))
        if settled:
            log.info("payments settled", extra={"action": "payments_settled", "count": len(settled)})
        return len(settled)

    def _ask(self, numbers: set[int]) -> None:
        """Read the hashes of these blocks, as the chain shows them now."""
        wanted = sorted(numbers - self._hashes.keys())
        if not wanted:
            return
        crash_point("before_confirm_blocks_rpc")
        answers = self._context.clients.gateway.blocks(wanted)
        crash_point("after_confirm_blocks_rpc")
        for number, answer in zip(wanted, answers, strict=True):
            if isinstance(answer, Ok) and answer.value is not None:
                self._hashes[number] = answer.value.hash

    def _holds(self, seen: Observation) -> bool:
        """Whether the observation's block is final by verdict, and still the one that the chain has at its height."""
        block = seen.position >> INDEX_BITS
        verdict = finality.judge(
            included=True, block=block, success=True, chain=self._chain, waited_seconds=0.0, policy=self._policy
        )
        return verdict is finality.Verdict.FINAL and self._hashes.get(block) == seen.block_hash


def _contradicted(intent: Intent, seen: Observation) -> list[Doubt]:
    """The chain has another block there, and the listener has not taken it back in all that time: a person must look."""
    if intent.age_seconds < float(settings.PAYMENT_STUCK_SECONDS):
        return []
    if intent.state is not IntentState.CONFIRMING:
        return []
    text = "the block of its transaction is not the chain's any more"
    return [Doubt(intent, ReasonCode.RECEIPT_VANISHED, text, _evidence(intent, seen), seen)]


def _mismatched(intent: Intent, seen: Observation, sighting: Sighting) -> Doubt:
    text = {
        Sighting.WRONG_AMOUNT: f"final, but {seen.amount} moved instead of {intent.amount}",
        Sighting.WRONG_PARTY: f"final, but {hex_data(seen.payee or b'')} was paid instead of {intent.merchant}",
        Sighting.NO_MONEY: "final, but the payer's money did not move with the authorization",
    }[sighting]
    return Doubt(intent, sightings.REASON[sighting], text, _evidence(intent, seen), seen)


def _evidence(intent: Intent, seen: Observation) -> dict[str, Any]:
    return {
        "tx_hash": hex_data(seen.tx_hash),
        "block": seen.position >> INDEX_BITS,
        "block_hash": hex_data(seen.block_hash),
        "payee": hex_data(seen.payee) if seen.payee else None,
        "amount": None if seen.amount is None else str(seen.amount),
        "asked": {"merchant": intent.merchant, "amount": str(intent.amount), "token": intent.token},
    }


def _report_doubts(moved: Sequence[Any]) -> int:
    if moved:
        log.error(
            "final, but not what was asked",
            extra={"action": "payments_in_doubt", "payments": [one.intent.public_id for one in moved][:20]},
        )
    return len(moved)
