"""The payments of the reference's example, and short ways to make them."""

from __future__ import annotations

import itertools
from typing import Any, Final

from psycopg import Connection

from requests_app.store.intents import Intent
from requests_app.transitions import intents
from requests_app.transitions.intents import Terms

CHAIN: Final = "evm:31337"
USDC: Final = "0x5FbDB2315678afecb367f032d93F642f64180aa3"
USDT: Final = "0xe7f1725E7734CE288F8367e1Bb143E90bb3F0512"
PAYER: Final = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
MERCHANT: Final = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC"
TERMS: Final = Terms(CHAIN, USDC, PAYER, MERCHANT, 100_000_000)
_numbers = itertools.count(1)


def add_account(conn: Connection[Any], name: str | None = None) -> int:
    """A client account's id."""
    row = conn.execute(
        "INSERT INTO client_account (name) VALUES (%s) RETURNING id", (name or f"payer-{next(_numbers)}",)
    ).fetchone()
    assert row is not None
    return int(row[0])


def authorization(intent: Intent, **changes: Any) -> dict[str, Any]:
    """A signed authorization as the door stores it; the signature is not looked at behind the door."""
    nonce = f"0x{intent.ref.hex()}"
    return {"valid_after": "0", "valid_before": "4000000000", "nonce": nonce, "signature": f"0x{'11' * 65}", **changes}


def add_intent(conn: Connection[Any], account: int, **options: Any) -> Intent:
    """An intent in `created`."""
    return intents.create(conn, account, options.pop("terms", TERMS), **options)


def add_authorized(conn: Connection[Any], account: int, **options: Any) -> Intent:
    """An intent in `authorized`, with its job."""
    intent = add_intent(conn, account, **options)
    return intents.authorize(conn, account, intent.public_id, authorization(intent)).intent
