"""A payment as its client sees it. Amounts are decimal text, hashes 0x hex, times UTC with Z, absent values null."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from requests_app.api.v1.printed import hex_text, time_text
from requests_app.authorizations import typed_data
from requests_app.services_payments import has_ended, transfer_of, valid_before
from requests_app.states import IntentState
from requests_app.store.intents import HistoryRow, Intent

# When to ask again, in seconds: the chain is quick at first, a person is not.
_PACE: Final[dict[IntentState, int]] = {
    IntentState.AUTHORIZED: 2,
    IntentState.SETTLING: 2,
    IntentState.CONFIRMING: 4,
    IntentState.NEEDS_REVIEW: 60,
}


def payment(intent: Intent) -> dict[str, Any]:
    """The whole payment; with what the payer is to sign while that is awaited."""
    return {
        "id": intent.public_id,
        "ref": hex_text(intent.ref),
        "state": intent.state.value,
        "version": intent.version,
        "chain": intent.chain,
        "token": intent.token,
        "payer": intent.payer,
        "merchant": intent.merchant,
        "amount": str(intent.amount),
        "tx_hash": hex_text(intent.tx_hash),
        "state_reason": intent.state_reason,
        "created_at": time_text(intent.created_at),
        "updated_at": time_text(intent.updated_at),
        "expires_at": time_text(intent.expires_at),
        "typed_data": _to_sign(intent),
    }


def timeline(intent: Intent, history: Sequence[HistoryRow]) -> dict[str, Any]:
    """Every state that the payment was in, oldest first."""
    return {
        "id": intent.public_id,
        "ref": hex_text(intent.ref),
        "state": intent.state.value,
        "transitions": [
            {
                "version": row.version,
                "from_state": row.from_state.value if row.from_state else None,
                "to_state": row.to_state.value,
                "actor": row.actor,
                "tx_hash": hex_text(row.tx_hash),
                "reason": row.reason,
                "at": time_text(row.at),
            }
            for row in history
        ],
    }


def seconds_until_poll(intent: Intent) -> int | None:
    """Retry-After of a payment on which somebody works; None for one that waits for its client, or has ended."""
    return None if has_ended(intent) else _PACE.get(intent.state)


def _to_sign(intent: Intent) -> dict[str, Any] | None:
    transfer = transfer_of(intent) if intent.state is IntentState.CREATED else None
    return typed_data(transfer, valid_before(intent)) if transfer else None
