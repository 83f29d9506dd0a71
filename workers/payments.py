"""The lane of a held signer as the settle worker's sender: simulation, fees, signatures, broadcast, look-up (reference queue_settle 4.2)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from requests_app.config import config
from requests_app.crash_points import crash_point
from requests_app.models.signing import SignerStatus
from requests_app.states import IntentState, Kind
from requests_app.store.attempts import Found, Outgoing
from requests_app.store.intents import Intent
from requests_app.store.queue import Subject
from requests_app.store.signing import Fence, SignerReason
from requests_app.transitions.sending import Held, Price, Wanted
from workers import broadcast, signers
from workers.broadcast import Sent
from workers.chain.calldata import ContractCall, Unencodable
from workers.chain.client import LATEST
from workers.chain.errors import SendClass, classify_send, revert_of
from workers.chain.hexdata import hex_data, hex_quantity
from workers.chain.payments import FOR_GOOD, Refusal, encode_transfer, refusal_of, text_of
from workers.chain.reverts import Revert
from workers.chain.rpc import FINALIZED
from workers.chain.rpc_errors import Answer, Missing, Ok, RpcError, RpcUnavailable
from workers.chain.views import Block
from workers.estimate import current_price
from workers.lane import Lane
from workers.payment_reverts import key_of, spender
from workers.senders import Examined, Trace, Verdict
from workers.settling import Item
from workers.windows import MARGIN_SECONDS

if TYPE_CHECKING:
    from workers.shift import ShiftContext

log = logging.getLogger("relayer.settle")

SECOND_LOOK_SECONDS: Final = 2.0
_NODE_TROUBLE: Final = frozenset({SendClass.UNKNOWN, SendClass.RATE_LIMITED})
LONGEST_WAIT_SECONDS: Final = 3600.0


def _seconds_left(intent: Intent) -> float:
    """Until the authorization's window closes, by the database's clock at the moment it was read."""
    read_at = intent.updated_at.timestamp() + intent.age_seconds
    return int((intent.authorization or {})["valid_before"]) - read_at


def _is_past(block: Block, intent: Intent) -> bool:
    """Whether the authorization's window is over at a block."""
    return block.timestamp >= int((intent.authorization or {})["valid_before"])


