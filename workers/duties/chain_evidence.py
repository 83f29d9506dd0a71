"""What the chain knows of overdue rows: receipts of their transactions, answers to their references. Found events are applied."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from requests_app.config import config
from requests_app.crash_points import crash_point
from requests_app.states import Kind
from requests_app.store import envelopes, sweep
from requests_app.store.sweep import Attempt, Overdue
from workers.apply import Applier
from workers.blocks import Blocks, Unreadable
from workers.chain.endpoints import LAG_BLOCKS
from workers.chain.events import REQUEST_KINDS, Envelope, decode_logs
from workers.chain.gateway import GatewayClient
from workers.chain.hexdata import hex_data
from workers.chain.rpc_errors import Answer, Ok, RpcError, RpcUnavailable
from workers.chain.views import Receipt
from workers.facts import Reader, contracts_of
from workers.listener import GATEWAY
from workers.shift import ShiftContext
from workers.thresholds import thresholds_of

log = logging.getLogger("relayer.sweep")


@dataclass(slots=True)
class ReceiptEvidence:
    """Row ids by what the receipts of their attempts say. `unknown`: the chain could not be asked about every attempt."""

    mined: set[int] = field(default_factory=set)
    reverted: set[int] = field(default_factory=set)
    unknown: set[int] = field(default_factory=set)
    evidence: dict[int, dict[str, Any]] = field(default_factory=dict)


@dataclass(slots=True)
class AnswerEvidence:
    """Row ids by what the gateway says of their references. A row that it said nothing about is in none.

    `doubtful`: it says that there is no answer, but cannot know, or contradicts another node.
    """

    answered: set[int] = field(default_factory=set)
    silent: set[int] = field(default_factory=set)
    doubtful: set[int] = field(default_factory=set)


def receipts(context: ShiftContext, kind: Kind, ids: Sequence[int]) -> ReceiptEvidence:
    """Ask for the receipts of every attempt that carries one of these rows, and apply the events of the mined ones."""
    attempts = sweep.attempts_of(context.conn, [(kind, row_id) for row_id in ids])
    asked = [attempt for attempt in attempts if attempt.carries]
    crash_point("before_overdue_receipts_rpc")
    answers = context.clients.gateway.receipts([attempt.tx_hash for attempt in asked])
    crash_point("after_overdue_receipts_rpc")
    found = ReceiptEvidence(evidence=_described(attempts))
    logs: list[Any] = []
    for attempt, answer in zip(asked, answers, strict=True):
        receipt = _receipt(attempt, answer, found)
        if receipt is not None:
            logs += receipt.logs
    if logs:
        contracts = context.clients.gateway.contracts
        store_and_apply(context, [one for one in decode_logs(logs).envelopes if one.contract in contracts])
    return found


def answers(context: ShiftContext, kind: Kind, rows: Sequence[Overdue]) -> AnswerEvidence:
    """Ask the gateway whether it has answered; read and apply the events of those that it has."""
    asked = [row for row in rows if row.ref is not None]
    refs = [row.ref for row in asked if row.ref is not None]
    found = AnswerEvidence()
    crash_point("before_overdue_answers_rpc")
    done = _done(context.clients.gateway, kind, refs)
    crash_point("after_overdue_answers_rpc")
    for row, answer in zip(asked, done, strict=True):
        if answer is not None:
            (found.answered if answer else found.silent).add(row.id)
    if found.silent and not _knows(context):
        found.silent, found.doubtful = set(), found.silent
    answered = [row for row in asked if row.id in found.answered]
    if answered:
        _read_again(context, answered)
    return found


def _knows(context: ShiftContext) -> bool:
    """Whether silence means something: the node is not far behind the log, and the log does not contradict the chain."""
    source = envelopes.read_source(context.conn, GATEWAY)
    if source is None or source.halted is not None:
        return False
    try:
        return bool(Blocks(context.clients.gateway).head().number >= source.block - LAG_BLOCKS)
    except (RpcError, RpcUnavailable, Unreadable) as error:
        log.warning("the gateway's head is not known: %s", error, extra={"action": "head_unknown"})
        return False


def repair(context: ShiftContext, receipts: Sequence[Receipt], ref: bytes) -> bool:
    """Apply what these receipts show of our contracts, storing what the log lacks; whether they show anything of `ref`."""
    contracts = context.clients.gateway.contracts
    logs = [one for receipt in receipts for one in receipt.logs]
    found = [one for one in decode_logs(logs).envelopes if one.contract in contracts]
    store_and_apply(context, found)
    return any(one.ref == ref for one in found)


def _receipt(attempt: Attempt, answer: Answer[Receipt | None], found: ReceiptEvidence) -> Receipt | None:
    """Sort one answer in; the receipt when it carries the request's events."""
    if not isinstance(answer, Ok):
        found.unknown.add(attempt.id)
        return None
    receipt = answer.value
    if receipt is None or receipt.tx_hash != attempt.tx_hash:
        return None
    (found.mined if receipt.status == 1 else found.reverted).add(attempt.id)
    return receipt if receipt.status == 1 else None


