"""Taking the chain's version of what a halted source holds: a person's order, carried out in one transaction (design 5.4.3)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from psycopg import Connection

from requests_app.crash_points import crash_point
from requests_app.source_control import TAKE_CHAIN
from requests_app.store import commands as store
from requests_app.store.commands import OpenCommand, Outcome
from requests_app.store.session import retry_serialization, transaction
from requests_app.store.signing import Fence, hold_fence
from requests_app.transitions import reorgs
from requests_app.transitions.outcomes import Verdict, rejected
from requests_app.transitions.reorgs import KeptNoLonger, NotHalted
from workers.chain.events import REQUEST_KINDS

if TYPE_CHECKING:
    from workers.shift import ShiftContext

log = logging.getLogger("relayer.commands")


def take_chain(context: ShiftContext, fence: Fence, command: OpenCommand) -> int:
    """Undo, end of the halt and end of the command together; 1 when it ended. Raises StaleEpoch with nothing written."""

    def work() -> tuple[Verdict, bool]:
        with transaction(context.conn):
            hold_fence(context.conn, fence)
            store.without_limit(context.conn)
            verdict = _judged(context.conn, fence, command)
            ended = store.consume(context.conn, fence, command.command_id, *verdict)
            crash_point("before_take_chain_commit")
        crash_point("after_take_chain_commit")
        return verdict, ended

    verdict, ended = retry_serialization(work)
    log.warning(
        "the chain's version was to be taken",
        extra={"action": TAKE_CHAIN, "source": command.target_id, "outcome": verdict.outcome.value, **verdict.result},
    )
    return int(ended)


def _judged(conn: Connection[Any], fence: Fence, command: OpenCommand) -> Verdict:
    """What the order does to the source as it is now."""
    block = command.payload.get("block")
    if command.payload.get("action") != TAKE_CHAIN or not isinstance(block, int):
        return rejected("unknown action")
    source = store.find_source(conn, command.target_id)
    if source is None or source.chain_id <= 0:
        return rejected("it is not read from a chain")
    try:
        with transaction(conn):
            undone = reorgs.adopt(conn, command.target_id, block, fence, request_kinds=REQUEST_KINDS)
    except NotHalted:
        return Verdict(Outcome.SUPERSEDED, {"reason": "it is not halted any more"})
    except KeptNoLonger as error:
        return rejected(str(error))
    return Verdict(
        Outcome.APPLIED,
        {"reorg": undone.reorg, "envelopes": undone.envelopes, "withdrawn": undone.withdrawn, "ended": undone.final},
    )
