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
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Final

from django.conf import settings
from psycopg import Connection

from requests_app import finality, sightings
from requests_app.crash_points import crash_point
from requests_app.errors import LedgerConflict, LedgerRefused, RefMismatch
from requests_app.finality import Chain, Policy
from requests_app.models.reviews import ReasonCode
from requests_app.sightings import Sighting
from requests_app.store import confirming as store
from requests_app.store import envelopes
from requests_app.store import intents as intent_store
from requests_app.store import observations as observation_store
from requests_app.store.envelopes import INDEX_BITS, Fence
from requests_app.store.intents import Intent
from requests_app.store.observations import Observation
from requests_app.store.session import retry_serialization, transaction
from requests_app.transitions import confirming, observing
from requests_app.transitions.confirming import Doubt, Ready
from workers.chain.hexdata import hex_data
from workers.chain.rpc_errors import Ok, RpcError, RpcUnavailable
from workers.duties import hidden_payments
from workers.leases import HeldLease
from workers.listener import GATEWAY
from workers.shift import ShiftContext

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
    """The duty. Every turn it ends what has become final; what can wait for a moment it looks at every WIDE_SECONDS."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._wide_at = 0.0

    def run(self, context: ShiftContext, lease: HeldLease) -> int:
        """Look once at every payment that waits for the chain; how many came further."""
        wide = self._clock() >= self._wide_at
        if wide:
            self._wide_at = self._clock() + WIDE_SECONDS
        return run(context, lease, wide=wide)


def run(context: ShiftContext, lease: HeldLease, *, wide: bool = True) -> int:
    """One look. `wide`: also at those that the log does not show, or that do not stand as it shows."""
    if not store.any_active(context.conn):
        return 0
    source = envelopes.read_source(context.conn, GATEWAY)
    if source is None or source.halted is not None:
        return 0
    chain = how_far(context)
    if chain is None:
        return 0
    fence = Fence(lease.resource, lease.instance, lease.epoch)
    return look(context, fence, chain, source.block, wide=wide)


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


def look(context: ShiftContext, fence: Fence, chain: Chain, sealed: int, *, wide: bool = True) -> int:
    """As `run`, with the chain as it is said to be. `sealed`: the last block that the log holds."""
    heeded = heed(context.conn) if wide else 0
    upto = envelopes.last_position(min(chain.settled(policy()), sealed))
    ended = _Round(context, fence, chain).ended(upto, wide=wide) if upto >= 0 else 0
    return heeded + ended + (hidden_payments.look(context, fence, chain, policy()) if wide else 0)


def heed(conn: Connection[Any]) -> int:
    """Let payments follow the log that became ready for it after it was read, or went back; how many."""
    return _follow(conn, observation_store.unheeded(conn, GATEWAY, observing.UNPROVEN, BATCH))


def _follow(conn: Connection[Any], refs: Sequence[bytes]) -> int:
    """Together; when one of them cannot be, in halves, so that it stands alone."""
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
        return _follow(conn, refs[:middle]) + _follow(conn, refs[middle:])


class _Round:
    """One look at what the log shows."""

    def __init__(self, context: ShiftContext, fence: Fence, chain: Chain) -> None:
        self._context, self._conn, self._fence, self._chain = context, context.conn, fence, chain
        self._hashes: dict[int, bytes] = {}

    def ended(self, upto: int, *, wide: bool) -> int:
        """End what is final at positions up to `upto`: how many payments."""
        passed: set[int] = set()
        ended = 0
        for _ in range(ROUNDS):
            if self._context.stopping():
                break
            ids = store.shown(self._conn, GATEWAY, upto, BATCH, passed)
            ended += self._end(ids)
            passed.update(ids)
            if len(ids) < BATCH:
                break
        return ended + (self._end(store.misused(self._conn, GATEWAY, upto, BATCH)) if wide else 0)

    def _end(self, ids: Sequence[int]) -> int:
        if not ids:
            return 0
        read = intent_store.read_intents(self._conn, ids)
        seen = observation_store.of_refs(self._conn, GATEWAY, [one.ref for one in read])
        pairs = [(one, found) for one in read if (found := _own(one, seen.get(one.ref, ()))) is not None]
        self._ask({found.position >> INDEX_BITS for _, found in pairs})
        ready: list[Ready] = []
        doubts: list[Doubt] = []
        for intent, found in pairs:
            if not self._holds(found):
                doubts += _contradicted(intent, found)
            elif (sighting := sightings.judge(intent, found)) is Sighting.EXACT:
                ready.append(Ready(intent, found))
            elif sighting in sightings.MISMATCHES:
                doubts.append(_mismatched(intent, found, sighting))
        return self._settle(ready) + _report_doubts(confirming.doubt(self._conn, self._fence, doubts))

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
            included=True, block=block, success=True, chain=self._chain, waited_seconds=0.0, policy=policy()
        )
        return verdict is finality.Verdict.FINAL and self._hashes.get(block) == seen.block_hash


def _own(intent: Intent, seen: Sequence[Observation]) -> Observation | None:
    """The observation to judge a payment by: that of its transaction, else the first that used its authorization."""
    related = [one for one in seen if sightings.judge(intent, one) not in (Sighting.FOREIGN, Sighting.CANCELED)]
    mine = [one for one in related if one.tx_hash == intent.tx_hash] or related
    return next((one for one in mine if sightings.judge(intent, one) is Sighting.EXACT), mine[0] if mine else None)


def _contradicted(intent: Intent, seen: Observation) -> list[Doubt]:
    """The chain has another block there, and the listener has not taken it back in all that time: a person must look."""
    if intent.age_seconds < float(settings.PAYMENT_STUCK_SECONDS):
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