def _described(attempts: Iterable[Attempt]) -> dict[int, dict[str, Any]]:
    evidence: dict[int, dict[str, Any]] = {}
    for attempt in attempts:
        evidence.setdefault(attempt.id, {"attempts": []})["attempts"].append(
            {
                "tx_hash": hex_data(attempt.tx_hash),
                "signer": hex_data(attempt.address),
                "nonce": attempt.nonce,
                "state": attempt.state,
                "sent": attempt.send_count,
            }
        )
    return evidence


def _done(gateway: GatewayClient, kind: Kind, refs: Sequence[bytes]) -> list[bool | None]:
    """Whether each reference is answered; None where the gateway did not say."""
    if kind is not Kind.INPUT_PROOF:
        return [_flag(answer) for answer in gateway.is_decryption_done(refs)]
    verified, rejected = gateway.is_proof_verified(refs), gateway.is_proof_rejected(refs)
    return [_either(_flag(yes), _flag(no)) for yes, no in zip(verified, rejected, strict=True)]


def _flag(answer: Answer[bool]) -> bool | None:
    return answer.value if isinstance(answer, Ok) else None


def _either(first: bool | None, second: bool | None) -> bool | None:
    if first or second:
        return True
    return None if first is None or second is None else False


def _read_again(context: ShiftContext, rows: Sequence[Overdue]) -> None:
    """Events of these references, from the first request's block to the seal, once more from the chain."""
    source = envelopes.read_source(context.conn, GATEWAY)
    if source is None:
        return
    first = min(row.receipt_block or source.start_block for row in rows)
    try:
        crash_point("before_read_again_rpc")
        found = Blocks(context.clients.gateway).answers_of([row.ref for row in rows if row.ref], first, source.block)
        crash_point("after_read_again_rpc")
    except (RpcError, RpcUnavailable, Unreadable) as error:
        log.warning("answers not read again: %s", error, extra={"action": "read_again_failed"})
        return
    store_and_apply(context, found)


def store_and_apply(context: ShiftContext, found: Sequence[Envelope]) -> None:
    """Store what the log lacks below the seal, then apply it. What lies above the seal is the listener's."""
    source = envelopes.read_source(context.conn, GATEWAY)
    below = [one for one in found if source is not None and one.position <= envelopes.last_position(source.block)]
    if not below:
        return
    crash_point("before_insert_below_seal_commit")
    new = envelopes.insert_below_seal(context.conn, GATEWAY, below, request_kinds=REQUEST_KINDS)
    crash_point("after_insert_below_seal_commit")
    if new:
        log.error("events were missing from the log", extra={"action": "log_repaired", "count": new})
    settled = config()
    reader = Reader(contracts_of(settled), thresholds_of(settled, context.clients))
    Applier(GATEWAY, reader).apply_now(context.conn, below)
