"""Commands of signers that nobody works for: the key was taken out of the settings, with commands waiting (reference queue_settle 3.4).

A command belongs to the holder of its signer. Without the key there is never one again, and the case of the command would wait for ever.
So the process that serves the other commands takes the signer's lease, which shuts out whoever held it, and ends them as rejected.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from requests_app.crash_points import crash_point
from requests_app.store import commands as store
from requests_app.store.signing import Fence
from requests_app.transitions.outcomes import rejected

if TYPE_CHECKING:
    from workers.shift import ShiftContext

log = logging.getLogger("relayer.commands")

INTERVAL_SECONDS: Final = 5.0
PATIENCE_SECONDS: Final = 60.0
"""How long nobody has held the signer: a process of the deployment before, or of the next one, may have the key."""


def reject(context: ShiftContext, own: Collection[str]) -> int:
    """End the commands of one signer that is none of `own` (lease resources) and that nobody has held for long; how many."""
    resource = store.unheld_signer(context.conn, own, PATIENCE_SECONDS)
    held = context.leases.try_hold(resource) if resource else None
    if resource is None or held is None:
        return 0
    try:
        address = resource.rpartition(":")[2]
        verdict = rejected(f"no worker has the key of {address}: give it back to the settings, or decide otherwise")
        crash_point("before_reject_keyless_commit")
        ended = store.reject_all(context.conn, Fence(resource, held.instance, held.epoch), verdict.result)
        crash_point("after_reject_keyless_commit")
    finally:
        held.release()
    if ended:
        log.error(
            "commands of a signer without a key are rejected",
            extra={"action": "commands_keyless", "resource": resource, "commands": ended[:20]},
        )
    return len(ended)
