"""Receipts for attempts that the log has not shown: success is noted, a final revert ends the request, a missing one waits.

The listener is the usual way; this looks after what it did not see. "Not found" is never a verdict: the bytes are broadcast
again (workers.broadcast), and a nonce that the finalized chain has consumed without any of our hashes goes to a person
(reference queue_settle 4.3 R5 and R6; B33, B45, B47).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from requests_app.crash_points import crash_point
from requests_app.states import Kind
from requests_app.store import attempts as store
from requests_app.store import nonces
from requests_app.store.attempts import Found, OpenAttempt
from requests_app.store.nonces import Signed
from requests_app.store.queue import Subject
from requests_app.store.session import retry_serialization
from requests_app.transitions import recording, sending
from requests_app.transitions.recording import Mined
from requests_app.transitions.sending import Reverted
from workers import payment_reverts, signers, verdicts
from workers.chain.calldata import ContractCall, Unencodable, encode_request
from workers.chain.errors import revert_of
from workers.chain.hexdata import hex_data
from workers.chain.rpc_errors import Answer, Failed, Ok
from workers.chain.views import Receipt
from workers.lane import Lane
from workers.verdicts import Depth

if TYPE_CHECKING:
    from workers.shift import ShiftContext

log = logging.getLogger("relayer.send")

LOOK_LIMIT: Final = 500
LOOK_AFTER_SECONDS: Final = 3.0
LONGEST_LOOK_SECONDS: Final = 60.0
INTERNAL: Final = "internal_server_error"


def look_up(context: ShiftContext, lane: Lane) -> int:
    """Ask for the receipts that are due and act on them; how many were found."""
    attempts = store.open_attempts(context.conn, lane.id, LOOK_LIMIT)
    lane.has_open = bool(attempts)
    if not attempts:
        lane.missing_since.clear()
        lane.absences.clear()
        lane.look_at.clear()
        lane.foreign_use = False
        return 0
    due = _due(lane, attempts)
    if not due:
        return 0
    found = _ask(context, lane, due)
    settled = [
        _mined(item, Found(item.nonce, item.seq, 1, receipt.block_number, receipt.block_hash, settled=True))
        for item, receipt in found
        if receipt is not None and receipt.status == 1
    ]
    reverted = [(item, receipt) for item, receipt in found if receipt is not None and receipt.status == 0]
    gone = [item for item, receipt in found if receipt is None]
    vanished = [
        _mined(item, Found(item.nonce, item.seq, None, None, None, settled=False))
        for item in gone
        if item.receipt_status is not None
    ]
    _record(context, lane, [*settled, *vanished])
    suspects, aside = _without_own(context, lane, _suspects(lane, found))
    if reverted or suspects:
        depth = verdicts.depth(context, lane)
        _judge_reverts(context, lane, reverted, depth)
        verdicts.judge_missing(context, lane, suspects, depth, aside)
    return len(found) - len(gone)


def _due(lane: Lane, attempts: Sequence[OpenAttempt]) -> list[OpenAttempt]:
    """Those old enough, or whose nonce the chain has passed; each is asked for less and less often."""
    now = monotonic()
    present = {item.nonce for item in attempts}
    for nonce in [nonce for nonce in lane.look_at if nonce not in present]:
        del lane.look_at[nonce]
        lane.missing_since.pop(nonce, None)
        lane.absences.pop(nonce, None)
    due = [
        item
        for item in attempts
        if (item.age_seconds >= LOOK_AFTER_SECONDS or lane.foreign_use) and lane.look_at.get(item.nonce, 0.0) <= now
    ]
    for item in due:
        pause = min(LONGEST_LOOK_SECONDS, max(1.0, item.age_seconds / 4))
        lane.look_at[item.nonce] = now + pause
    return due


def _ask(context: ShiftContext, lane: Lane, due: Sequence[OpenAttempt]) -> list[tuple[OpenAttempt, Receipt | None]]:
    """The receipts, None for "the node knows none"; attempts without a usable answer are left out.

    The count is asked first: a nonce below it was consumed before the receipts were looked for.
    """
    signers.refresh(context, lane)
    answers = of_hashes(context, [item.tx_hash for item in due])
    found: list[tuple[OpenAttempt, Receipt | None]] = []
    for item, answer in zip(due, answers, strict=True):
        if isinstance(answer, Ok) and (answer.value is None or answer.value.tx_hash == item.tx_hash):
            found.append((item, answer.value))
    return found


def of_hashes(context: ShiftContext, hashes: Sequence[bytes]) -> list[Answer[Receipt | None]]:
    """The receipts of these transactions; Ok(None): the node knows none."""
    crash_point("before_receipts_rpc")
    answers = context.clients.gateway.receipts(hashes)
    crash_point("after_receipts_rpc")
    return answers


def _mined(item: OpenAttempt, found: Found) -> Mined:
    return Mined(found, item.subject, item.tx_hash, item.purpose)


def _record(context: ShiftContext, lane: Lane, mined: Sequence[Mined]) -> None:
    if not mined:
        return
    crash_point("before_record_lookups_commit")
    retry_serialization(lambda: recording.record_lookups(context.conn, lane.id, mined))
    crash_point("after_record_lookups_commit")


def _suspects(lane: Lane, found: Sequence[tuple[OpenAttempt, Receipt | None]]) -> list[OpenAttempt]:
    """Attempts without a receipt at a nonce that the chain has consumed and none of whose other attempts has one."""
    decided = {item.nonce for item, receipt in found if receipt is not None}
    return [
        item
        for item, receipt in found
        if receipt is None and item.nonce < lane.chain_latest and item.nonce not in decided
    ]


def _without_own(
    context: ShiftContext, lane: Lane, suspects: Sequence[OpenAttempt]
) -> tuple[list[OpenAttempt], list[Signed]]:
    """The suspects whose nonce was not taken by an attempt of ours that was not looked for, and those attempts.

    A node's refusal proves nothing: a former holder, or another node, may have sent the same bytes (rule R3).
    """
    asked = {item.tx_hash for item in suspects}
    signed = nonces.signed_at(context.conn, lane.id, {item.nonce for item in suspects})
    aside = [one for one in signed if one.tx_hash not in asked]
    if not aside:
        return list(suspects), aside
    answers = of_hashes(context, [one.tx_hash for one in aside])
    unsaid = {one.nonce for one, answer in zip(aside, answers, strict=True) if not isinstance(answer, Ok)}
    own = [one for one, answer in zip(aside, answers, strict=True) if isinstance(answer, Ok) and answer.value]
    if own:
        crash_point("before_take_up_again_commit")
        nonces.take_up_again(context.conn, lane.id, own)
        crash_point("after_take_up_again_commit")
        for one in own:
            lane.look_at.pop(one.nonce, None)
    left = unsaid | {one.nonce for one in own}
    return [item for item in suspects if item.nonce not in left], [one for one in aside if one.nonce not in left]


def _judge_reverts(
    context: ShiftContext, lane: Lane, reverted: Sequence[tuple[OpenAttempt, Receipt]], depth: Depth
) -> None:
    """A revert is judged only when its block holds: until then the block is noted and the attempt stays open."""
    early = [pair for pair in reverted if not depth.holds(pair[1].block_number)]
    _record(
        context,
        lane,
        [
            _mined(item, Found(item.nonce, item.seq, 0, receipt.block_number, receipt.block_hash, settled=False))
            for item, receipt in early
        ],
    )
    final = [pair for pair in reverted if depth.holds(pair[1].block_number)]
    payment_reverts.judge(context, lane, [pair for pair in final if pair[0].subject.kind is Kind.PAYMENT])
    final = [pair for pair in final if pair[0].subject.kind is not Kind.PAYMENT]
    if not final:
        return
    replays = _replays(context, lane, final)
    ended = [_reverted(item, receipt, replays.get(item.subject)) for item, receipt in final]
    changed = retry_serialization(lambda: sending.revert(context.conn, lane.id, ended))
    log.warning(
        "transactions reverted on chain",
        extra={
            "action": "reverted",
            "signer": lane.name,
            "requests": len(changed),
            "labels": sorted({item.label for item in ended}),
        },
    )


def _replays(
    context: ShiftContext, lane: Lane, final: Sequence[tuple[OpenAttempt, Receipt]]
) -> dict[Subject, Answer[Any]]:
    """The same calls at the blocks in which they reverted: receipts do not say why. The called contract is checked."""
    bodies = store.request_bodies(context.conn, [item.subject for item, _ in final])
    by_block: dict[int, dict[Subject, ContractCall]] = {}
    for item, receipt in final:
        found = bodies.get(item.subject)
        try:
            to, calldata = encode_request(item.subject.kind, found[0], found[1]) if found else (b"", b"")
        except Unencodable:
            continue
        if to == receipt.to:
            by_block.setdefault(receipt.block_number, {})[item.subject] = ContractCall(to, calldata)
        else:
            log.error(
                "a receipt names another contract than the request",
                extra={"action": "receipt_mismatch", "tx_hash": hex_data(item.tx_hash)},
            )
    answers: dict[Subject, Answer[Any]] = {}
    for block, calls in by_block.items():
        crash_point("before_replay_rpc")
        replayed = context.clients.gateway.simulate(lane.address, list(calls.values()), block)
        crash_point("after_replay_rpc")
        answers.update(zip(calls, replayed, strict=True))
    return answers


def _reverted(item: OpenAttempt, receipt: Receipt, replay: Answer[Any] | None) -> Reverted:
    found = Found(item.nonce, item.seq, 0, receipt.block_number, receipt.block_hash, settled=True)
    revert = revert_of(replay.error) if isinstance(replay, Failed) else None
    where = f"Transaction reverted in block {receipt.block_number}"
    if revert is None:
        why = "all its gas was used" if receipt.used_all(item.gas_limit) else "the reason cannot be reproduced"
        return Reverted(item.subject, found, INTERNAL, f"{where}; {why}", None)
    text = f"{where}: {revert.text}: {revert.message}"
    return Reverted(item.subject, found, revert.label, text, revert.selector or None)
