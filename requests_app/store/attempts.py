"""Nonce slots and signed attempts (design 2.3; reference queue_settle 4).

Rules that hold here: bytes are stored before any node sees them (R2), a subject has one slot that is not proven dead (R1).
Hashes are 32 bytes, fees wei a gas, gas in units. What a node says is a fact and not fenced; further attempts are decisions
and carry the signer's fence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from psycopg import Connection

from requests_app.models.signing import AttemptKind, AttemptState
from requests_app.states import Kind, ReqType
from requests_app.store.queue import Receipt, Subject
from requests_app.store.session import fetch_all, fetch_one, run
from requests_app.store.signing import Fence

MAX_TEXT: Final = 500


class Outgoing(NamedTuple):
    """Signed bytes whose end is not known. `siblings`: the nonce has other attempts of ours."""

    nonce: int
    seq: int
    tx_hash: bytes
    raw: bytes
    state: AttemptState
    siblings: bool
    subject: Subject
    purpose: AttemptKind = AttemptKind.PAY


class SendOutcome(NamedTuple):
    """What the node said to one broadcast. `live`: a node has, or may have, the bytes."""

    nonce: int
    seq: int
    state: AttemptState
    live: bool
    error_class: str | None
    error_text: str | None


class OpenAttempt(NamedTuple):
    """An attempt that the log has not shown yet, without its bytes."""

    nonce: int
    seq: int
    tx_hash: bytes
    state: AttemptState
    gas_limit: int
    receipt_status: int | None
    subject: Subject
    age_seconds: float
    purpose: AttemptKind = AttemptKind.PAY


class Replaceable(NamedTuple):
    """A nonce where a higher offer may help, with the bytes to offer again, the current offer, and the highest one so far.

    `waiting_from_block`: the chain's head when the current offer was first found to wait too long.
    """

    nonce: int
    raw: bytes
    underpriced: bool
    subject: Subject
    seq: int
    max_fee: int
    max_priority: int
    highest_max_fee: int
    highest_priority: int
    purpose: AttemptKind
    offer_seq: int
    waiting_from_block: int | None


class Replacement(NamedTuple):
    """A further signed attempt at a nonce."""

    nonce: int
    seq: int
    tx_hash: bytes
    raw: bytes
    max_fee: int
    max_priority: int
    gas: int
    purpose: AttemptKind = AttemptKind.REPLACE
    command_id: str | None = None


class Found(NamedTuple):
    """A receipt, or its absence (all None). `settled`: it decides the slot."""

    nonce: int
    seq: int
    status: int | None
    block: int | None
    block_hash: bytes | None
    settled: bool


def attempts_to_broadcast(
    conn: Connection[Any],
    signer_id: int,
    *,
    from_nonce: int,
    everything: bool,
    limit: int,
    unsure_after: float = 1.0,
    accepted_after: float = 10.0,
) -> list[Outgoing]:
    """The attempts whose turn it is, newest of each nonce, in nonce order from `from_nonce` on (seconds)."""
    parameters = {
        "signer": signer_id,
        "from_nonce": from_nonce,
        "everything": everything,
        "limit": limit,
        "unsure_after": float(unsure_after),
        "accepted_after": float(accepted_after),
    }
    return [
        Outgoing(
            row.nonce,
            row.seq,
            row.tx_hash,
            row.raw_tx,
            AttemptState(row.state),
            row.siblings,
            Subject(Kind(row.kind), row.subject_id),
            AttemptKind(row.purpose),
        )
        for row in fetch_all(conn, "attempts", "attempts_to_broadcast", parameters)
    ]


def record_sends(
    conn: Connection[Any], signer_id: int, outcomes: Sequence[SendOutcome], receipts: Sequence[Receipt] = ()
) -> int:
    """Store what the node said and acknowledge the jobs; how many attempts were still open. Facts: not fenced."""
    if not outcomes and not receipts:
        return 0
    parameters = {
        "signer": signer_id,
        "nonce": [outcome.nonce for outcome in outcomes],
        "seq": [outcome.seq for outcome in outcomes],
        "state": [outcome.state.value for outcome in outcomes],
        "live": [outcome.live for outcome in outcomes],
        "error_class": [outcome.error_class for outcome in outcomes],
        "error_text": [outcome.error_text and outcome.error_text[:MAX_TEXT] for outcome in outcomes],
        "job": [receipt.job_id for receipt in receipts],
        "attempt": [receipt.attempt for receipt in receipts],
    }
    row = fetch_one(conn, "attempts", "record_sends", parameters)
    return int(row.attempts) if row else 0


def open_attempts(conn: Connection[Any], signer_id: int, limit: int) -> list[OpenAttempt]:
    """The attempts whose end is not known, in nonce order. `age_seconds` counts from the first broadcast."""
    rows = fetch_all(conn, "attempts", "open_attempts", {"signer": signer_id, "limit": limit})
    return [
        OpenAttempt(
            row.nonce,
            row.seq,
            row.tx_hash,
            AttemptState(row.state),
            row.gas_limit,
            row.receipt_status,
            Subject(Kind(row.kind), row.subject_id),
            row.age_seconds,
            AttemptKind(row.purpose),
        )
        for row in rows
    ]


def record_lookups(conn: Connection[Any], signer_id: int, found: Sequence[Found]) -> int:
    """Store receipts on the attempts; how many attempts changed. Facts: not fenced."""
    if not found:
        return 0
    parameters = {
        "signer": signer_id,
        "nonce": [item.nonce for item in found],
        "seq": [item.seq for item in found],
        "status": [item.status for item in found],
        "block": [item.block for item in found],
        "block_hash": [item.block_hash for item in found],
        "settled": [item.settled for item in found],
    }
    row = fetch_one(conn, "attempts", "record_lookups", parameters)
    return int(row.attempts) if row else 0


def attempts_to_replace(
    conn: Connection[Any], signer_id: int, *, from_nonce: int, stuck_after: float, limit: int
) -> list[Replaceable]:
    """Underpriced attempts, and the lowest unmined one (`from_nonce`) when it is out for `stuck_after` seconds."""
    parameters = {"signer": signer_id, "from_nonce": from_nonce, "stuck_after": float(stuck_after), "limit": limit}
    return [
        Replaceable(
            row.nonce,
            row.raw_tx,
            row.error_class == "underpriced",
            Subject(Kind(row.kind), row.subject_id),
            row.highest_seq,
            int(row.max_fee_per_gas),
            int(row.max_priority_fee),
            int(row.highest_max_fee),
            int(row.highest_priority),
            AttemptKind(row.purpose),
            row.offer_seq,
            row.waiting_from_block,
        )
        for row in fetch_all(conn, "attempts", "attempts_to_replace", parameters)
    ]


def note_waiting(conn: Connection[Any], fence: Fence, signer_id: int, nonce: int, seq: int, head: int) -> bool:
    """Keep the chain's head with an offer that was found to wait too long, once; whether that was now."""
    parameters = {**fence._asdict(), "signer": signer_id, "nonce": nonce, "seq": seq, "head": head}
    return run(conn, "attempts", "note_waiting", parameters) == 1


