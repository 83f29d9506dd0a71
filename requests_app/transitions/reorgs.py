"""Undo what rested on blocks that gave way to others: one transaction, or nothing (design 5.4.3; queue_settle 4.7).

Envelopes become orphans, attempts and slots are open again, rows that waited for an answer wait for their receipt again, payments
that were confirming are settling again, the seal and the consumers go back to the block before the fork. Final rows stay as they
are (I4); what they rest on must come back, or a person looks.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from psycopg import Connection

from requests_app.crash_points import crash_point
from requests_app.errors import RelayerError, SourceHalted, StaleEpoch
from requests_app.models.commands import Target
from requests_app.models.reviews import ReasonCode
from requests_app.states import FINAL, REQUEST_KINDS, Kind, Status
from requests_app.store import reorgs as store
from requests_app.store.reorgs import EvidenceDue, Touched
from requests_app.store.session import Row, run, transaction
from requests_app.store.signing import Fence
from requests_app.transitions import conflicts, generic, unconfirming

CONFLICTS: Final = 1000  # shown to a person before the chain's version is taken


class NotHalted(RelayerError):
    """The source is being read: there is no halt to end."""


class KeptNoLonger(RelayerError):
    """The log can no longer hold what would be read anew."""


@dataclass(frozen=True, slots=True)
class Fork:
    """Where two chains part: the first block that differs, the hash before it, and the new hash of the sealed block."""

    block: int
    parent_hash: bytes | None
    new_hash: bytes


@dataclass(frozen=True, slots=True)
class Undone:
    """What a reorganisation took back."""

    reorg: int
    envelopes: int
    slots: int
    withdrawn: int
    final: int


def undo(
    conn: Connection[Any], source_id: int, fork: Fork, fence: Fence, *, sealed: int, request_kinds: Collection[int]
) -> Undone:
    """Take back the blocks from `fork.block` up to the seal, which must still be `sealed`.

    Raises StaleEpoch (also when the seal moved), SourceHalted; then nothing was written.
    """
    with transaction(conn):
        source = store.lock_source(conn, source_id, fence)
        if source is None or not source.held or source.block != sealed:
            raise StaleEpoch(f"{fence.resource}: the seal of source {source_id} is not ours to lower")
        if source.halted is not None:
            raise SourceHalted(source.halted)
        undone = _take_back(conn, source_id, source, fork, fence.epoch, request_kinds)
        crash_point("before_reorg_commit")
    crash_point("after_reorg_commit")
    return undone


def adopt(conn: Connection[Any], source_id: int, block: int, fence: Fence, *, request_kinds: Collection[int]) -> Undone:
    """Take back what is stored of a halted source from `block` on, so that its listener reads those blocks anew, and end the halt.

    For a person who found the chain to be right and the log wrong; in the caller's transaction. What the source's conflicts name
    is shown to a person first: nobody would later. Raises StaleEpoch, NotHalted, KeptNoLonger; then nothing was written.
    """
    source = store.lock_source(conn, source_id, fence)
    if source is None or not source.held:
        raise StaleEpoch(f"{fence.resource}: source {source_id} is not ours to take back")
    if source.halted is None:
        raise NotHalted
    first = min(max(block, source.start_block), source.block + 1)
    kept = store.kept_from(conn, source_id)
    if first < kept:
        raise KeptNoLonger(f"what was read below block {kept} leaves the log, or has left it")
    conflicts.show(conn, fence.epoch, CONFLICTS)
    below = store.known_hashes(conn, source_id, first - 1, first - 1).get(first - 1)
    parent = source.head_hash if first > source.block else below
    undone = _take_back(conn, source_id, source, Fork(first, parent, b""), fence.epoch, request_kinds)
    if run(conn, "commands", "lift_halt", {"id": source_id}) != 1:
        raise NotHalted
    generic.close_reviews(conn, Target.SOURCE, [source_id], "take_chain")
    return undone


def _take_back(
    conn: Connection[Any], source_id: int, source: Row, fork: Fork, epoch: int, request_kinds: Collection[int]
) -> Undone:
    """Everything from the fork to the seal, whose row is locked."""
    sealed = source.block
    reorg = store.open_reorg(conn, source_id, fork.block, sealed, source.head_hash, fork.new_hash)
    envelopes = store.orphan_envelopes(conn, source_id, reorg, fork.block)
    slots = store.withdraw_attempts(conn, source.chain_id, fork.block)
    touched = store.touched_requests(conn, reorg, request_kinds)
    withdrawn, final = _rows(conn, reorg, fork, touched, epoch)
    payments = unconfirming.withdraw(conn, source_id, fork.block, epoch)
    withdrawn += payments.settling
    final += payments.settled
    store.note_evidence(conn, reorg, source_id, final, fork.block, sealed + source.reorg_depth)
    store.lower_seal(conn, source_id, reorg, fork.block, fork.parent_hash, envelopes=envelopes, withdrawn=withdrawn)
    return Undone(reorg, envelopes, slots, withdrawn, len({(one.kind, one.request_id) for one in final}))


def _rows(
    conn: Connection[Any], reorg: int, fork: Fork, touched: Sequence[Touched], epoch: int
) -> tuple[int, list[Touched]]:
    """Withdraw the rows that are not final: how many, and the events of the final ones."""
    withdrawn = 0
    final: list[Touched] = []
    statuses: dict[Kind, dict[int, Status]] = {}
    deadline = generic.deadline_seconds(Status.TX_IN_FLIGHT) or 0.0
    for kind in REQUEST_KINDS:
        mine = [one for one in touched if one.kind is kind]
        status = statuses[kind] = store.lock_rows(conn, kind, {one.request_id for one in mine})
        final += [one for one in mine if status.get(one.request_id) in FINAL]
        ids = {one.request_id for one in mine if one.request and status.get(one.request_id) not in FINAL}
        withdrawn += store.withdraw_rows(
            conn, kind, ids, deadline=deadline, epoch=epoch, reason=f"reorganisation from block {fork.block}"
        )
    unbound = {one.ref for one in touched if one.request}
    kept = {one.ref for one in final} - unbound
    store.drop_answers(conn, reorg, unbound=unbound, kept=kept, user_rows=statuses[Kind.USER_DECRYPT])
    return withdrawn, final


def judge_evidence(conn: Connection[Any], due: Sequence[EvidenceDue]) -> list[EvidenceDue]:
    """Close what came back; open a case for each final row whose event is gone for good. The latter, in one transaction."""
    gone = [one for one in due if not one.back]
    with transaction(conn):
        store.settle_evidence(conn, {one.id: "returned" if one.back else "vanished" for one in due})
        for kind in Kind:
            evidence = {
                one.request_id: {
                    "reorg": one.reorg_id,
                    "tx_hash": "0x" + bytes(one.tx_hash).hex(),
                    "event_kind": one.event_kind,
                    "note": "the row is final and stays; the event that decided it is no longer on the chain",
                }
                for one in gone
                if one.kind is kind
            }
            generic.open_reviews(conn, kind, evidence, ReasonCode.RECEIPT_VANISHED)
        crash_point("before_judge_evidence_commit")
    crash_point("after_judge_evidence_commit")
    return gone
