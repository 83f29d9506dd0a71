"""What the journal says of one payment."""

from __future__ import annotations

from typing import Any

from psycopg import Connection

from requests_app.ledger import Chained
from requests_app.store import ledger


def entries_of(conn: Connection[Any], ref: bytes) -> list[Chained]:
    """Its entries, in journal order."""
    return [one for one in ledger.journal(conn) if one.entry.ref == ref]
