"""Final rows whose event gave way in a reorganisation: back in another block by now, or a person looks (design 5.4.3)."""

from __future__ import annotations

import logging
from typing import Any, Final

from psycopg import Connection

from requests_app.store.reorgs import evidence_due
from requests_app.transitions.reorgs import judge_evidence
from workers.leases import HeldLease
from workers.shift import ShiftContext

log = logging.getLogger("relayer.sweep")

INTERVAL: Final = 10.0
BATCH: Final = 500


def run(context: ShiftContext, lease: HeldLease) -> int:
    """Judge what is deep enough; how many events. Facts of the log: not fenced."""
    return settle(context.conn)


def settle(conn: Connection[Any]) -> int:
    """As `run`, on this connection."""
    due = evidence_due(conn, BATCH)
    if not due:
        return 0
    gone = judge_evidence(conn, due)
    if gone:
        log.critical(
            "events of final rows are gone from the chain",
            extra={"action": "receipt_vanished", "rows": sorted({(one.kind.slug, one.request_id) for one in gone})},
        )
    return len(due)
