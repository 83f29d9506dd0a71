"""Send errors, classified as data (queue_settle 4.5), and the way from an RPC error to a decoded revert.

The message is matched before the code: providers wrap everything in -32000 or -32603. A text that nobody knows is class
`unknown`, which means "may have been sent".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from workers.chain.reverts import Revert, decode_revert, is_revert, revert_of
from workers.chain.rpc_errors import Failed, Missing, Ok, RpcError, RpcUnavailable

__all__ = ["SEND_RULES", "Revert", "SendClass", "SendRule", "classify_send", "decode_revert", "is_revert", "revert_of"]


class SendClass(StrEnum):
    """What an answer to eth_sendRawTransaction says about these bytes."""

    ACCEPTED = "accepted"
    ALREADY_KNOWN = "already_known"
    NONCE_TOO_LOW = "nonce_too_low"
    NONCE_TOO_HIGH = "nonce_too_high"
    REPLACEMENT_UNDERPRICED = "replacement_underpriced"
    UNDERPRICED = "underpriced"
    FEE_CAP = "fee_cap"
    INSUFFICIENT_FUNDS = "insufficient_funds"
    POOL_FULL = "pool_full"
    REJECTED_PAYLOAD = "rejected_payload"
    REVERTED = "reverted"
    RATE_LIMITED = "rate_limited"
    TRANSPORT_BEFORE = "transport_before"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class SendRule:
    """Messages (regular expression, lower case) and JSON-RPC codes that mean `send_class`."""

    send_class: SendClass
    pattern: str
    codes: frozenset[int] = frozenset()


# Order matters: the first match wins, and special texts precede the general ones they contain.
SEND_RULES: Final[tuple[SendRule, ...]] = (
    SendRule(
        SendClass.REPLACEMENT_UNDERPRICED,
        r"replacement ?transaction ?(is )?underpriced|another transaction with (the )?same nonce|replacementunderpriced"
        r"|replacement fee too low|pool\(replacementunderpriced",
    ),
    SendRule(
        SendClass.ALREADY_KNOWN,
        r"already ?known|(?<!un)known transaction|already ?imported|same hash was already imported"
        r"|transaction already exists|already in (the )?(mempool|pool)",
    ),
    SendRule(
        SendClass.NONCE_TOO_HIGH,
        r"nonce (is )?too high|nonce ?gap|exceeds next nonce|nonce too far in the future|nonce out of range"
        r"|nonce too distant",
    ),
    SendRule(
        SendClass.NONCE_TOO_LOW,
        r"nonce (is )?too low|old ?nonce|pool\(stale\)|invalid transaction nonce|nonce has already been used"
        r"|nonce already used",
    ),
    SendRule(SendClass.FEE_CAP, r"exceeds the configured cap"),
    SendRule(
        SendClass.UNDERPRICED,
        r"underpriced|fee ?too ?low|(max fee|fee cap|feecap|maxfeepergas).{0,40}less than.{0,10}block base ?fee"
        r"|gas price (is )?(below|too low)|max priority fee per gas.{0,20}(minimum|below)|tip.{0,20}below",
    ),
    SendRule(
        SendClass.INSUFFICIENT_FUNDS,
        r"insufficient funds|insufficientfunds|overdraft|not enough (funds|balance)|insufficient balance for (gas|transfer)"
        r"|upfront cost exceeds account balance",
    ),
    SendRule(
        SendClass.POOL_FULL,
        r"tx ?pool is full|pool is full|too many transactions in the queue|queue (is )?full|pool overflow"
        r"|transaction limit for account",
    ),
    SendRule(
        SendClass.REJECTED_PAYLOAD,
        r"intrinsic gas too low|exceeds block gas limit|gas limit (is )?too high|gas limit exceeded|oversized data|invalid sender"
        r"|(invalid|wrong|incorrect) chain ?id|invalid signature|transaction type not supported|rlp:|failed to decode"
        r"|max initcode size|gas floor|gas required exceeds allowance|max priority fee per gas higher than max fee",
    ),
    SendRule(SendClass.REVERTED, r"execution reverted|transaction reverted|vm execution error.*revert", frozenset({3})),
    SendRule(
        SendClass.RATE_LIMITED,
        r"rate ?limit|limit exceeded|too many requests|capacity exceeded|throughput",
        frozenset({-32005, 429}),
    ),
)
_COMPILED: Final = tuple((rule, re.compile(rule.pattern)) for rule in SEND_RULES)


def classify_send(
    answer: Ok[Any] | Failed | Missing | RpcError | RpcUnavailable, expected_hash: str | None = None
) -> SendClass:
    """The class of one answer to eth_sendRawTransaction.

    `expected_hash` (0x text) makes a returned other hash `unknown`: something between us and the node rewrote the bytes.
    """
    if isinstance(answer, Ok):
        same = isinstance(answer.value, str) and (
            expected_hash is None or answer.value.lower() == expected_hash.lower()
        )
        return SendClass.ACCEPTED if same else SendClass.UNKNOWN
    if isinstance(answer, Missing | RpcUnavailable):
        if answer.answer_status == 429:
            return SendClass.RATE_LIMITED
        return SendClass.UNKNOWN if answer.sent else SendClass.TRANSPORT_BEFORE
    error = answer.error if isinstance(answer, Failed) else answer
    return classify_message(error.code, error.message)


def classify_message(code: int, message: str) -> SendClass:
    """The class of a JSON-RPC error object: by message first, then by code, else unknown."""
    text = message.lower()
    for rule, pattern in _COMPILED:
        if pattern.search(text):
            return rule.send_class
    return next((rule.send_class for rule in SEND_RULES if code in rule.codes), SendClass.UNKNOWN)
