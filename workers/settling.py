"""The settle worker: what each delivery of the queue `settle` does with its payment (design 2.3; reference queue_settle 1.6, 4.2, 4.4).

A delivery is a pointer. The payment is read again, `next_step` decides from what it finds, and the batch is carried out step by step:
authorized ones are held and signed together, then broadcast, then recorded; settling ones are looked up, and the same bytes sent again.
With the attempt log off it is the original scenario: held, sent without a record, and after a while given to a person.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from enum import Enum, StrEnum
from typing import Any, Final, NamedTuple

from psycopg import Connection

from requests_app import backoff
from requests_app.crash_points import crash_point
from requests_app.models.reviews import ReasonCode
from requests_app.models.signing import SlotState
from requests_app.states import IntentState
from requests_app.store import queue
from requests_app.store import settling as store
from requests_app.store.intents import SETTLE
from requests_app.store.queue import Delivery, Receipt
from requests_app.store.session import retry_serialization
from requests_app.store.settling import Case
from requests_app.transitions import settling
from requests_app.transitions.settling import Hopeless
from workers.carriers import Carrier, TableCarrier

log = logging.getLogger("relayer.settle")

BATCH: Final = 100
LEASE_SECONDS: Final = 30.0
FIRST_DELAY_SECONDS: Final = 5.0
LONGEST_DELAY_SECONDS: Final = 120.0
MOST_ATTEMPTS: Final = 10
STUCK_SECONDS: Final = 300.0  # without the attempt log: how long a payment may be settling before a person looks
DISABLED_SECONDS: Final = 120.0


class AttemptLog(Enum):
    """Whether signed bytes are stored before they are sent. A database is worked with one policy, never with both."""

    ON = "on"
    OFF = "off"


class Nonce(Enum):
    """What is signed for a payment."""

    NONE = "none"  # nothing ever was: no node can have anything
    OPEN = "open"  # bytes at a nonce that is not dead
    DEAD = "dead"  # bytes at a nonce where none of them can be mined any more


class Step(Enum):
    """What a delivery is for."""

    SEND = "send"  # hold, sign, broadcast
    SIGN_ANEW = "sign anew"  # the hold stands; a new nonce
    RECOVER = "recover"  # look up what was signed, and send the same bytes again
    WAIT = "wait"
    REVIEW = "review"
    GIVE_UP = "give up"
    NOTHING = "nothing"


class Outcome(StrEnum):
    """How a delivery ended. All but RETRY end the job."""

    SENT = "sent"
    REBROADCAST = "rebroadcast"
    RETRY = "retry"
    NO_OP = "no-op"
    NEEDS_REVIEW = "needs_review"
    POISON = "poison"


class Handled(NamedTuple):
    """What became of one delivery, in words."""

    job_key: str
    receipt: Receipt
    outcome: Outcome
    detail: str

    @property
    def line(self) -> str:
        """As the example prints it."""
        detail = self.detail if self.outcome in (Outcome.SENT, Outcome.REBROADCAST) else f"({self.detail})"
        return f"worker  {self.job_key:<16} #{self.receipt.attempt}  {self.outcome:<12} {detail}"


class Item(NamedTuple):
    """A delivery with the payment as it stands now."""

    receipt: Receipt
    case: Case

    @property
    def job_key(self) -> str:
        """The name of its job."""
        return f"{self.case.intent.public_id}/settle"

    @property
    def attempt(self) -> int:
        """Which delivery of the job this is, from 1."""
        return self.receipt.attempt

    @property
    def evidence(self) -> dict[str, Any]:
        """What a reviewer is shown of a payment that stops here."""
        slot, intent = self.case.slot, self.case.intent
        return {
            "deliveries": self.attempt,
            "settling_seconds": round(intent.age_seconds),
            "nonce": slot.nonce if slot else None,
            "window_closed": intent.window_closed,
        }

    @property
    def used_up(self) -> bool:
        """Whether its deliveries are. Some died with their worker or met a silent node, which says nothing of the payment: their
        number counts only once the time has passed over which the table spreads them."""
        return self.attempt >= MOST_ATTEMPTS and self.case.intent.age_seconds >= least_patience()

    def ended(self, outcome: Outcome, detail: str) -> Handled:
        """What is reported of it."""
        return Handled(self.job_key, self.receipt, outcome, detail)


def next_step(state: IntentState | None, nonce: Nonce, attempt: int, age: float, policy: AttemptLog) -> Step:
    """The decision, from what was read: `age` is seconds since the last transition, `attempt` the delivery's number."""
    last = attempt >= MOST_ATTEMPTS
    if state is IntentState.AUTHORIZED:
        return Step.SEND
    if state is IntentState.CREATED:
        return Step.GIVE_UP if last else Step.WAIT
    if state is not IntentState.SETTLING:
        return Step.NOTHING
    if policy is AttemptLog.OFF:
        return Step.REVIEW if age >= STUCK_SECONDS or last else Step.WAIT
    return {Nonce.OPEN: Step.RECOVER, Nonce.DEAD: Step.SIGN_ANEW, Nonce.NONE: Step.SIGN_ANEW}[nonce]


