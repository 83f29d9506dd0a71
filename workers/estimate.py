"""From a leased request to a transaction that may be signed: calldata and gas, all requests in one RPC batch.

Estimation is the simulation, and it comes before any nonce is taken (viem 3142). A revert that comes twice is a proven refusal,
except for the contract errors that time heals; no answer, or an answer about something else, is not, however often it comes:
the row's deadline ends that. No member holds up the others.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from requests_app import backoff
from requests_app.crash_points import crash_point
from requests_app.store.queue import LeasedRequest
from requests_app.transitions.sending import Held, Price, Refusal, Wanted
from workers.chain.calldata import ContractCall, Unencodable, encode_request
from workers.chain.errors import Revert, SendClass, classify_send, revert_of
from workers.chain.fees import FeeCeilingExceeded
from workers.chain.rpc_errors import Answer, Missing, Ok, RpcError, RpcUnavailable
from workers.lane import Lane

if TYPE_CHECKING:
    from workers.shift import ShiftContext

log = logging.getLogger("relayer.send")

FIRST_DELAY: Final = 1.0
LONGEST_DELAY: Final = 60.0
SECOND_LOOK_SECONDS: Final = 2.0
NODE_FAULTS: Final = 4  # the longest pause after an error of the node itself is that of so many
INTERNAL: Final = "internal_server_error"


@dataclass
class Estimated:
    """Three ways on: to be signed, to be refused, to be tried again after so many seconds.

    `silent`: the chain left at least one question without an answer. `no_gas`: the signer cannot pay.
    """

    wanted: list[Wanted] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    delayed: list[tuple[Held, float]] = field(default_factory=list)
    no_gas: bool = False
    silent: bool = False


def estimate(context: ShiftContext, lane: Lane, deliveries: Sequence[LeasedRequest]) -> Estimated:
    """Encode and simulate requests as sent from the lane's address."""
    result = Estimated()
    encoded: list[tuple[Held, int, ContractCall]] = []
    for delivery in deliveries:
        held = Held(delivery.subject, delivery.receipt)
        try:
            to, calldata = encode_request(delivery.subject.kind, delivery.req_type, delivery.body or {})
        except Unencodable as error:
            result.refusals.append(Refusal(held, INTERNAL, f"Processing Failed: {error}"))
            continue
        encoded.append((held, delivery.receipt.attempt, ContractCall(to, calldata)))
    crash_point("before_estimate_rpc")
    answers = context.clients.gateway.estimate_gas(lane.address, [call for _, _, call in encoded])
    crash_point("after_estimate_rpc")
    for (held, attempt, call), answer in zip(encoded, answers, strict=True):
        _sort_in(result, held, attempt, call, answer)
    return result


def delay_after(attempt: int) -> float:
    """Seconds until the next try after `attempt` fruitless ones: doubling, with jitter."""
    return backoff.doubled(attempt, FIRST_DELAY, LONGEST_DELAY) * random.uniform(0.75, 1.25)


def current_price(context: ShiftContext) -> Price | None:
    """Fees a few seconds old at most; None while the chain does not say, or asks more than the ceiling."""
    crash_point("before_quote_rpc")
    try:
        fees = context.clients.gateway.fees()
    except (RpcError, RpcUnavailable, FeeCeilingExceeded) as error:
        log.warning("no usable fees: %s", error, extra={"action": "no_fees"})
        return None
    crash_point("after_quote_rpc")
    return Price(fees.max_fee_per_gas, fees.max_priority_fee)


def _sort_in(result: Estimated, held: Held, attempt: int, call: ContractCall, answer: Answer[int]) -> None:
    if isinstance(answer, Ok):
        result.wanted.append(Wanted(held, call.to, call.data, answer.value))
    elif isinstance(answer, Missing):
        # Not the request's fault: it does not pay with longer and longer delays. The lane rests instead.
        result.silent = True
        result.delayed.append((held, delay_after(1)))
    else:
        revert = revert_of(answer.error)
        if revert is not None:
            _refused_by_contract(result, held, attempt, revert)
        elif classify_send(answer) is SendClass.INSUFFICIENT_FUNDS:
            result.no_gas = True
            result.delayed.append((held, delay_after(1)))
        else:
            # `attempt` counts deliveries, also those that died with their worker: it does not say how often the node failed.
            result.delayed.append((held, delay_after(min(attempt, NODE_FAULTS))))


def _refused_by_contract(result: Estimated, held: Held, attempt: int, revert: Revert) -> None:
    if attempt == 1:
        # A node behind the others (an old block time, a missing grant or fee) refuses too: a no must be heard twice.
        result.delayed.append((held, SECOND_LOOK_SECONDS))
        return
    if revert.transient:
        result.delayed.append((held, delay_after(attempt)))
        return
    if revert.operator:
        log.error(
            "the contract refuses every request: %s",
            revert.text,
            extra={"action": "send_refused_operator", "label": revert.label, "revert": revert.text},
        )
    text = f"Transaction simulation failed: Execution reverted: {revert.text}: {revert.message}"
    result.refusals.append(Refusal(held, revert.label, text, revert.selector or None))
