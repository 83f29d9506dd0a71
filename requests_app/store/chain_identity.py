"""Which chain a database belongs to: the genesis hash of its first start, for ever (design 5.6.1)."""

from __future__ import annotations

from typing import Any

from psycopg import Connection

from requests_app.crash_points import crash_point
from requests_app.errors import ForeignChain
from requests_app.store.session import fetch_one


def claim_identity(conn: Connection[Any], chain_id: int, genesis: bytes) -> None:
    """Bind this database to the chain with that genesis hash. Raises ForeignChain when it belongs to another one."""
    parameters = {"chain_id": chain_id, "genesis": genesis}
    # A twin that commits between snapshot and insert leaves the first answer empty; the second one sees it.
    crash_point("before_identity_commit")
    row = fetch_one(conn, "envelopes", "claim_identity", parameters) or fetch_one(
        conn, "envelopes", "claim_identity", parameters
    )
    crash_point("after_identity_commit")
    if row is None or bytes(row.genesis_hash) != genesis:
        known = bytes(row.genesis_hash).hex() if row else "unknown"
        raise ForeignChain(
            f"chain {chain_id} has genesis 0x{genesis.hex()}, but this database belongs to 0x{known}: "
            "reset database and chain together, or point to the right chain"
        )