def nonce_of(case: Case) -> Nonce:
    """What is signed for a payment that was read."""
    if case.slot is None or (not case.slot.signed and case.slot.state is not SlotState.DEAD):
        return Nonce.NONE
    return Nonce.DEAD if case.slot.state is SlotState.DEAD else Nonce.OPEN


def retry_delay(attempt: int) -> float:
    """Seconds until the next delivery after `attempt` of them."""
    return backoff.half_by_chance(attempt, FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS)


def least_patience() -> float:
    """Seconds over which all deliveries of a job are spread at least; longer than STUCK_SECONDS, or a rescue would come too late."""
    return sum(
        backoff.doubled(tries, FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS) / 2 for tries in range(1, MOST_ATTEMPTS)
    )


def spoken(seconds: float) -> str:
    """Seconds as the series writes them: `30s`, `5m30s`."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


class Route:
    """How payments reach the chain: what the Settler does with those that are to be sent, sent anew, or looked up."""

    policy = AttemptLog.ON

    def send(self, settler: Settler, items: Sequence[Item]) -> list[Handled]:
        """Authorized payments: everything up to the recorded answer of the node."""
        raise NotImplementedError

    def sign_anew(self, settler: Settler, items: Sequence[Item]) -> list[Handled]:
        """Settling payments without an open nonce."""
        raise NotImplementedError

    def recover(self, settler: Settler, items: Sequence[Item]) -> list[Handled]:
        """Settling payments with stored bytes."""
        raise NotImplementedError


class Settler:
    """Works on leased deliveries of the queue `settle`, a batch at a time. `owner` names the process in the queue."""

    def __init__(
        self,
        conn: Connection[Any],
        route: Route,
        owner: str,
        *,
        lease_seconds: float = LEASE_SECONDS,
        carrier: Carrier | None = None,
    ) -> None:
        if least_patience() <= STUCK_SECONDS:
            raise ValueError("jobs are given up before a stuck payment is noticed")
        self.conn = conn
        self.owner = owner
        self._route = route
        self._lease_seconds = lease_seconds
        self._carrier = carrier or TableCarrier(SETTLE)

    def run(self, limit: int = BATCH) -> list[Handled]:
        """Lease at most `limit` jobs and end each delivery; what became of them, in the order of the deliveries."""
        deliveries = self._carrier.lease(self.conn, limit, self.owner, self._lease_seconds)
        if not deliveries:
            return []
        try:
            return self.handle(deliveries)
        finally:
            self._carrier.let_go([one.receipt for one in deliveries])

    def handle(self, deliveries: Sequence[Delivery]) -> list[Handled]:
        """As `run`, for deliveries that are leased already. A receipt that is not current any more changes nothing."""
        cases = store.read_cases(self.conn, [one.subject.id for one in deliveries])
        groups: dict[Step, list[Item]] = {}
        handled: list[Handled] = []
        for one in deliveries:
            case = cases.get(one.subject.id)
            if case is None:
                log.warning("a job for no payment", extra={"action": "unknown_payment", "intent": one.subject.id})
                handled.append(Handled(f"{one.subject.id}/settle", one.receipt, Outcome.NO_OP, "unknown payment"))
                continue
            step = next_step(
                case.intent.state, nonce_of(case), one.receipt.attempt, case.intent.age_seconds, self._route.policy
            )
            groups.setdefault(step, []).append(Item(one.receipt, case))
        self.ack([one.receipt for one in handled])
        for step, items in groups.items():
            handled += self._carry_out(step, items)
        order = {one.receipt: place for place, one in enumerate(deliveries)}
        handled.sort(key=lambda one: order[one.receipt])
        _report(handled)
        return handled

    def _carry_out(self, step: Step, items: list[Item]) -> list[Handled]:
        if step is Step.NOTHING:
            self.ack([one.receipt for one in items])
            return [one.ended(Outcome.NO_OP, f"already {one.case.intent.state}") for one in items]
        if step is Step.WAIT:
            return self.put_off([(one, _waiting(one)) for one in items])
        if step is Step.REVIEW:
            return self.review([(one, f"{_unsent(one)}; broadcast outcome unknown") for one in items])
        if step is Step.GIVE_UP:
            return self.give_up([(one, _waiting(one)) for one in items])
        held = [one for one in items if step is Step.SEND and not one.case.effective]
        handled = self.put_off([(one, "account disabled") for one in held], DISABLED_SECONDS)
        able = [one for one in items if one not in held]
        act = {
            Step.SEND: self._route.send,
            Step.SIGN_ANEW: self._route.sign_anew,
            Step.RECOVER: self._route.recover,
        }[step]
        return handled + (act(self, able) if able else [])

    # --- ends of deliveries, for the routes too

    def ack(self, receipts: Iterable[Receipt]) -> None:
        """The jobs are done."""
        crash_point("before_ack_payments_commit")
        queue.ack_jobs(self.conn, list(receipts))
        crash_point("after_ack_payments_commit")

    def put_off(
        self, items: Sequence[tuple[Item, str]], seconds: float | Sequence[float | None] | None = None
    ) -> list[Handled]:
        """Back to the queue, after `seconds` (of all, or each its own) or as the retry table says; the reason goes into the report."""
        if not items:
            return []
        each = [seconds] * len(items) if isinstance(seconds, float) or seconds is None else seconds
        receipts = [one.receipt for one, _ in items]
        delays = [retry_delay(one.attempt) if own is None else own for one, own in zip(receipts, each, strict=True)]
        crash_point("before_nack_payments_commit")
        queue.nack_jobs(self.conn, receipts, delays)
        crash_point("after_nack_payments_commit")
        return [one.ended(Outcome.RETRY, why) for one, why in items]

    def retry_or_give_up(self, items: Sequence[tuple[Item, str]]) -> list[Handled]:
        """Back to the queue; those whose deliveries are used up are given up."""
        again = [(one, why) for one, why in items if not one.used_up]
        spent = [(one, f"{why}; attempts used up") for one, why in items if one.used_up]
        return self.put_off(again) + self.give_up(spent)

    def give_up(self, items: Sequence[tuple[Item, str]]) -> list[Handled]:
        """To the dead letters; the payment as its state says (reference 2.7)."""
        hopeless = [Hopeless(one.case.intent, one.receipt, why, self._may_be_out(one)) for one, why in items]
        retry_serialization(lambda: settling.give_up(self.conn, hopeless))
        return [one.ended(Outcome.POISON, why) for one, why in items]

    def review(
        self, items: Sequence[tuple[Item, str]], reason: ReasonCode = ReasonCode.OUTCOME_UNKNOWN
    ) -> list[Handled]:
        """To a person, with the job done."""
        found = [(one.case.intent, one.receipt, why) for one, why in items]
        evidence = {one.case.intent.id: {"reason": why, **one.evidence} for one, why in items}
        retry_serialization(lambda: settling.review(self.conn, found, reason, evidence))
        return [one.ended(Outcome.NEEDS_REVIEW, why) for one, why in items]

    def _may_be_out(self, item: Item) -> bool:
        """Whether a node may have a transaction of it: without the attempt log nobody can say no."""
        return self._route.policy is AttemptLog.OFF or nonce_of(item.case) is not Nonce.NONE


def _unsent(item: Item) -> str:
    return f"settling for {spoken(item.case.intent.age_seconds)} without tx hash"


def _waiting(item: Item) -> str:
    if item.case.intent.state is IntentState.CREATED:
        return "not authorized yet"
    return f"{_unsent(item)}, waiting"


def _report(handled: Sequence[Handled]) -> None:
    counts: dict[str, int] = {}
    for one in handled:
        counts[one.outcome.value] = counts.get(one.outcome.value, 0) + 1
    log.info("payments handled", extra={"action": "settled", "of": len(handled), "outcomes": counts})