def store_replacements(
    conn: Connection[Any], fence: Fence, signer_id: int, replacements: Sequence[Replacement]
) -> set[int]:
    """Store further attempts before any broadcast; the nonces where that happened."""
    if not replacements:
        return set()
    parameters = {
        **fence._asdict(),
        "signer": signer_id,
        "nonce": [item.nonce for item in replacements],
        "seq": [item.seq for item in replacements],
        "hash": [item.tx_hash for item in replacements],
        "raw": [item.raw for item in replacements],
        "max_fee": [item.max_fee for item in replacements],
        "max_priority": [item.max_priority for item in replacements],
        "gas": [item.gas for item in replacements],
        "purpose": [item.purpose.value for item in replacements],
        "command": [item.command_id for item in replacements],
    }
    return {row.nonce for row in fetch_all(conn, "attempts", "store_replacements", parameters)}


def request_bodies(
    conn: Connection[Any], subjects: Sequence[Subject]
) -> dict[Subject, tuple[ReqType | None, Mapping[str, Any]]]:
    """Form and canonical payload of each subject that still has one."""
    parameters = {"kind": [subject.kind.value for subject in subjects], "subject": [subject.id for subject in subjects]}
    return {
        Subject(Kind(row.kind), row.request_id): (ReqType(row.req_type) if row.req_type else None, row.body)
        for row in fetch_all(conn, "attempts", "request_bodies", parameters)
    }
