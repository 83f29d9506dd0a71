"""Ends of nonce slots: filled with nothing, final, opened again, proven dead (reference queue_settle 4.3, 4.6, 4.7).

What the chain shows is a fact and not fenced; burying a slot is a decision and carries the signer's fence.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from psycopg import Connection

from requests_app.models.signing import SlotState
from requests_app.states import Kind
from requests_app.store.queue import Subject
from requests_app.store.session import fetch_all, fetch_one, run
from requests_app.store.signing import Fence

STRAGGLERS: Final = 10_000
"""How far behind the highest final nonce of a signer one may become final: minutes of the busiest signer."""


class Unfilled(NamedTuple):
    """An open nonce that nothing of ours can take. Fees (wei a gas) are its last attempt's, `fills` its no-ops so far."""

    nonce: int
    seq: int
    max_fee: int
    max_priority: int
    subject: Subject
    fills: int


class Mined(NamedTuple):
    """A mined slot and the block in which its winner was seen."""

    nonce: int
    block: int
    block_hash: bytes


class Signed(NamedTuple):
    """An attempt at a nonce that is still open, whatever was said of it."""

    nonce: int
    seq: int
    tx_hash: bytes


class Closed(NamedTuple):
    """A slot that is over for ever: final, or dead when its nonce was spent on nothing (by `command_id`, if a person asked)."""

    nonce: int
    state: SlotState
    subject: Subject
    command_id: str | None


def attempts_to_fill(conn: Connection[Any], signer_id: int, limit: int) -> list[Unfilled]:
    """Open nonces whose every attempt is refused for good, lowest first."""
    rows = fetch_all(conn, "attempts", "attempts_to_fill", {"signer": signer_id, "limit": limit})
    return [
        Unfilled(
            row.nonce,
            row.seq,
            int(row.max_fee),
            int(row.max_priority),
            Subject(Kind(row.kind), row.subject_id),
            row.fills,
        )
        for row in rows
    ]


def slots_to_finalize(conn: Connection[Any], signer_id: int, finalized: int, limit: int) -> list[Mined]:
    """Mined slots below the finalized account nonce whose block is known, lowest first."""
    parameters = {"signer": signer_id, "finalized": finalized, "limit": limit, "stragglers": STRAGGLERS}
    rows = fetch_all(conn, "attempts", "slots_to_finalize", parameters)
    return [Mined(row.nonce, row.block_number, bytes(row.block_hash)) for row in rows if row.block_hash is not None]


def signed_at(conn: Connection[Any], signer_id: int, nonces: Collection[int]) -> list[Signed]:
    """Everything that was signed at these nonces, as far as they are open: any of it may be mined, refused or not."""
    if not nonces:
        return []
    rows = fetch_all(conn, "attempts", "signed_at", {"signer": signer_id, "nonces": sorted(nonces)})
    return [Signed(row.nonce, row.seq, bytes(row.tx_hash)) for row in rows]


def take_up_again(conn: Connection[Any], signer_id: int, found: Sequence[Signed]) -> int:
    """Look for these attempts again: how many."""
    parameters = {"signer": signer_id, "nonces": [one.nonce for one in found], "seqs": [one.seq for one in found]}
    return run(conn, "attempts", "take_up_again", parameters)


def finalize_slots(conn: Connection[Any], signer_id: int, nonces: Sequence[int]) -> list[Closed]:
    """Close these mined slots for ever: those that were still mined."""
    rows = fetch_all(conn, "attempts", "finalize_slots", {"signer": signer_id, "nonces": list(nonces)})
    return [
        Closed(row.nonce, SlotState(row.state), Subject(Kind(row.kind), row.subject_id), row.command_id) for row in rows
    ]


def reopen_slots(conn: Connection[Any], signer_id: int, nonces: Sequence[int]) -> int:
    """Look again for slots whose block is not the chain's any more: how many."""
    return run(conn, "attempts", "reopen_slots", {"signer": signer_id, "nonces": list(nonces)}) if nonces else 0


def bury_slots(conn: Connection[Any], fence: Fence, signer_id: int, nonces: Sequence[int]) -> set[int]:
    """Mark open slots as proven dead (rule R5), under the signer's lease: the nonces where that happened."""
    if not nonces:
        return set()
    parameters = {**fence._asdict(), "signer": signer_id, "nonces": list(nonces)}
    return {row.nonce for row in fetch_all(conn, "attempts", "bury_slots", parameters)}


def uncased_slots(conn: Connection[Any], signer_id: int, from_nonce: int, limit: int) -> list[tuple[int, Subject]]:
    """(nonce, subject) of the open slots from a nonce on whose subject has no open case, lowest first."""
    parameters = {"signer": signer_id, "from_nonce": from_nonce, "limit": limit}
    rows = fetch_all(conn, "attempts", "uncased_slots", parameters)
    return [(row.nonce, Subject(Kind(row.kind), row.subject_id)) for row in rows]


def mined_from(
    conn: Connection[Any], signer_id: int, count: int, patience: float, limit: int
) -> list[tuple[int, bytes]]:
    """(nonce, 32-byte hash) of slots that were seen mined `patience` seconds ago at nonces from the chain's count on, lowest first."""
    parameters = {"signer": signer_id, "count": count, "patience": patience, "limit": limit}
    rows = fetch_all(conn, "attempts", "mined_from", parameters)
    return [(row.nonce, bytes(row.winner_hash)) for row in rows if row.winner_hash is not None]


def unreachable_nonce(conn: Connection[Any], signer_id: int, chain_count: int, patience: float) -> int | None:
    """The lowest open nonce, out for `patience` seconds, when the chain's count stands at one below it that no slot of ours can take."""
    parameters = {"signer": signer_id, "count": chain_count, "patience": patience}
    row = fetch_one(conn, "attempts", "unreachable_nonce", parameters)
    return None if row is None else int(row.nonce)


class Missing(NamedTuple):
    """A nonce that is consumed without a hash of ours. `age`: seconds since that is known. `absent`: each endpoint's first and last
    look (R5), seconds ago.
    """

    nonce: int
    age: float
    absent: Mapping[str, Sequence[float]]


def missing_slots(conn: Connection[Any], signer_id: int, nonces: Sequence[int], forget_seconds: float) -> list[Missing]:
    """What was noted of open slots lately: not longer than `forget_seconds` ago."""
    if not nonces:
        return []
    parameters = {"signer": signer_id, "nonces": list(nonces), "forget": forget_seconds}
    return [
        Missing(
            row.nonce,
            row.missing["age"] + row.elapsed,
            {endpoint: [age + row.elapsed for age in ages] for endpoint, ages in row.missing["absent"].items()},
        )
        for row in fetch_all(conn, "attempts", "missing_slots", parameters)
    ]


def note_missing(conn: Connection[Any], fence: Fence, signer_id: int, found: Sequence[Missing]) -> int:
    """Note it on the open slots, under the signer's lease; how many."""
    if not found:
        return 0
    parameters = {
        **fence._asdict(),
        "signer": signer_id,
        "nonces": [one.nonce for one in found],
        "documents": [json.dumps({"age": one.age, "absent": one.absent}) for one in found],
    }
    return run(conn, "attempts", "note_missing", parameters)
