"""The readiness turn: which queued decrypts may go to the chain (fhevm_internals 7, fhevm_http 13.4).

Two questions for a whole batch: does the host ACL allow it (asked once, a no is final), and does the gateway have the
ciphertexts (asked every `readiness_interval_seconds` until the row's deadline). Nothing is held while waiting: the job goes
back behind all that were never asked about, and comes back at a moment shared with others, so that thousands of waiting
requests cost one request to the gateway for each `readiness_checks_per_call` of them and delay nobody. A row that is ready
becomes `processing` and its job moves to the send queue in one statement.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from django.conf import settings

from requests_app import runtime
from requests_app.crash_points import crash_point
from requests_app.states import Kind, Status, Verb
from requests_app.store import queue
from requests_app.store.queue import NORMAL, READY, SEND, LeasedRequest, Receipt
from requests_app.store.turns import Board, Pair
from requests_app.transitions import sending
from requests_app.transitions.sending import Held, Refusal
from workers.chain.calldata import Unencodable, encode_readiness
from workers.chain.rpc_errors import Failed, Ok
from workers.handover import Handover
from workers.host_acl import HostAcl

if TYPE_CHECKING:
    from workers.shift import ShiftContext

log = logging.getLogger("relayer.readiness")

GRID_PARTS: Final = 4  # moments in an interval at which waiting requests come back
DISABLED_SECONDS: Final = 120.0
LABEL_TIMED_OUT: Final = "readiness_check_timed_out"
LABEL_INTERNAL: Final = "internal_server_error"
NOT_READY_TEXT: Final = "Ciphertext not ready for decryption on the gateway chain"
CALL_FAILED_TEXT: Final = "Processing Failed: Contract call failed: "


@dataclass
class Decisions:
    """What becomes of one batch."""

    admitted: list[Held] = field(default_factory=list)
    denied: list[Refusal] = field(default_factory=list)
    expired: list[Refusal] = field(default_factory=list)
    delayed: list[tuple[Receipt, float]] = field(default_factory=list)
    deferred: list[Receipt] = field(default_factory=list)
    done: list[Receipt] = field(default_factory=list)
    moved: list[Receipt] = field(default_factory=list)


class CallBudget:
    """How many requests for repeated checks may still go to the gateway in this interval (times by a monotonic clock)."""

    def __init__(self) -> None:
        self._until = 0.0
        self._used = 0

    def is_left(self, calls: int, seconds: float) -> bool:
        """Whether fewer than `calls` were used in the running interval of `seconds`."""
        now = time.monotonic()
        if now >= self._until:
            self._until, self._used = now + seconds, 0
        return self._used < calls

    def use(self, calls: int) -> None:
        """Count requests."""
        self._used += calls


class ReadinessTurn:
    """Checks queued decrypts. Any number of shifts may run one; the job receipts keep them apart."""

    name = "readiness"

    def __init__(self, board: Board | None = None, handover: Handover | None = None) -> None:
        self._acl = HostAcl()
        self._budget = CallBudget()
        self._board = board or Board(READY)
        self._handover = handover or Handover()

    def run(self, context: ShiftContext) -> int:
        """Lease a batch, decide each member, write the decisions; how many jobs it was."""
        values = runtime.values(lambda: context.conn)
        interval, per_call = values["readiness_interval_seconds"], values["readiness_checks_per_call"]
        calls = max(1, values["readiness_calls_per_interval"] // settings.SHIFT_SLOTS)
        crash_point("before_lease_readiness_commit")
        deliveries = queue.lease_requests(
            context.conn,
            READY,
            per_call,
            context.instance,
            float(settings.JOB_LEASE_SECONDS),
            deferred=self._budget.is_left(calls, interval),
            turns=self._board.turns(READY),
        )
        crash_point("after_lease_readiness_commit")
        if not deliveries:
            return 0
        decisions = Decisions()
        waiting = _triage(deliveries, decisions)
        allowed = self._acl.check(context, waiting, decisions)
        self._budget.use(math.ceil(len(allowed) / per_call))
        _ask_gateway(context, allowed, decisions, per_call)
        handed = self._admit(context, decisions.admitted, deliveries)
        _write(context, decisions, interval)
        if decisions.admitted or decisions.moved:
            queued = decisions.moved or not handed
            self._board.note(SEND, {_sending_turn(one) for one in deliveries} if queued else ())
        return len(deliveries)

    def close(self) -> None:
        """Nothing is kept that matters: failures of the ACL are counted anew by the next shift."""

    def _admit(self, context: ShiftContext, held: Sequence[Held], deliveries: Sequence[LeasedRequest]) -> bool:
        """Admit these; whether they stay leased and are left to the send turn, which has room for all of them."""
        if not held or len(held) > self._handover.room:
            sending.admit(context.conn, held)
            return False
        own = {one.subject: one for one in deliveries}
        admitted = sending.admit(context.conn, held, context.instance, float(settings.JOB_LEASE_SECONDS))
        self._handover.give(
            own[subject]._replace(receipt=receipt, status=Status.PROCESSING, turn=_sending_turn(own[subject]))
            for subject, receipt in admitted
        )
        return True


def _sending_turn(delivery: LeasedRequest) -> Pair:
    """The priority and tenant of its job in the send queue."""
    priority, tenant = delivery.turn
    return min(priority, NORMAL), tenant


def _triage(deliveries: Sequence[LeasedRequest], decisions: Decisions) -> list[LeasedRequest]:
    """Those that still wait. A row that somebody else has admitted takes its job along; other rows need none."""
    waiting = []
    for delivery in deliveries:
        if delivery.status is Status.QUEUED and delivery.subject.kind is not Kind.INPUT_PROOF:
            if delivery.effective:
                waiting.append(delivery)
            else:
                _expire_or_delay(delivery, decisions, DISABLED_SECONDS)
        elif delivery.status is Status.PROCESSING and not delivery.has_slot:
            decisions.moved.append(delivery.receipt)
        else:
            decisions.done.append(delivery.receipt)
    return waiting


def _ask_gateway(context: ShiftContext, allowed: Sequence[LeasedRequest], decisions: Decisions, per_call: int) -> None:
    """What is not ready, and what could not be asked, waits; past the deadline the one is a time-out, the other a failure."""
    asked: list[LeasedRequest] = []
    calls: list[bytes] = []
    for delivery in allowed:
        try:
            calls.append(encode_readiness(delivery.subject.kind, delivery.body or {}))
            asked.append(delivery)
        except Unencodable as error:
            decisions.denied.append(Refusal(_held(delivery), LABEL_INTERNAL, f"Processing Failed: {error}"))
    crash_point("before_readiness_rpc")
    answers = context.clients.gateway.is_ready(calls, per_call)
    crash_point("after_readiness_rpc")
    for delivery, answer in zip(asked, answers, strict=True):
        if isinstance(answer, Ok) and answer.value:
            decisions.admitted.append(_held(delivery))
        elif not delivery.overdue:
            decisions.deferred.append(delivery.receipt)
        elif isinstance(answer, Ok):
            decisions.expired.append(Refusal(_held(delivery), LABEL_TIMED_OUT, NOT_READY_TEXT))
        else:
            reason = answer.error.message if isinstance(answer, Failed) else "the gateway chain did not answer"
            decisions.denied.append(Refusal(_held(delivery), LABEL_INTERNAL, f"{CALL_FAILED_TEXT}{reason}"))


def _expire_or_delay(delivery: LeasedRequest, decisions: Decisions, seconds: float) -> None:
    if delivery.overdue:
        decisions.expired.append(Refusal(_held(delivery), LABEL_TIMED_OUT, NOT_READY_TEXT))
    else:
        decisions.delayed.append((delivery.receipt, seconds))


def _write(context: ShiftContext, decisions: Decisions, interval: float) -> None:
    """What was not admitted: one statement a sort of decision; what a stale receipt decided changes nothing."""
    conn = context.conn
    sending.end_unsent(conn, Verb.DENY, decisions.denied)
    sending.end_unsent(conn, Verb.EXPIRE_READINESS, decisions.expired)
    crash_point("before_readiness_defer_commit")
    queue.defer_jobs(conn, decisions.deferred, interval, interval / GRID_PARTS)
    crash_point("after_readiness_defer_commit")
    crash_point("before_readiness_nack_commit")
    queue.nack_jobs(conn, [job for job, _ in decisions.delayed], [seconds for _, seconds in decisions.delayed])
    crash_point("after_readiness_nack_commit")
    crash_point("before_readiness_move_commit")
    queue.move_jobs(conn, decisions.moved, SEND)
    crash_point("after_readiness_move_commit")
    crash_point("before_readiness_ack_commit")
    queue.ack_jobs(conn, decisions.done)
    crash_point("after_readiness_ack_commit")
    if decisions.denied or decisions.expired:
        log.info(
            "decrypts ended before they were sent",
            extra={
                "action": "readiness_ended",
                "denied": len(decisions.denied),
                "expired": len(decisions.expired),
                "labels": sorted({refusal.label for refusal in decisions.denied}),
            },
        )


def _held(delivery: LeasedRequest) -> Held:
    return Held(delivery.subject, delivery.receipt)
