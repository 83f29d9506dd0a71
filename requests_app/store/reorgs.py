"""Blocks that gave way to others: their hashes, and the statements that undo what rested on them (design 5.4.3).

`transitions/reorgs.py` runs the undoing ones in one transaction. Blocks are numbers, hashes 32 bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from psycopg import Connection

from requests_app.states import TRANSITIONS, Actor, Kind, Status, Verb, sources
from requests_app.store.session import Row, fetch_all, fetch_one, fetch_only, run
from requests_app.store.signing import Fence


class Touched(NamedTuple):
    """A row that an orphaned event speaks of. `request`: the event is the row's own request."""

    kind: Kind
    request_id: int
    ref: bytes
    event_kind: int
    request: bool
    tx_hash: bytes


class EvidenceDue(NamedTuple):
    """A final row whose event gave way; `back`: another block holds it now."""

    id: int
    kind: Kind
    request_id: int
    tx_hash: bytes
    event_kind: int
    reorg_id: int
    back: bool


def known_hashes(conn: Connection[Any], source_id: int, floor: int, sealed: int) -> dict[int, bytes]:
    """Hashes of sealed blocks in floor..sealed, as far as they are stored."""
    parameters = {"source": source_id, "floor": max(0, floor), "sealed": sealed}
    return {row.block: bytes(row.hash) for row in fetch_all(conn, "reorgs", "known_hashes", parameters)}


def event_block(conn: Connection[Any], source_id: int, upto: int) -> tuple[int, bytes] | None:
    """The newest block at or below `upto` that the log holds an event of, with its hash; None below the first."""
    row = fetch_one(conn, "reorgs", "event_block", {"source": source_id, "upto": upto})
    return (row.block, bytes(row.block_hash)) if row is not None else None


def kept_from(conn: Connection[Any], source_id: int) -> int:
    """The first block from which on every band of the source can still be written."""
    return int(fetch_only(conn, "reorgs", "kept_from", {"source": source_id}).block)


def remember_window(conn: Connection[Any], source_id: int, blocks: int) -> int:
    """Keep how many blocks the node answers for at once, for the next listener."""
    return run(conn, "reorgs", "remember_window", {"source": source_id, "window": blocks})


def lock_source(conn: Connection[Any], source_id: int, fence: Fence) -> Row | None:
    """Lock seal and consumer cursors: block, head_hash, halted, chain_id, reorg_depth, start_block, held (the lease is ours)."""
    parameters = {"source": source_id, "resource": fence.resource, "instance": fence.instance, "epoch": fence.epoch}
    row = fetch_one(conn, "reorgs", "lock_source", parameters)
    if row is not None:
        fetch_all(conn, "reorgs", "lock_consumers", {"source": source_id})
    return row


def open_reorg(
    conn: Connection[Any], source_id: int, fork: int, sealed: int, old_hash: bytes | None, new_hash: bytes
) -> int:
    """Record that the blocks fork..sealed gave way: the record's id."""
    return int(fetch_only(conn, "reorgs", "open_reorg", {
        "source": source_id, "fork": fork, "sealed": sealed, "old_hash": old_hash, "new_hash": new_hash,
    }).id)  # fmt: skip


def orphan_envelopes(conn: Connection[Any], source_id: int, reorg: int, fork: int) -> int:
    """Move the envelopes from block `fork` on out of the log: how many."""
    return run(conn, "reorgs", "orphan_envelopes", {"source": source_id, "reorg": reorg, "fork": fork})


def withdraw_attempts(conn: Connection[Any], chain_id: int, fork: int) -> int:
    """Open the slots again that were mined from block `fork` on: how many."""
    return run(conn, "reorgs", "withdraw_attempts", {"chain": chain_id, "fork": fork})


def touched_requests(conn: Connection[Any], reorg: int, request_kinds: Collection[int]) -> list[Touched]:
    """The rows that the orphaned events speak of."""
    parameters = {"reorg": reorg, "request_kinds": list(request_kinds)}
    return [
        Touched(Kind(row.kind), row.request_id, bytes(row.ref), row.event_kind, row.request, bytes(row.tx_hash))
        for row in fetch_all(conn, "reorgs", "touched_requests", parameters)
    ]


