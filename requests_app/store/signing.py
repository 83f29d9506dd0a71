"""Signers and the fence of their holder (design 2.3; reference queue_settle 4.8).

Nonces are dense and come from the signer's row alone; `next_nonce` is set from the chain once and never falls. Addresses are
20 bytes, balances wei. Slots and attempts stand in `store.attempts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from psycopg import Connection

from requests_app.errors import StaleEpoch
from requests_app.models.signing import SignerStatus
from requests_app.store.session import fetch_one, run


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
    NONCE_GAP = "nonce_gap"
    LOW_FEE_TOKEN = "low_fee_token"  # noqa: S105 - not a password


class SignerState(NamedTuple):
    """A signer as the database knows it. `next_nonce` None: never compared with the chain."""

    id: int
    status: SignerStatus
    reason: str | None
    next_nonce: int | None
    max_inflight: int
    chain_nonce_latest: int | None


class Synced(NamedTuple):
    """A signer after it was compared with the chain. `foreign_use`: its key has sent something that we did not.

    `reorg`: the last reorganisation of its chain that was undone (0: none), after which counts may have fallen. `still`: seconds since the
    count of mined transactions was last seen to rise, by whoever held the signer then.
    """

    signer: SignerState
    foreign_use: bool
    reorg: int
    still: float


def ensure_signers(conn: Connection[Any], chain_id: int, addresses: Sequence[bytes]) -> int:
    """Rows for the configured keys; how many are new."""
    return run(conn, "signing", "ensure_signers", {"chain_id": chain_id, "address": list(addresses)})


def sync_signer(
    conn: Connection[Any],
    fence: Fence,
    chain_id: int,
    address: bytes,
    *,
    latest: int,
    pending: int,
    balance: int | None,
    fee_balance: int | None = None,
    fee_allowance: int | None = None,
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
        "fee_balance": fee_balance,
        "fee_allowance": fee_allowance,
    }
    row = fetch_one(conn, "signing", "sync_signer", parameters)
    if row is None:
        raise StaleEpoch(f"{fence.resource}: the lease is not ours, or the signer is unknown")
    return Synced(_signer(row), row.foreign_use, row.reorg, row.still)


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


def _signer(row: Any) -> SignerState:
    return SignerState(
        row.id, SignerStatus(row.status), row.status_reason, row.next_nonce, row.max_inflight, row.chain_nonce_latest
    )
