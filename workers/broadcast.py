"""Broadcast of stored bytes: one JSON-RPC batch in nonce order, every element classified, the outcome recorded.

Re-broadcasting identical bytes can never pay twice. What a class means for attempt, slot and signer is one table here
(reference queue_settle 4.5); which texts belong to which class is `workers.chain.errors`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from requests_app.crash_points import crash_point
from requests_app.models.reviews import ReasonCode
from requests_app.models.signing import AttemptState, SignerStatus
from requests_app.store import attempts as store
from requests_app.store.attempts import Outgoing, SendOutcome
from requests_app.store.intents import Intent
from requests_app.store.session import retry_serialization
from requests_app.store.signing import SignerReason
from requests_app.transitions import recording, sending
from requests_app.transitions.recording import NO_JOBS, Jobs
from workers import signers, stranded
from workers.chain.errors import SendClass, classify_send
from workers.chain.hexdata import hex_data
from workers.chain.rpc import Call, RpcEndpoint
from workers.chain.rpc_errors import Answer, Failed, Missing, Ok, RpcError, RpcUnavailable
from workers.lane import Lane

if TYPE_CHECKING:
    from workers.shift import ShiftContext

log = logging.getLogger("relayer.send")

RESEND_LIMIT: Final = 200
MAINTENANCE_SECONDS: Final = 1.0
OUTBID_SECONDS: Final = 5.0
NO_INTENTS: Final[Mapping[int, Intent]] = {}


class Effect(NamedTuple):
    """What an answer says of the bytes. `live`: a node has, or may have, them."""

    state: AttemptState
    live: bool


_TAKEN = Effect(AttemptState.ACCEPTED, live=True)
_OPEN = Effect(AttemptState.UNKNOWN, live=True)
_UNSENT = Effect(AttemptState.PREPARED, live=False)
_NEVER = Effect(AttemptState.REFUSED, live=False)
EFFECTS: Final[dict[SendClass, Effect]] = {
    SendClass.ACCEPTED: _TAKEN,
    SendClass.ALREADY_KNOWN: _TAKEN,
    SendClass.NONCE_TOO_LOW: _OPEN,  # perhaps consumed by these very bytes: receipts decide
    SendClass.NONCE_TOO_HIGH: _UNSENT,
    SendClass.REPLACEMENT_UNDERPRICED: _OPEN,
    SendClass.UNDERPRICED: _UNSENT,
    SendClass.FEE_CAP: _UNSENT,
    SendClass.INSUFFICIENT_FUNDS: _UNSENT,
    SendClass.POOL_FULL: _UNSENT,
    SendClass.REJECTED_PAYLOAD: _NEVER,
    SendClass.REVERTED: _NEVER,
    SendClass.RATE_LIMITED: _UNSENT,
    SendClass.TRANSPORT_BEFORE: _UNSENT,
    SendClass.UNKNOWN: _OPEN,
}


@dataclass(frozen=True, slots=True)
class Sent:
    """One broadcast with its answer's class and text."""

    item: Outgoing
    send_class: SendClass
    text: str | None
    mismatch: bool

    @property
    def outcome(self) -> SendOutcome:
        """What is stored of it."""
        effect = EFFECTS[self.send_class]
        if self.send_class is SendClass.REPLACEMENT_UNDERPRICED and self.item.siblings:
            effect = Effect(AttemptState.REFUSED, live=True)  # an earlier attempt of ours stays the current one
        elif effect is _NEVER and not self.for_good:
            effect = _OPEN
        plain = effect is _TAKEN
        return SendOutcome(
            self.item.nonce,
            self.item.seq,
            effect.state,
            effect.live,
            None if plain else self.send_class.value,
            None if plain else self.text,
        )

    @property
    def for_good(self) -> bool:
        """Whether the node will never take these bytes, and no other node may have them already."""
        return EFFECTS[self.send_class] is _NEVER and self.item.state is AttemptState.PREPARED


def broadcast(
    context: ShiftContext,
    lane: Lane,
    items: Sequence[Outgoing],
    jobs: Jobs = NO_JOBS,
    known: Mapping[int, Intent] = NO_INTENTS,
) -> list[Sent]:
    """Send stored bytes, record every outcome together with what becomes of jobs and payments (TX2), and react.

    `items` in nonce order; `known` as for `recording.record_sends`. The lease may have been lost meanwhile: the bytes are the
    recorded ones, so a late send is harmless, and the outcome is a fact.
    """
    sent = transmit(context, items)
    told = [(one.item, one.outcome) for one in sent]
    crash_point("before_record_sends_commit")
    retry_serialization(lambda: recording.record_sends(context.conn, lane.id, told, jobs, known))
    crash_point("after_record_sends_commit")
    react(context, lane, sent)
    return sent


def transmit(context: ShiftContext, items: Sequence[Outgoing]) -> list[Sent]:
    """Send stored bytes, in nonce order: what the node said to each. Nothing is recorded."""
    calls: list[Call] = [("eth_sendRawTransaction", [hex_data(item.raw)]) for item in items]
    endpoint = context.clients.endpoints.send()
    crash_point("before_broadcast_rpc")
    answers = _singly(endpoint, calls, endpoint.batch(calls))
    crash_point("after_broadcast_rpc")
    return [_classified(item, answer) for item, answer in zip(items, answers, strict=True)]