def lock_rows(conn: Connection[Any], kind: Kind, ids: Collection[int]) -> dict[int, Status]:
    """Lock rows in key order: where each stands."""
    if not ids:
        return {}
    rows = fetch_all(conn, "reorgs", "lock_rows", {"ids": list(ids)}, table=kind.table)
    return {row.id: Status(row.status) for row in rows}


def withdraw_rows(
    conn: Connection[Any], kind: Kind, ids: Collection[int], *, deadline: float, epoch: int, reason: str
) -> int:
    """receipt_received -> tx_in_flight: how many. Rows in review only forget their reference."""
    if not ids:
        return 0
    (source,) = sources(Verb.WITHDRAW)
    run(conn, "reorgs", "forget_references", {"ids": list(ids)}, table=kind.table)
    return run(
        conn, "reorgs", "withdraw_rows",
        {
            "ids": list(ids), "kind": kind.value, "verb": Verb.WITHDRAW.value, "sources": [source], "source": source,
            "target": TRANSITIONS[Verb.WITHDRAW].target.value, "actor": Actor.CHAIN.value, "epoch": epoch,
            "deadline": deadline, "reason": reason,
        },
        table=kind.table, consensus=", gw_consensus_tx_hash = NULL" if kind is Kind.USER_DECRYPT else "",
    )  # fmt: skip


def drop_answers(
    conn: Connection[Any],
    reorg: int,
    *,
    unbound: Collection[bytes],
    kept: Collection[bytes],
    user_rows: Mapping[int, Status],
) -> None:
    """Take back references (`unbound`), shares and consensus hashes of orphaned blocks; `kept` completed their rows.

    `user_rows`: the user decryptions concerned. Shares of completed ones whose reference goes are kept for the answer.
    """
    completed = [row_id for row_id, status in user_rows.items() if status is Status.COMPLETED]
    if unbound:
        run(conn, "reorgs", "keep_shares", {"ids": completed})
        run(conn, "reorgs", "drop_references", {"refs": list(unbound)})
    run(conn, "reorgs", "drop_shares", {"reorg": reorg, "kept": list(kept)})
    run(conn, "reorgs", "drop_unclaimed", {"reorg": reorg})
    run(conn, "reorgs", "forget_consensus", {"reorg": reorg, "ids": list(user_rows)})


def note_evidence(
    conn: Connection[Any], reorg: int, source_id: int, found: Sequence[Touched], fork: int, after: int
) -> int:
    """Remember final rows whose events must come back before block `after`: how many."""
    if not found:
        return 0
    return run(conn, "reorgs", "note_evidence", {
        "reorg": reorg, "source": source_id, "fork": fork, "after": after,
        "kinds": [one.kind.value for one in found], "ids": [one.request_id for one in found],
        "event_kinds": [one.event_kind for one in found], "refs": [one.ref for one in found],
        "txs": [one.tx_hash for one in found],
    })  # fmt: skip


def lower_seal(
    conn: Connection[Any],
    source_id: int,
    reorg: int,
    fork: int,
    parent_hash: bytes | None,
    *,
    envelopes: int,
    withdrawn: int,
) -> int:
    """Seal, hashes and consumer cursors back to the block before `fork`."""
    return run(conn, "reorgs", "lower_seal", {
        "source": source_id, "reorg": reorg, "fork": fork, "parent_hash": parent_hash,
        "envelopes": envelopes, "withdrawn": withdrawn,
    })  # fmt: skip


def evidence_due(conn: Connection[Any], limit: int) -> list[EvidenceDue]:
    """Final rows whose event gave way long enough ago to judge."""
    rows = fetch_all(conn, "reorgs", "evidence_due", {"limit": limit})
    return [EvidenceDue(row.id, Kind(row.kind), *row[2:]) for row in rows]


def settle_evidence(conn: Connection[Any], verdicts: Mapping[int, str]) -> int:
    """Store what became of the events: how many."""
    if not verdicts:
        return 0
    parameters = {"ids": list(verdicts), "verdicts": list(verdicts.values())}
    return run(conn, "reorgs", "settle_evidence", parameters)
