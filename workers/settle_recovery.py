"""Payments with stored bytes whose end is not known: looked up, and sent again byte by byte the same (reference queue_settle 4.4).

"Not found" is never a verdict. Only time sends such a payment to a person: past its deadline without a receipt.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.conf import settings

from requests_app.models.reviews import ReasonCode
from requests_app.models.signing import AttemptState
from requests_app.store import settling as store
from requests_app.store.attempts import Outgoing, SendOutcome
from requests_app.store.session import retry_serialization
from requests_app.store.settling import SignedAttempt
from requests_app.transitions import recording
from requests_app.transitions.recording import CALLS, Jobs, Mined
from workers.broadcast import Sent
from workers.chain.hexdata import hex_data
from workers.senders import Sender, Trace
from workers.settling import Handled, Item, Outcome, Settler, retry_delay, spoken

_OPEN = (AttemptState.PREPARED, AttemptState.UNKNOWN, AttemptState.ACCEPTED)


def told(item: Item, sent: Sent, good: Outcome) -> Handled:
    """What the node's answer to a broadcast means for the delivery."""
    if sent.outcome.state is AttemptState.ACCEPTED:
        return item.ended(good, f"tx {hex_data(sent.item.tx_hash)}")
    if sent.for_good:
        return item.ended(Outcome.NEEDS_REVIEW, f"send: {sent.text}")
    return item.ended(Outcome.RETRY, f"send: {sent.text}")


class Recovery:
    """One batch of settling payments with stored bytes."""

    def __init__(self, settler: Settler, sender: Sender) -> None:
        self._settler, self._sender = settler, sender

    def carry_out(self, items: Sequence[Item]) -> list[Handled]:
        """Look up everything that is signed; what nobody knows goes out again, byte by byte the same."""
        attempts = store.attempts_of(self._settler.conn, [item.case.intent.id for item in items])
        flat = [one for item in items for one in attempts.get(item.case.intent.id, [])]
        traces = self._sender.find([one.item for one in flat])
        if traces is None:
            return self._late([(item, "the chain does not answer") for item in items], patience=2.0)
        seen = {one.item.tx_hash: trace for one, trace in zip(flat, traces, strict=True) if trace is not None}
        handled: list[Handled] = []
        waiting: list[tuple[Item, str]] = []
        again: list[tuple[Item, Outgoing]] = []
        for item in items:
            mine = attempts.get(item.case.intent.id, [])
            known = [one for one in mine if one.item.tx_hash in seen]
            # Of several offers the one with a receipt has won; else the newest stands.
            shown = next((one for one in known if seen[one.item.tx_hash].found), known[0] if known else None)
            if shown is not None:
                self._note(item, shown, seen[shown.item.tx_hash], handled, waiting)
            elif (newest := self._mine_to_send(item, mine)) is not None:
                again.append((item, newest))
            else:
                waiting.append((item, "the holder of its signer looks after its nonce"))
        handled += self._late(waiting)
        return handled + self._again(again)

    def _note(
        self,
        item: Item,
        shown: SignedAttempt,
        trace: Trace,
        handled: list[Handled],
        waiting: list[tuple[Item, str]],
    ) -> None:
        """A transaction of the payment that the chain knows: with a receipt, or pending."""
        one, found = shown.item, trace.found
        if found is not None and found.status == 0:
            waiting.append((item, f"reverted in block {found.block}: waiting for finality"))
            return
        if found is not None:
            mined = Mined(found, one.subject, one.tx_hash, one.purpose)
            retry_serialization(lambda: recording.record_lookups(self._settler.conn, shown.signer_id, [mined]))
        else:
            taken = SendOutcome(one.nonce, one.seq, AttemptState.ACCEPTED, True, None, None)
            retry_serialization(lambda: recording.record_sends(self._settler.conn, shown.signer_id, [(one, taken)]))
        if one.purpose in CALLS:
            self._settler.ack([item.receipt])
            handled.append(item.ended(Outcome.SENT, f"tx {hex_data(one.tx_hash)}"))
        else:
            waiting.append((item, "its nonce is being spent on nothing"))

    def _mine_to_send(self, item: Item, mine: Sequence[SignedAttempt]) -> Outgoing | None:
        """The newest attempt, if it may go out again from here."""
        newest = next((one for one in mine if one.item.state in _OPEN), None)
        if newest is None or newest.signer_id != self._sender.signer_id or newest.item.purpose not in CALLS:
            return None
        return None if item.case.intent.window_closed else newest.item

    def _again(self, again: Sequence[tuple[Item, Outgoing]]) -> list[Handled]:
        if not again:
            return []
        ordered = sorted(again, key=lambda pair: pair[1].nonce)
        sent = self._sender.transmit([one for _, one in ordered])
        answers = [(one.item, one.outcome) for one in sent]
        calls = [(item, one) for (item, _), one in zip(ordered, sent, strict=True)]
        jobs = {item.case.intent.id: (item.receipt, retry_delay(item.attempt)) for item, _ in calls}
        retry_serialization(
            lambda: recording.record_sends(self._settler.conn, self._sender.signer_id, answers, Jobs(payments=jobs))
        )
        self._sender.react(sent)
        taken = [told(item, one, Outcome.REBROADCAST) for item, one in calls]
        lost = {one.receipt for one in taken if one.outcome is Outcome.RETRY}
        untaken = [(item, f"send: {one.text}") for item, one in calls if item.receipt in lost]
        ended = {one.receipt: one for one in self._ended(untaken)}
        return [ended.get(one.receipt, one) for one in taken]

    def _late(self, items: Sequence[tuple[Item, str]], patience: float = 1.0) -> list[Handled]:
        """Back to the queue; to a person past the deadline of a payment in flight, or when the deliveries are used up."""
        ended = self._ended(items, patience)
        done = {one.receipt for one in ended}
        return self._settler.put_off([pair for pair in items if pair[0].receipt not in done]) + ended

    def _ended(self, items: Sequence[tuple[Item, str]], patience: float = 1.0) -> list[Handled]:
        """Those that are not tried again. Silence of the chain uses no delivery up, only time."""
        late = [pair for pair in items if self._overdue(pair[0], patience)]
        spent = [
            (item, f"{why}; attempts used up")
            for item, why in items
            if patience == 1.0 and item.used_up and not self._overdue(item)
        ]
        return self._review(late) + self._settler.give_up(spent)

    def _overdue(self, item: Item, patience: float = 1.0) -> bool:
        return item.case.intent.age_seconds >= patience * float(settings.IN_FLIGHT_DEADLINE_SECONDS)

    def _review(self, items: Sequence[tuple[Item, str]]) -> list[Handled]:
        handled: list[Handled] = []
        for closed, reason in (
            (True, ReasonCode.AUTHORIZATION_WINDOW_CLOSED),
            (False, ReasonCode.OUTCOME_UNKNOWN),
        ):
            mine = [
                (item, f"settling for {spoken(item.case.intent.age_seconds)} without a receipt: {why}")
                for item, why in items
                if item.case.intent.window_closed is closed
            ]
            handled += self._settler.review(mine, reason)
        return handled
