"""The two ways of the settle worker to the chain: with the attempt log, and without it (`workers.settling`).

What goes on the wire is a `Sender`'s part: the lane of a held signer in production (`workers.payments`), a script in the example.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

import psycopg
from psycopg import Connection

from requests_app.errors import RelayerError, StaleEpoch
from requests_app.models.signing import AttemptState
from requests_app.states import IntentState, Kind
from requests_app.store.attempts import Outgoing
from requests_app.store.queue import Subject
from requests_app.store.session import retry_serialization
from requests_app.transitions import recording, settling
from requests_app.transitions.intents import EXPIRED
from requests_app.transitions.recording import Jobs
from requests_app.transitions.sending import Price, Wanted
from requests_app.transitions.settling import CANCELED_ON_CHAIN, Elsewhere, Payable, Underway
from workers.broadcast import outgoing
from workers.carriers import Carrier
from workers.chain.hexdata import hex_data
from workers.senders import Examined, Sender, Verdict
from workers.settle_recovery import Recovery, told
from workers.settling import LEASE_SECONDS, AttemptLog, Handled, Item, Outcome, Route, Settler, retry_delay

log = logging.getLogger("relayer.settle")

BUSY_SECONDS: Final = 1.0
WINDOW_CLOSED: Final = "the payer's authorization ended before it was carried out"


def make_settler(
    conn: Connection[Any],
    sender: Sender,
    owner: str,
    policy: AttemptLog = AttemptLog.ON,
    *,
    lease_seconds: float = LEASE_SECONDS,
    carrier: Carrier | None = None,
) -> Settler:
    """A settle worker whose payments go out by `sender`, with or without the attempt log."""
    route = Logged(sender) if policy is AttemptLog.ON else Unlogged(sender)
    return Settler(conn, route, owner, lease_seconds=lease_seconds, carrier=carrier)


class Unlogged(Route):
    """The original scenario: a payment is held, sent, and confirmed by the hash that came back; a crash in between is not resolved."""

    policy = AttemptLog.OFF

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    def send(self, settler: Settler, items: Sequence[Item]) -> list[Handled]:
        """Hold all, then send one by one."""
        held = {one.id: one for one in settling.hold_unlogged(settler.conn, [item.case.intent for item in items])}
        handled: list[Handled] = []
        for item in items:
            intent = held.get(item.case.intent.id)
            if intent is None:
                handled += settler.put_off([(item, "moved on meanwhile")])
                continue
            subject = Subject(Kind.PAYMENT, intent.id)
            (sent,) = self._sender.transmit([Outgoing(0, 0, b"", b"", AttemptState.PREPARED, False, subject)])
            if sent.outcome.state is AttemptState.ACCEPTED:
                settling.confirm_unlogged(settler.conn, intent, sent.item.tx_hash, item.receipt)
                handled.append(item.ended(Outcome.SENT, f"tx {hex_data(sent.item.tx_hash)}"))
            else:
                handled += settler.put_off([(item, f"send: {sent.text}")])
        return handled


class Logged(Route):
    """Bytes before wire: nothing is sent that is not stored, and what is stored is looked up and sent again, never signed twice."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    def send(self, settler: Settler, items: Sequence[Item]) -> list[Handled]:
        """Simulate, TX1, broadcast, TX2."""
        return self._send(settler, items, IntentState.AUTHORIZED)

    def sign_anew(self, settler: Settler, items: Sequence[Item]) -> list[Handled]:
        """As `send`, for payments whose hold stands and whose nonce is dead."""
        return self._send(settler, items, IntentState.SETTLING)

    def _send(self, settler: Settler, items: Sequence[Item], source: IntentState) -> list[Handled]:
        examined = self._sender.examine(items)
        sorted_in: dict[Verdict, list[tuple[Item, Examined]]] = {}
        for item, found in zip(items, examined, strict=True):
            sorted_in.setdefault(found.verdict, []).append((item, found))
        handled = self._put_aside(settler, sorted_in, source)
        ready = {
            item.case.intent.id: (item, one.wanted) for item, one in sorted_in.get(Verdict.READY, []) if one.wanted
        }
        price = self._sender.price() if ready else None
        if price is None:
            return handled + self._unanswered(settler, [(item, "no usable fees") for item, _ in ready.values()])
        payable = [Payable(item.case.intent, wanted) for item, wanted in ready.values()]
        try:
            underway = self._prepare(settler, payable, price, source)
        except psycopg.errors.LockNotAvailable:
            # The books or a row are held by somebody slow; nothing of this batch that is not committed was written.
            return handled + settler.put_off([(item, "the books are busy") for item, _ in ready.values()], BUSY_SECONDS)
        stored = {one.intent.id for one in underway}
        left = [
            (item, "moved on meanwhile, or its signer has") for key, (item, _) in ready.items() if key not in stored
        ]
        handled += settler.retry_or_give_up(left)
        return handled + self._broadcast(settler, underway, {key: item for key, (item, _) in ready.items()})

    def _prepare(
        self, settler: Settler, payable: Sequence[Payable], price: Price, source: IntentState
    ) -> list[Underway]:
        """TX1. A member that breaks it is found by halving and put off alone; the others go on at once."""

        def sign(wanted: Wanted, nonce: int) -> tuple[bytes, bytes]:
            return self._sender.sign(wanted, nonce, price)

        try:
            return retry_serialization(
                lambda: settling.prepare_settle(
                    settler.conn, self._sender.fence, self._sender.signer_id, payable, price, sign, source=source
                )
            )
        except StaleEpoch:
            raise
        except (ValueError, OverflowError, TypeError, psycopg.DataError, psycopg.IntegrityError, RelayerError) as error:
            if len(payable) > 1:
                half = len(payable) // 2
                first = self._prepare(settler, payable[:half], price, source)
                return first + self._prepare(settler, payable[half:], price, source)
            log.exception(
                "payment cannot be prepared",
                extra={
                    "action": "prepare_failed",
                    "intent": payable[0].intent.public_id,
                    "ref": hex_data(payable[0].intent.ref),
                    "error": type(error).__name__,
                },
            )
            return []

    def _broadcast(self, settler: Settler, underway: Sequence[Underway], items: Mapping[int, Item]) -> list[Handled]:
        if not underway:
            return []
        sent = self._sender.transmit(outgoing([one.prepared for one in underway]))
        jobs = {
            one.intent.id: (items[one.intent.id].receipt, retry_delay(items[one.intent.id].attempt)) for one in underway
        }
        known = {one.intent.id: one.intent for one in underway}
        answers = [(one.item, one.outcome) for one in sent]
        retry_serialization(
            lambda: recording.record_sends(settler.conn, self._sender.signer_id, answers, Jobs(payments=jobs), known)
        )
        self._sender.react(sent)
        return [told(items[one.item.subject.id], one, Outcome.SENT) for one in sent]

    def _put_aside(
        self, settler: Settler, found: Mapping[Verdict, Sequence[tuple[Item, Examined]]], source: IntentState
    ) -> list[Handled]:
        """Everything that is not to be signed now."""
        handled = self._unanswered(settler, [(item, one.why) for item, one in found.get(Verdict.UNANSWERED, [])])
        later = found.get(Verdict.LATER, [])
        dated = [(item, one) for item, one in later if one.seconds is not None]
        handled += settler.put_off([(item, one.why) for item, one in dated], [one.seconds for _, one in dated])
        handled += settler.retry_or_give_up([(item, one.why) for item, one in later if one.seconds is None])
        handled += settler.give_up([(item, one.why) for item, one in found.get(Verdict.NEVER, [])])
        handled += self._elsewhere(settler, found.get(Verdict.EXECUTED, []))
        ends = [(item, CANCELED_ON_CHAIN) for item, _ in found.get(Verdict.CANCELED, [])]
        closed = WINDOW_CLOSED if source is IntentState.SETTLING else EXPIRED
        ends += [(item, closed) for item, _ in found.get(Verdict.CLOSED, [])]
        pairs = [(item.case.intent, item.receipt, why) for item, why in ends]
        if source is IntentState.SETTLING:
            settling.fail_closed(settler.conn, pairs)
        else:
            settling.cancel_unsent(settler.conn, pairs)
        return handled + [item.ended(Outcome.NO_OP, why) for item, why in ends]

    def _unanswered(self, settler: Settler, items: Sequence[tuple[Item, str]]) -> list[Handled]:
        """Put off by as much every time: the chain's silence is not the payment's fault, and the lane rests longer and longer instead."""
        return settler.put_off(items, [retry_delay(1) for _ in items])

    def _elsewhere(self, settler: Settler, found: Sequence[tuple[Item, Examined]]) -> list[Handled]:
        elsewhere = [
            Elsewhere(item.case.intent, item.receipt, one.tx_hash, {"reason": one.why}) for item, one in found
        ]  # fmt: skip
        settling.executed_elsewhere(settler.conn, self._sender.fence, elsewhere)
        return [
            item.ended(Outcome.SENT, f"tx {hex_data(one.tx_hash)}")
            if one.tx_hash
            else item.ended(Outcome.NEEDS_REVIEW, one.why)
            for item, one in found
        ]

    def recover(self, settler: Settler, items: Sequence[Item]) -> list[Handled]:
        """Look up everything that is signed; what nobody knows goes out again, byte by byte the same."""
        return Recovery(settler, self._sender).carry_out(items)
