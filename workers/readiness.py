"""The readiness turn: which queued decrypts may go to the chain (fhevm_internals 7, fhevm_http 13.4).

Two questions for a whole batch: does the host ACL allow it (asked once, a no is final), and does the gateway have the
ciphertexts (asked every READINESS_INTERVAL_SECONDS until the row's deadline). Nothing is held while waiting: the job goes back
with a delay. A row that is ready becomes `processing` and its job moves to the send queue in one statement.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from django.conf import settings

from requests_app.crash_points import crash_point
from requests_app.states import Kind, Status, Verb
from requests_app.store import queue
from requests_app.store.queue import READY, SEND, LeasedRequest, Receipt
from requests_app.transitions import sending
from requests_app.transitions.sending import Held, Refusal
from workers.chain.calldata import Unencodable, encode_readiness
from workers.chain.rpc_errors import Failed, Ok
from workers.host_acl import HostAcl

if TYPE_CHECKING:
    from workers.shift import ShiftContext

log = logging.getLogger("relayer.readiness")

BATCH: Final = 200
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
    done: list[Receipt] = field(default_factory=list)
    moved: list[Receipt] = field(default_factory=list)


class ReadinessTurn:
    """Checks queued decrypts. Any number of shifts may run one; the job receipts keep them apart."""

    name = "readiness"

    def __init__(self) -> None:
        self._acl = HostAcl()

    def run(self, context: ShiftContext) -> int:
        """Lease a batch, decide each member, write the decisions; how many jobs it was."""
        crash_point("before_lease_readiness_commit")
        deliveries = queue.lease_requests(
            context.conn, READY, BATCH, context.instance, float(settings.JOB_LEASE_SECONDS)
        )
        crash_point("after_lease_readiness_commit")
        if not deliveries:
            return 0
        decisions = Decisions()
        waiting = _triage(deliveries, decisions)
        allowed = self._acl.check(context, waiting, decisions)
        _ask_gateway(context, allowed, decisions)
        _write(context, decisions)
        return len(deliveries)

    def close(self) -> None:
        """Nothing is kept that matters: verdicts of the ACL are asked again by the next shift."""


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


def _ask_gateway(context: ShiftContext, allowed: Sequence[LeasedRequest], decisions: Decisions) -> None:
    asked: list[LeasedRequest] = []
    calls: list[bytes] = []
    for delivery in allowed:
        try:
            calls.append(encode_readiness(delivery.subject.kind, delivery.body or {}))
            asked.append(delivery)
        except Unencodable as error:
            decisions.denied.append(Refusal(_held(delivery), LABEL_INTERNAL, f"Processing Failed: {error}"))
    crash_point("before_readiness_rpc")
    answers = context.clients.gateway.is_ready(calls)
    crash_point("after_readiness_rpc")
    for delivery, answer in zip(asked, answers, strict=True):
        if isinstance(answer, Ok) and answer.value:
            decisions.admitted.append(_held(delivery))
        elif isinstance(answer, Ok):
            _expire_or_delay(delivery, decisions, _interval())
        elif isinstance(answer, Failed) and delivery.overdue:
            text = f"{CALL_FAILED_TEXT}{answer.error.message}"
            decisions.denied.append(Refusal(_held(delivery), LABEL_INTERNAL, text))
        elif delivery.overdue:
            text = f"{CALL_FAILED_TEXT}the gateway chain did not answer"
            decisions.denied.append(Refusal(_held(delivery), LABEL_INTERNAL, text))
        else:
            decisions.delayed.append((delivery.receipt, _interval()))


def _expire_or_delay(delivery: LeasedRequest, decisions: Decisions, seconds: float) -> None:
    if delivery.overdue:
        decisions.expired.append(Refusal(_held(delivery), LABEL_TIMED_OUT, NOT_READY_TEXT))
    else:
        decisions.delayed.append((delivery.receipt, seconds))


def _write(context: ShiftContext, decisions: Decisions) -> None:
    """One statement a sort of decision; what a stale receipt decided changes nothing."""
    conn = context.conn
    sending.admit(conn, decisions.admitted)
    sending.end_unsent(conn, Verb.DENY, decisions.denied)
    sending.end_unsent(conn, Verb.EXPIRE_READINESS, decisions.expired)
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


def _interval() -> float:
    return float(settings.READINESS_INTERVAL_SECONDS) * random.uniform(0.9, 1.1)
