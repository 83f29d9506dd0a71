"""What the log contradicts itself about goes to a person, whoever read the contradiction (queue_settle 4.9)."""

from __future__ import annotations

import logging
from typing import Final

from requests_app.store.session import retry_serialization
from requests_app.store.signing import Fence
from requests_app.transitions import conflicts
from workers.leases import HeldLease
from workers.shift import ShiftContext

log = logging.getLogger("relayer.sweep")

INTERVAL: Final = 5.0
BATCH: Final = 100


def run(context: ShiftContext, lease: HeldLease) -> int:
    """Review new conflicts; how many."""
    fence = Fence(lease.resource, lease.instance, lease.epoch)
    done = retry_serialization(lambda: conflicts.review(context.conn, fence, BATCH))
    if done.conflicts:
        log.critical(
            "the log contradicts itself",
            extra={
                "action": "envelope_conflict",
                "conflicts": done.conflicts,
                "parked": [f"{one.kind.slug}/{one.id}" for one in done.parked[:50]],
                "ended": done.noted,
            },
        )
    return done.conflicts