class LaneSender:
    """`senders.Sender` over a lane. `silent`: the chain left something unanswered since it was made."""

    def __init__(self, context: ShiftContext, lane: Lane) -> None:
        self._context, self._lane = context, lane
        self.silent = False

    @property
    def fence(self) -> Fence:
        """What proves that the signer is ours."""
        return self._lane.fence

    @property
    def signer_id(self) -> int:
        """The signer's row."""
        return self._lane.id

    def price(self) -> Price | None:
        """Fees a few seconds old at most."""
        return current_price(self._context)

    def sign(self, wanted: Wanted, nonce: int, price: Price) -> tuple[bytes, bytes]:
        """A type-2 transaction of the call."""
        return self._lane.signer.sign(nonce, wanted.to, wanted.data, wanted.gas, price.max_fee, price.max_priority)

    def transmit(self, items: Sequence[Outgoing]) -> list[Sent]:
        """One JSON-RPC batch. Fresh nonces are the lane's from here on."""
        self._lane.took(max([one.nonce for one in items], default=-1))
        return broadcast.transmit(self._context, items)

    def react(self, sent: Sequence[Sent]) -> None:
        """As for every broadcast of the lane."""
        broadcast.react(self._context, self._lane, sent)

    def find(self, items: Sequence[Outgoing]) -> list[Trace | None] | None:
        """Receipts first; what has none is asked for by its hash, where pending ones show."""
        gateway, hashes = self._context.clients.gateway, [one.tx_hash for one in items]
        crash_point("before_find_payments_rpc")
        receipts, known = gateway.receipts(hashes), gateway.transactions(hashes)
        crash_point("after_find_payments_rpc")
        found: list[Trace | None] = []
        for item, receipt, transaction in zip(items, receipts, known, strict=True):
            if not isinstance(receipt, Ok) or not isinstance(transaction, Ok):
                self.silent = True
                return None
            mined = receipt.value
            if mined is not None and mined.tx_hash == item.tx_hash:
                # A revert decides nothing before it is final (R6): the lane looks after that.
                seen = Found(
                    item.nonce, item.seq, mined.status, mined.block_number, mined.block_hash, settled=mined.status == 1
                )
                found.append(Trace(seen))
            else:
                found.append(Trace(None) if transaction.value is not None else None)
        return found

    def examine(self, items: Sequence[Item]) -> list[Examined]:
        """Encode all, simulate them in one batch, and say what each answer means."""
        calls = [self._call(item) for item in items]
        wanted = [call for call in calls if isinstance(call, ContractCall)]
        crash_point("before_estimate_payments_rpc")
        answers = iter(self._context.clients.gateway.estimate_gas(self._lane.address, wanted) if wanted else [])
        crash_point("after_estimate_payments_rpc")
        return [
            self._examined(item, call, next(answers)) if isinstance(call, ContractCall) else call
            for item, call in zip(items, calls, strict=True)
        ]

    def _call(self, item: Item) -> ContractCall | Examined:
        intent, gateway = item.case.intent, config().gateway
        if intent.chain != f"evm:{gateway.chain_id}":
            return Examined(Verdict.NEVER, f"{intent.chain} is not the chain of this relayer")
        try:
            call = encode_transfer(
                intent.token, intent.payer, intent.merchant, intent.amount, intent.authorization or {}
            )
        except Unencodable as error:
            return Examined(Verdict.NEVER, str(error))
        if call.to not in gateway.tokens:
            return Examined(Verdict.NEVER, f"token {intent.token} is not configured")
        if not intent.window_closed and _seconds_left(intent) < MARGIN_SECONDS:
            # Not worth a nonce: it would be spent on nothing at once.
            return Examined(Verdict.LATER, "its authorization is about to end", seconds=MARGIN_SECONDS)
        return call

    def _examined(self, item: Item, call: ContractCall, answer: Answer[int]) -> Examined:
        if isinstance(answer, Ok):
            held = Held(Subject(Kind.PAYMENT, item.case.intent.id), item.receipt)
            return Examined(Verdict.READY, wanted=Wanted(held, call.to, call.data, answer.value))
        if isinstance(answer, Missing):
            self.silent = True
            return Examined(Verdict.UNANSWERED, f"simulation: {answer.reason}")
        revert = revert_of(answer.error)
        if revert is not None:
            return self._refused(item, revert)
        refused = classify_send(answer)
        if refused is SendClass.INSUFFICIENT_FUNDS:
            signers.hold_back(self._context, self._lane, SignerStatus.PAUSED, SignerReason.INSUFFICIENT_FUNDS)
            return Examined(Verdict.UNANSWERED, "the signer has no native money")
        self.silent |= refused is SendClass.RATE_LIMITED
        # An error of the node's own says nothing of the payment.
        verdict = Verdict.UNANSWERED if refused in _NODE_TROUBLE else Verdict.LATER
        return Examined(verdict, f"simulation: {answer.error.message}")

    def _refused(self, item: Item, revert: Revert) -> Examined:
        refusal = refusal_of(revert)
        why = f"simulation: {refusal} ({text_of(revert)})"
        if refusal in (Refusal.USED, Refusal.EXPIRED):
            return self._over(item, refusal, why)
        if refusal in FOR_GOOD:
            # A node behind the others refuses too: a no must be heard twice.
            second = None if item.attempt > 1 else SECOND_LOOK_SECONDS
            return Examined(Verdict.NEVER if second is None else Verdict.LATER, why, seconds=second)
        if refusal is Refusal.NOT_YET_VALID:
            return Examined(Verdict.LATER, why, seconds=self._until_valid(item.case.intent))
        if refusal is Refusal.OTHER:
            log.error(
                "a token refuses a payment for a reason unknown",
                extra={"action": "unknown_refusal", "revert": revert.text},
            )
        return Examined(Verdict.LATER, why)

    def _over(self, item: Item, refusal: Refusal, why: str) -> Examined:
        """The chain calls the authorization used, or its window over: who used it, or is it proven that nobody can any more?"""
        intent, gateway = item.case.intent, self._context.clients.gateway
        fresh = intent.state is IntentState.AUTHORIZED
        tag = LATEST
        block: Block | None = None
        if refusal is Refusal.EXPIRED and not fresh:
            block = self._finalized()
            if block is None:
                return Examined(Verdict.UNANSWERED, why)
            # The window and what was done within it are read of one block: the finalized one may move between two calls.
            tag = hex_quantity(block.number)
        crash_point("before_over_rpc")
        (used,) = gateway.authorization_states([key_of(intent)], tag)
        (sure,) = gateway.authorization_states([key_of(intent)], FINALIZED)
        crash_point("after_over_rpc")
        if not isinstance(used, Ok):
            self.silent = True
            return Examined(Verdict.UNANSWERED, why)
        if not used.value:
            closed = refusal is Refusal.EXPIRED and intent.window_closed and (block is None or _is_past(block, intent))
            return Examined(
                Verdict.CLOSED if closed else Verdict.LATER, why, seconds=None if closed else SECOND_LOOK_SECONDS
            )
        try:
            spent = spender(self._context, intent)
            final = spent is not None and self._final(spent.block_number)
        except (RpcError, RpcUnavailable) as error:
            self.silent = True
            return Examined(Verdict.UNANSWERED, f"{why}: {error}")
        if spent is None:
            # The log of a node behind the others does not show it yet: what is final must be missing twice.
            missing = isinstance(sure, Ok) and sure.value and item.attempt > 1
            seconds = None if missing else SECOND_LOOK_SECONDS
            return Examined(
                Verdict.EXECUTED if missing else Verdict.LATER, f"{why}: no transaction shows it", seconds=seconds
            )
        if spent.canceled:
            return (
                Examined(Verdict.CANCELED) if final else Examined(Verdict.UNANSWERED, f"{why}: canceled, not final yet")
            )
        return Examined(Verdict.EXECUTED, f"{why}: by {hex_data(spent.tx_hash)}", tx_hash=spent.tx_hash)

    def _final(self, block: int) -> bool:
        crash_point("before_spent_final_rpc")
        finalized = self._context.clients.gateway.finalized().number
        crash_point("after_spent_final_rpc")
        return block <= finalized

    def _finalized(self) -> Block | None:
        """The finalized block; None, and silent, when the node does not say."""
        crash_point("before_window_final_rpc")
        try:
            finalized = self._context.clients.gateway.finalized()
        except (RpcError, RpcUnavailable):
            self.silent = True
            return None
        crash_point("after_window_final_rpc")
        return finalized

    def _until_valid(self, intent: Intent) -> float:
        """Seconds until the authorization's window opens, by the chain's clock; it is asked again at least every hour."""
        crash_point("before_until_valid_rpc")
        try:
            now = self._context.clients.gateway.head().timestamp
        except (RpcError, RpcUnavailable):
            return SECOND_LOOK_SECONDS
        crash_point("after_until_valid_rpc")
        ahead = int((intent.authorization or {})["valid_after"]) - now
        return min(LONGEST_WAIT_SECONDS, max(SECOND_LOOK_SECONDS, float(ahead) + 1.0))
