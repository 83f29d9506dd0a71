"""What the settle worker reads and stores of payments: cases, nonces, signed bytes (design 2.3; reference queue_settle 4).

States are changed by `transitions.intents` alone; slots and attempts are shared with the gateway's requests (`store.attempts`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from psycopg import Connection

from requests_app.models.signing import AttemptKind, AttemptState, SlotState
from requests_app.states import IntentState, Kind
from requests_app.store import intents
from requests_app.store.attempts import Outgoing
from requests_app.store.intents import Intent
from requests_app.store.queue import Subject
from requests_app.store.session import fetch_all, fetch_one, run
from requests_app.store.signing import Fence


class SlotOf(NamedTuple):
    """The nonce of a payment. `signed`: bytes for it are stored."""

    signer_id: int
    nonce: int
    state: SlotState
    signed: bool


class Case(NamedTuple):
    """A payment as a delivery finds it. `effective`: its account may act; `slot`: its nonce that is not dead, else the last one."""

    intent: Intent
    effective: bool
    slot: SlotOf | None


class SignedAttempt(NamedTuple):
    """Signed bytes at the open nonce of a payment."""

    signer_id: int
    item: Outgoing


class Seen(NamedTuple):
    """How an authorization ended as the stored log shows it. 32-byte hash."""

    tx_hash: bytes
    block: int
    canceled: bool


class Closing(NamedTuple):
    """An open nonce whose payment may soon no longer be carried out. The fees (wei a gas) are the highest ever offered there."""

    nonce: int
    subject: Subject
    seq: int
    max_fee: int
    max_priority: int


class Signed(NamedTuple):
    """A payment's nonce, 32-byte hash and bytes, to be stored before any node sees them."""

    intent_id: int
    nonce: int
    tx_hash: bytes
    raw: bytes
    gas: int


def read_cases(conn: Connection[Any], ids: Sequence[int]) -> dict[int, Case]:
    """The payments with these ids that exist."""
    if not ids:
        return {}
    facts = {row.id: row for row in fetch_all(conn, "settling", "read_cases", {"ids": list(ids)})}
    found = {}
    for intent in intents.read_intents(conn, ids):
        row = facts.get(intent.id)
        if row is not None:
            slot = None if row.nonce is None else SlotOf(row.signer_id, row.nonce, SlotState(row.state), row.signed)
            found[intent.id] = Case(intent, row.effective, slot)
    return found


def lock_owners(conn: Connection[Any], ids: Sequence[int]) -> int:
    """Lock the accounts of these payments FOR SHARE, the first lock of a transaction: how many."""
    return len(fetch_all(conn, "settling", "lock_owners", {"ids": list(ids)}))


def claim_payments(
    conn: Connection[Any], fence: Fence, signer_id: int, payments: Sequence[Intent], source: IntentState
) -> list[tuple[int, int]]:
    """(place in `payments`, nonce) of those that may be signed, locked; after `lock_owners`, in the same transaction."""
    parameters = {
        **fence._asdict(),
        "signer": signer_id,
        "ids": [one.id for one in payments],
        "versions": [one.version for one in payments],
        "source": source.value,
    }
    return [(row.place, row.nonce) for row in fetch_all(conn, "settling", "claim_payments", parameters)]


def store_payments(
    conn: Connection[Any], signer_id: int, epoch: int, signed: Sequence[Signed], max_fee: int, max_priority: int
) -> bool:
    """Store slots and bytes of claimed payments (nonces dense, ascending) and move the signer's counter; False: it had moved."""
    parameters = {
        "signer": signer_id,
        "epoch": epoch,
        "ids": [one.intent_id for one in signed],
        "nonces": [one.nonce for one in signed],
        "hashes": [one.tx_hash for one in signed],
        "raws": [one.raw for one in signed],
        "gas": [one.gas for one in signed],
        "max_fee": max_fee,
        "max_priority": max_priority,
    }
    return fetch_one(conn, "settling", "store_payments", parameters) is not None


def attempts_of(conn: Connection[Any], ids: Sequence[int]) -> dict[int, list[SignedAttempt]]:
    """What is signed at the nonces of these payments that are not dead, newest first."""
    found: dict[int, list[SignedAttempt]] = {}
    for row in fetch_all(conn, "settling", "attempts_of", {"ids": list(ids)}) if ids else []:
        item = Outgoing(
            row.nonce,
            row.seq,
            bytes(row.tx_hash),
            bytes(row.raw_tx),
            AttemptState(row.state),
            row.siblings,
            Subject(Kind.PAYMENT, row.subject_id),
            AttemptKind(row.purpose),
        )
        found.setdefault(row.subject_id, []).append(SignedAttempt(row.signer_id, item))
    return found


def seen_spent(conn: Connection[Any], keys: Sequence[tuple[bytes, bytes, bytes]]) -> dict[bytes, Seen]:
    """What the stored log shows of authorizations (ref, token, payer), by ref."""
    if not keys:
        return {}
    refs, tokens, payers = (list(column) for column in zip(*keys, strict=True))
    rows = fetch_all(conn, "settling", "seen_spent", {"refs": refs, "tokens": tokens, "payers": payers})
    return {bytes(row.ref): Seen(bytes(row.tx_hash), row.block, row.canceled) for row in rows}


def closing_payments(
    conn: Connection[Any], signer_id: int, from_nonce: int, margin: float, limit: int
) -> list[Closing]:
    """Open nonces without a no-op, `from_nonce` or higher, whose authorization ends within `margin` seconds, lowest first."""
    parameters = {"signer": signer_id, "from_nonce": from_nonce, "margin": float(margin), "limit": limit}
    return [
        Closing(row.nonce, Subject(Kind.PAYMENT, row.subject_id), row.seq, int(row.max_fee), int(row.max_priority))
        for row in fetch_all(conn, "settling", "closing_payments", parameters)
    ]


def bury_reverted(conn: Connection[Any], intent_id: int) -> int:
    """Mark the final nonce of a payment dead whose call was mined there and reverted: how many."""
    return run(conn, "settling", "bury_reverted", {"id": intent_id})


def lost_payments(conn: Connection[Any], idle: float, limit: int) -> list[int]:
    """Ids of payments that wait for the settle worker since `idle` seconds with neither a job nor a parked letter."""
    return [row.id for row in fetch_all(conn, "settling", "lost_payments", {"idle": float(idle), "limit": limit})]


def asked_ends(conn: Connection[Any], signer_id: int, nonces: Sequence[int]) -> dict[int, int]:
    """Payments in review, by nonce, that end with these nonces: a person asked to spend them on nothing, and that was mined."""
    rows = fetch_all(conn, "settling", "asked_ends", {"signer": signer_id, "nonces": list(nonces)}) if nonces else []
    return {row.nonce: row.id for row in rows}


def own_hashes(conn: Connection[Any], ids: Sequence[int]) -> set[tuple[int, bytes]]:
    """(payment, 32-byte hash) of every transaction that was signed for these payments."""
    rows = fetch_all(conn, "settling", "own_hashes", {"ids": list(ids)}) if ids else []
    return {(row.subject_id, bytes(row.tx_hash)) for row in rows}
