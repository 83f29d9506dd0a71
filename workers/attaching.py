"""A transaction that a reviewer names: read from the chain, compared with the request, bound to it (reference queue_settle 4.9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from requests_app.config import config
from requests_app.crash_points import crash_point
from requests_app.errors import EvidenceUnavailable, RelayerError
from requests_app.store import attempts as attempt_store
from requests_app.store import commands as store
from requests_app.store import consumers, reorgs
from requests_app.store.commands import OpenCommand, Outcome
from requests_app.store.queue import Subject
from requests_app.store.session import transaction
from requests_app.store.signing import Fence, hold_fence
from requests_app.transitions import commands as effects
from requests_app.transitions.commands import Attached
from requests_app.transitions.outcomes import Verdict, rejected
from workers.apply import Applier
from workers.chain.calldata import Unencodable, encode_request
from workers.chain.events import REQUEST_KINDS, decode_logs
from workers.chain.rpc_errors import Ok
from workers.facts import Reader, contracts_of, kind_of_request
from workers.listener import GATEWAY
from workers.thresholds import thresholds_of

if TYPE_CHECKING:
    from workers.shift import ShiftContext


def attach(context: ShiftContext, fence: Fence, command: OpenCommand) -> int:
    """Bind the named transaction to the command's request and apply the answers that are there already; 1 when it ended."""
    found = _found(context, command)
    reader = Reader(contracts_of(config()), thresholds_of(config(), context.clients))
    applier = Applier(GATEWAY, reader)
    with transaction(context.conn):
        hold_fence(context.conn, fence)
        # The appliers lock the consumer before a row: so does this.
        applier.hold(context.conn)
        if not isinstance(found, Verdict):
            found = _logged(context.conn, found)
        verdict = found if isinstance(found, Verdict) else effects.attach(context.conn, command, found, fence.epoch)
        if verdict.outcome is Outcome.APPLIED and not isinstance(found, Verdict):
            applier.apply_answers(context.conn, [found.ref])
        ended = store.consume(context.conn, fence, command.command_id, *verdict)
        crash_point("before_attach_commit")
    crash_point("after_attach_commit")
    return int(ended)


def _found(context: ShiftContext, command: OpenCommand) -> Attached | Verdict:
    """The transaction with its reference, or why it is not the request's."""
    try:
        tx_hash = bytes.fromhex(str(command.payload.get("tx_hash", "")).removeprefix("0x"))
        subject = command.subject
    except ValueError:
        return rejected("not a transaction hash")
    if len(tx_hash) != 32:
        return rejected("not a transaction hash")
    gateway = context.clients.gateway
    crash_point("before_attach_rpc")
    (receipt,), (transaction,) = gateway.receipts([tx_hash]), gateway.transactions([tx_hash])
    crash_point("after_attach_rpc")
    if not isinstance(receipt, Ok) or not isinstance(transaction, Ok):
        raise EvidenceUnavailable("receipt or transaction could not be read")
    if receipt.value is None or transaction.value is None or receipt.value.status != 1:
        return rejected("the chain has no successful transaction of this hash")
    if (transaction.value.to, transaction.value.data) != _call(context.conn, subject):
        return rejected("the transaction does not carry this request")
    contracts = gateway.contracts
    events = [one for one in decode_logs(receipt.value.logs).envelopes if one.contract in contracts]
    refs = {one.ref for one in events if one.kind in REQUEST_KINDS and kind_of_request(one.kind) is subject.kind}
    if len(refs) != 1 or None in refs:
        return rejected("the transaction shows no single request event")
    return Attached(refs.pop() or b"", tx_hash, receipt.value.block_number, receipt.value.block_hash)


def _logged(conn: Any, found: Attached) -> Attached | Verdict:
    """The same when the log has read its block: what is above the seal gives way without anybody noticing. Raises EvidenceUnavailable."""
    sealed = consumers.read_consumer(conn, GATEWAY).sealed
    if found.block > sealed:
        raise EvidenceUnavailable(f"the log has not come to block {found.block} yet")
    known = reorgs.known_hashes(conn, GATEWAY, found.block, found.block).get(found.block, found.block_hash)
    if known != found.block_hash:
        return rejected(f"the log holds another block in the place of its block {found.block}")
    return found


def _call(conn: Any, subject: Subject) -> tuple[bytes, bytes] | None:
    found = attempt_store.request_bodies(conn, [subject]).get(subject)
    if found is None:
        return None
    try:
        return encode_request(subject.kind, found[0], found[1])
    except (Unencodable, RelayerError):
        return None
