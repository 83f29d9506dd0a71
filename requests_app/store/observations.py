"""What the log shows of payments, stored once and taken back with its blocks. Refs and hashes are 32 bytes, addresses 20.

`transitions/observing.py` makes the intents follow. Lock order: observations, intents, journal.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

from psycopg import Connection

from requests_app.store.session import fetch_all, run

# An observation `o` that is exactly what the intent `i` asks for; `sightings.judge` says the same of values.
EXACT: Final = """NOT o.canceled AND o.payee IS NOT NULL AND o.amount = i.amount AND lower(i.token) = '0x' || encode(o.token, 'hex')
   AND lower(i.payer) = '0x' || encode(o.authorizer, 'hex') AND lower(i.merchant) = '0x' || encode(o.payee, 'hex')"""


class Seen(NamedTuple):
    """An authorization that was used or canceled. `token` emitted the event; `position` is the event's."""

    ref: bytes
    position: int
    token: bytes
    authorizer: bytes
    tx_hash: bytes
    block_hash: bytes
    canceled: bool


class Transferred(NamedTuple):
    """The money that moved with an authorization: token units to `payee`. `position` is that of the Transfer."""

    ref: bytes
    tx_hash: bytes
    position: int
    payee: bytes
    amount: int


class Observation(NamedTuple):
    """A stored observation. `payee` and `amount` are None when no money moved with it."""

    position: int
    ref: bytes
    token: bytes
    authorizer: bytes
    payee: bytes | None
    amount: int | None
    canceled: bool
    tx_hash: bytes
    block_hash: bytes


class Withdrawn(NamedTuple):
    """An intent whose transaction on record was seen in a block that gave way."""

    id: int
    ref: bytes
    tx_hash: bytes


def observe(conn: Connection[Any], source_id: int, seen: Sequence[Seen], transfers: Sequence[Transferred]) -> None:
    """Store what is of payments of ours, once. Later money is added to what stands without."""
    if seen:
        money = _paired(seen, transfers)
        run(conn, "observations", "observe", {
            "source": source_id, "positions": [one.position for one in seen], "refs": [one.ref for one in seen],
            "tokens": [one.token for one in seen], "authorizers": [one.authorizer for one in seen],
            "payees": [moved.payee if (moved := money.get(one.position)) else None for one in seen],
            "amounts": [Decimal(moved.amount) if (moved := money.get(one.position)) else None for one in seen],
            "canceled": [one.canceled for one in seen], "txs": [one.tx_hash for one in seen],
            "block_hashes": [one.block_hash for one in seen],
        })  # fmt: skip
    if transfers:
        run(conn, "observations", "complete", {
            "source": source_id, "refs": [one.ref for one in transfers], "txs": [one.tx_hash for one in transfers],
            "positions": [one.position for one in transfers], "payees": [one.payee for one in transfers],
            "amounts": [Decimal(one.amount) for one in transfers],
        })  # fmt: skip


def _paired(seen: Sequence[Seen], transfers: Sequence[Transferred]) -> dict[int, Transferred]:
    """The money of each authorization of the same page, by the authorization's position."""
    used = sorted((one for one in seen if not one.canceled), key=lambda one: one.position, reverse=True)
    places: dict[tuple[bytes, bytes], list[int]] = {}
    for one in used:
        places.setdefault((one.ref, one.tx_hash), []).append(one.position)
    money: dict[int, Transferred] = {}
    for moved in sorted(transfers, key=lambda one: one.position):
        at = next((at for at in places.get((moved.ref, moved.tx_hash), ()) if at < moved.position), None)
        if at is not None:
            money.setdefault(at, moved)
    return money


def intents_of(conn: Connection[Any], source_id: int, refs: Collection[bytes]) -> list[int]:
    """The ids of this chain's intents with these refs, in order."""
    parameters = {"source": source_id, "refs": list(refs)}
    return [row.id for row in fetch_all(conn, "observations", "intents_of", parameters)] if refs else []


def on_chain(conn: Connection[Any], source_id: int, ids: Collection[int]) -> list[int]:
    """Those of these intents that settle on the source's chain, in order."""
    parameters = {"source": source_id, "ids": list(ids)}
    return [row.id for row in fetch_all(conn, "observations", "on_chain", parameters)] if ids else []


def of_refs(conn: Connection[Any], source_id: int, refs: Collection[bytes]) -> dict[bytes, list[Observation]]:
    """The observations of each ref, in the order of the log."""
    found: dict[bytes, list[Observation]] = {}
    if refs:
        for row in fetch_all(conn, "observations", "of_refs", {"source": source_id, "refs": list(refs)}):
            one = Observation(
                row.position, bytes(row.ref), bytes(row.token), bytes(row.authorizer), _bytes(row.payee),
                None if row.amount is None else int(row.amount), row.canceled, bytes(row.tx_hash), bytes(row.block_hash),
            )  # fmt: skip
            found.setdefault(one.ref, []).append(one)
    return found


def lock_seen(conn: Connection[Any], source_id: int, places: Sequence[tuple[int, bytes]]) -> set[int]:
    """The positions of those (position, block hash) that are still observed; they stay so until the transaction ends."""
    parameters = {
        "source": source_id,
        "positions": [position for position, _ in places],
        "block_hashes": [block_hash for _, block_hash in places],
    }
    return {row.position for row in fetch_all(conn, "observations", "lock_seen", parameters)}


def withdraw_observations(conn: Connection[Any], source_id: int, fork: int) -> list[Withdrawn]:
    """Remove what was seen from block `fork` on, and reconcile those blocks again: the intents that rest on it."""
    parameters = {"source": source_id, "fork": fork}
    rows = fetch_all(conn, "observations", "withdraw_observations", parameters)
    run(conn, "observations", "lower_recon", parameters)
    return [Withdrawn(row.id, bytes(row.ref), bytes(row.tx_hash)) for row in rows]


def resend(conn: Connection[Any], ids: Sequence[int]) -> int:
    """Make the open attempts of these intents due at once: how many."""
    return run(conn, "observations", "resend", {"ids": list(ids)}) if ids else 0


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)
