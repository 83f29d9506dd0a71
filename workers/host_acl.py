"""The host ACL's say on a batch of decrypts: one RPC batch a host chain, one multicall a request.

A no is final. An error of the chain's answer is tried three times (counted in this process, so another shift may add its own
tries); a chain that does not answer at all is asked until the row's deadline, because an outage must not fail requests.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from requests_app.crash_points import crash_point
from requests_app.store.queue import LeasedRequest, Receipt, Subject
from requests_app.transitions.sending import Held, Refusal
from workers.chain.acl import AclCheck, acl_checks, denial_text, failure_text, unbound_text
from workers.chain.calldata import Unencodable
from workers.chain.rpc_errors import Answer, Failed, Missing, Ok
from workers.estimate import SECOND_LOOK_SECONDS, delay_after

if TYPE_CHECKING:
    from workers.shift import ShiftContext

TRIES: Final = 3
ERROR_SECONDS: Final = 1.0
REMEMBERED: Final = 50_000
LABEL_DENIED: Final = "not_allowed_on_host_acl"
LABEL_FAILED: Final = "host_acl_failed"
LABEL_INTERNAL: Final = "internal_server_error"


class Outcome(Protocol):
    """Where the decisions of a batch are collected."""

    denied: list[Refusal]
    delayed: list[tuple[Receipt, float]]


class HostAcl:
    """Remembers, within bounds, how often asking failed. Who was allowed is known from the job: only allowed ones are deferred."""

    def __init__(self) -> None:
        self._failures: OrderedDict[Subject, int] = OrderedDict()

    def check(
        self, context: ShiftContext, deliveries: Sequence[LeasedRequest], outcome: Outcome
    ) -> list[LeasedRequest]:
        """The deliveries that every host chain concerned allows; the others are put into `outcome`."""
        checks: dict[Subject, dict[int, list[AclCheck]]] = {}
        for delivery in deliveries:
            if delivery.deferred:
                continue
            try:
                checks[delivery.subject] = acl_checks(delivery.subject.kind, delivery.req_type, delivery.body or {})
            except Unencodable as error:
                refusal = Refusal(_held(delivery), LABEL_INTERNAL, f"Processing Failed: {error}")
                outcome.denied.append(refusal)
        answers = _ask(context, checks)
        refused = {refusal.held.subject for refusal in outcome.denied}
        allowed = []
        for delivery in deliveries:
            if delivery.subject in refused:
                continue
            if delivery.subject not in checks or self._verdict(delivery, answers[delivery.subject], outcome):
                self._failures.pop(delivery.subject, None)
                allowed.append(delivery)
        return allowed

    def _verdict(
        self, delivery: LeasedRequest, answers: dict[int, Answer[list[AclCheck]] | None], outcome: Outcome
    ) -> bool:
        """Whether all its chains allow it; None stands for a chain that is not configured."""
        denied = [check for answer in answers.values() if isinstance(answer, Ok) for check in answer.value]
        unbound = [chain_id for chain_id, answer in answers.items() if answer is None]
        failed = [(chain_id, answer) for chain_id, answer in answers.items() if isinstance(answer, Failed | Missing)]
        if denied and delivery.receipt.attempt == 1:
            # One node that lags behind a grant says the same as one that knows better: a no must be heard twice.
            outcome.delayed.append((delivery.receipt, SECOND_LOOK_SECONDS))
        elif denied:
            self._end(delivery, outcome, LABEL_DENIED, denial_text(denied))
        elif unbound:
            self._end(delivery, outcome, LABEL_FAILED, unbound_text(unbound[0]))
        elif failed:
            self._failed(delivery, *failed[0], outcome)
        else:
            return True
        return False

    def _failed(self, delivery: LeasedRequest, chain_id: int, answer: Failed | Missing, outcome: Outcome) -> None:
        if isinstance(answer, Missing):
            if delivery.overdue:
                self._end(delivery, outcome, LABEL_FAILED, failure_text(chain_id, answer.reason))
            else:
                outcome.delayed.append((delivery.receipt, delay_after(delivery.receipt.attempt)))
            return
        tries = self._failures.pop(delivery.subject, 0) + 1
        if tries >= TRIES or delivery.overdue:
            self._end(delivery, outcome, LABEL_FAILED, failure_text(chain_id, answer.error.message))
            return
        self._failures[delivery.subject] = tries
        while len(self._failures) > REMEMBERED:
            self._failures.popitem(last=False)
        outcome.delayed.append((delivery.receipt, ERROR_SECONDS))

    def _end(self, delivery: LeasedRequest, outcome: Outcome, label: str, text: str) -> None:
        self._failures.pop(delivery.subject, None)
        outcome.denied.append(Refusal(_held(delivery), label, text))


def _ask(
    context: ShiftContext, checks: dict[Subject, dict[int, list[AclCheck]]]
) -> dict[Subject, dict[int, Answer[list[AclCheck]] | None]]:
    """By subject and host chain: the denied checks, an error, or None for a chain without configuration."""
    by_chain: dict[int, list[Subject]] = {}
    for subject, mine in checks.items():
        for chain_id in mine:
            by_chain.setdefault(chain_id, []).append(subject)
    found: dict[Subject, dict[int, Answer[list[AclCheck]] | None]] = {subject: {} for subject in checks}
    for chain_id, subjects in by_chain.items():
        host = context.clients.hosts.get(chain_id)
        if host is None:
            for subject in subjects:
                found[subject][chain_id] = None
            continue
        crash_point("before_host_acl_rpc")
        answers = host.acl_check([checks[subject][chain_id] for subject in subjects])
        crash_point("after_host_acl_rpc")
        for subject, answer in zip(subjects, answers, strict=True):
            found[subject][chain_id] = answer
    return found


def _held(delivery: LeasedRequest) -> Held:
    return Held(delivery.subject, delivery.receipt)
