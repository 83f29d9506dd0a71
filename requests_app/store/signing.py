"""Signers, nonce slots and attempts (design 2.3; reference queue_settle 4).

Rules that hold here: bytes are stored before any node sees them (R2), a subject has one slot that is not proven dead (R1),
nonces are dense (R4) and next_nonce never falls. Addresses are 20 bytes, hashes 32, fees wei a gas, gas in units.
State changes of requests stand in `transitions.sending`, which uses these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from psycopg import Connection

from requests_app.errors import StaleEpoch
from requests_app.models.signing import AttemptState, SignerStatus
from requests_app.states import Kind, ReqType
from requests_app.store.queue import Receipt, Subject
from requests_app.store.session import fetch_all, fetch_one, run

MAX_TEXT = 500


class Fence(NamedTuple):
    """The lease under which a worker decides: proven inside each writing transaction."""

    resource: str
    instance: str
    epoch: int


class SignerReason(StrEnum):
    """Why a signer takes no new work. Only the reason that the worker gave itself is lifted by the worker."""

    FOREIGN_NONCE = "foreign_nonce"
    INSUFFICIENT_FUNDS = "insufficient_funds"
    REFUSED_BYTES = "refused_bytes"
    HASH_MISMATCH = "hash_mismatch"


class SignerState(NamedTuple):
    """A signer as the database knows it. `next_nonce` None: never compared with the chain."""

    id: int
    status: SignerStatus
    reason: str | None
    next_nonce: int | None
    max_inflight: int
    chain_nonce_latest: int | None


class Synced(NamedTuple):
    """A signer after it was compared with the chain. `foreign_use`: its key has sent something that we did not."""

    signer: SignerState
    foreign_use: bool


class Outgoing(NamedTuple):
    """Signed bytes whose end is not known. `siblings`: the nonce has other attempts of ours."""

    nonce: int
    seq: int
    tx_hash: bytes
    raw: bytes
    state: AttemptState
    siblings: bool
    subject: Subject


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


class Found(NamedTuple):
    """A receipt, or its absence (all None). `settled`: it decides the slot."""

    nonce: int
    seq: int
    status: int | None
    block: int | None
    block_hash: bytes | None
    settled: bool


def ensure_signers(conn: Connection[Any], chain_id: int, addresses: Sequence[bytes]) -> int:
    """Rows for the configured keys; how many are new."""
    return run(conn, "signing", "ensure_signers", {"chain_id": chain_id, "address": list(addresses)})


def find_signer(conn: Connection[Any], signer_id: int) -> SignerState | None:
    """The signer's row as it stands."""
    row = fetch_one(conn, "signing", "find_signer", {"signer": signer_id})
    return None if row is None else _signer(row)


def sync_signer(
    conn: Connection[Any],
    fence: Fence,
    chain_id: int,
    address: bytes,
    *,
    latest: int,
    pending: int,
    balance: int | None,
) -> Synced:
    """Compare the counter with the chain's counts of mined (`latest`) and known (`pending`) transactions.

    `latest` must have been read before this call: the counter may only have grown since. Raises StaleEpoch.
    """
    parameters = {
        **fence._asdict(),
        "chain_id": chain_id,
        "address": address,
        "latest": latest,
        "pending": pending,
        "balance": balance,
    }
    row = fetch_one(conn, "signing", "sync_signer", parameters)
    if row is None:
        raise StaleEpoch(f"{fence.resource}: the lease is not ours, or the signer is unknown")
    return Synced(_signer(row), row.foreign_use)


def set_signer_status(
    conn: Connection[Any],
    fence: Fence,
    signer_id: int,
    status: SignerStatus,
    reason: SignerReason | None,
    *,
    was: SignerStatus,
    was_reason: SignerReason | None = None,
) -> bool:
    """Change a signer's status if it is still as it was; whether that happened."""
    parameters = {
        **fence._asdict(),
        "signer": signer_id,
        "status": status.value,
        "reason": reason.value if reason else None,
        "from_status": was.value,
        "from_reason": was_reason.value if was_reason else None,
    }
    return run(conn, "signing", "set_signer_status", parameters) == 1


def hold_fence(conn: Connection[Any], fence: Fence) -> None:
    """Lock the lease row until the caller's transaction ends. Raises StaleEpoch when it is no longer ours."""
    if fetch_one(conn, "signing", "hold_fence", fence._asdict()) is None:
        raise StaleEpoch(f"{fence.resource}: epoch {fence.epoch} is over")


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
        )
        for row in fetch_all(conn, "signing", "attempts_to_broadcast", parameters)
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
    row = fetch_one(conn, "signing", "record_sends", parameters)
    return int(row.attempts) if row else 0


def open_attempts(conn: Connection[Any], signer_id: int, limit: int) -> list[OpenAttempt]:
    """The attempts whose end is not known, in nonce order. `age_seconds` counts from the first broadcast."""
    rows = fetch_all(conn, "signing", "open_attempts", {"signer": signer_id, "limit": limit})
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
    row = fetch_one(conn, "signing", "record_lookups", parameters)
    return int(row.attempts) if row else 0


def request_bodies(
    conn: Connection[Any], subjects: Sequence[Subject]
) -> dict[Subject, tuple[ReqType | None, Mapping[str, Any]]]:
    """Form and canonical payload of each subject that still has one."""
    parameters = {"kind": [subject.kind.value for subject in subjects], "subject": [subject.id for subject in subjects]}
    return {
        Subject(Kind(row.kind), row.request_id): (ReqType(row.req_type) if row.req_type else None, row.body)
        for row in fetch_all(conn, "signing", "request_bodies", parameters)
    }


def finalize_slots(conn: Connection[Any], signer_id: int, finalized: int) -> int:
    """Close mined slots below the finalized account nonce for ever; how many."""
    row = fetch_one(conn, "signing", "finalize_slots", {"signer": signer_id, "finalized": finalized})
    return int(row.slots) if row else 0


def _signer(row: Any) -> SignerState:
    return SignerState(
        row.id, SignerStatus(row.status), row.status_reason, row.next_nonce, row.max_inflight, row.chain_nonce_latest
    )