def resend(context: ShiftContext, lane: Lane) -> int:
    """Broadcast again what is due, all of it after a take-over; how many.

    Raises nothing for a silent node: the attempts simply stay due.
    """
    done, everything = 0, lane.resend_all
    from_nonce = lane.chain_latest
    while not lane.held.lost:
        items = store.attempts_to_broadcast(
            context.conn, lane.id, from_nonce=from_nonce, everything=everything, limit=RESEND_LIMIT
        )
        if not items:
            break
        sent = broadcast(context, lane, items)
        done += len(sent)
        if any(one.send_class in (SendClass.TRANSPORT_BEFORE, SendClass.RATE_LIMITED) for one in sent):
            return done  # everything stays set: the next call starts over
        from_nonce = items[-1].nonce + 1
        if len(items) < RESEND_LIMIT:
            break
    if everything and not lane.held.lost:
        lane.resend_all = False
    return done


def _singly(endpoint: RpcEndpoint, calls: Sequence[Call], answers: Sequence[Answer[Any]]) -> list[Answer[Any]]:
    """Where the node answered, but not element by element, nobody knows what it took: the same bytes go again one by one."""
    result = list(answers)
    for index, answer in enumerate(answers):
        if not (isinstance(answer, Missing) and answer.sent and answer.answer_status == 200):
            continue
        try:
            result[index] = Ok(endpoint.call(*calls[index]))
        except RpcError as error:
            result[index] = Failed(error)
        except RpcUnavailable:
            break
    return result


def _classified(item: Outgoing, answer: Answer[Any]) -> Sent:
    expected = hex_data(item.tx_hash)
    send_class = classify_send(answer, expected)
    text = None
    if isinstance(answer, Failed):
        text = answer.error.message
    elif isinstance(answer, Missing):
        text = answer.reason
    mismatch = isinstance(answer, Ok) and send_class is not SendClass.ACCEPTED
    if mismatch:
        text = f"the node returned another hash: {str(answer.value)[:80]}" if isinstance(answer, Ok) else None
    return Sent(item, send_class, text, mismatch)


def react(context: ShiftContext, lane: Lane, sent: Sequence[Sent]) -> None:
    """What recorded answers mean for the signer, and for subjects whose bytes the node refuses for good."""
    _log(lane, sent)
    classes = {one.send_class for one in sent}
    if SendClass.NONCE_TOO_HIGH in classes:
        lane.resend_all = True  # something below is not in the node's pool: everything from the chain's count on
    if SendClass.NONCE_TOO_LOW in classes:
        signers.refresh(context, lane)
        lane.maintain_at = 0.0  # believed only when the chain's own count is past the nonce; the receipts tell
    if SendClass.INSUFFICIENT_FUNDS in classes:
        signers.hold_back(context, lane, SignerStatus.PAUSED, SignerReason.INSUFFICIENT_FUNDS)
    foreign = [one for one in sent if one.send_class is SendClass.REPLACEMENT_UNDERPRICED and not one.item.siblings]
    if foreign:
        signers.hold_back(context, lane, SignerStatus.BLOCKED, SignerReason.FOREIGN_NONCE)
    outbid = [one for one in sent if one.send_class is SendClass.REPLACEMENT_UNDERPRICED and one.item.siblings]
    if outbid:
        # Where the attempts before it were refused, too, none is open now, and only the fill comes back to the nonce, with more: later
        # each time, because what the pool holds instead may be mined meanwhile, and the signer is blocked when no fill is left.
        wait = OUTBID_SECONDS * 4 ** min(2, max(one.item.seq for one in outbid) - 2)
        lane.fill_due, lane.fill_at = True, lane.clock() + wait
    strange = {one.item.subject: _evidence(lane, one) for one in sent if one.mismatch}
    if strange:
        text = "a node answered another hash than that of the bytes it was given"
        stranded.block(context, lane, SignerReason.HASH_MISMATCH, text, strange)
    refused = [one for one in sent if one.for_good]
    if refused:
        # Its nonce stays open, so nothing after it can be mined: a no-op takes the nonce (workers.replace), a person the row.
        lane.fill_due = True
        evidence = {one.item.subject: _evidence(lane, one) for one in refused}
        text = "the node refuses the signed transaction for good"
        sending.park(context.conn, lane.fence, ReasonCode.REFUSED_AFTER_SIGNING, evidence, text)


def _evidence(lane: Lane, one: Sent) -> dict[str, Any]:
    return {
        "signer": lane.name,
        "nonce": one.item.nonce,
        "tx_hash": hex_data(one.item.tx_hash),
        "error_class": one.send_class.value,
        "error": one.text,
    }


def _log(lane: Lane, sent: Sequence[Sent]) -> None:
    unclear = [one for one in sent if EFFECTS[one.send_class] is not _TAKEN]
    if not unclear:
        return
    counts: dict[str, int] = {}
    for one in unclear:
        counts[one.send_class.value] = counts.get(one.send_class.value, 0) + 1
    log.warning(
        "broadcast not plainly accepted",
        extra={
            "action": "broadcast_unclear",
            "signer": lane.name,
            "of": len(sent),
            "classes": counts,
            "first_nonce": unclear[0].item.nonce,
            "first_error": unclear[0].text,
        },
    )


def outgoing(prepared: Sequence[sending.Prepared]) -> list[Outgoing]:
    """Freshly stored bytes as broadcast items, in nonce order."""
    return [
        Outgoing(item.nonce, 1, item.tx_hash, item.raw, AttemptState.PREPARED, False, item.held.subject)
        for item in prepared
    ]
