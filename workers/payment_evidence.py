"""What the chain says to a reviewer's decision about a payment, and the decision carried out (reference queue_settle 4.9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from requests_app import sightings
from requests_app.crash_points import crash_point
from requests_app.errors import EvidenceUnavailable
from requests_app.store import commands as store
from requests_app.store import intents as intent_store
from requests_app.store import observations
from requests_app.store.commands import OpenCommand
from requests_app.store.intents import Intent
from requests_app.store.session import transaction
from requests_app.store.signing import Fence, hold_fence
from requests_app.transitions import payment_commands as effects
from requests_app.transitions.outcomes import Verdict, rejected
from requests_app.transitions.payment_commands import Evidence
from workers.chain.client import LATEST
from workers.chain.events import decode_logs, decode_payload
from workers.chain.payment_events import AuthorizationUsed, PaymentTransferred
from workers.chain.rpc import FINALIZED
from workers.chain.rpc_errors import Ok, RpcError, RpcUnavailable
from workers.chain.views import Receipt
from workers.listener import GATEWAY
from workers.payment_reverts import key_of

if TYPE_CHECKING:
    from workers.shift import ShiftContext


def decide(context: ShiftContext, fence: Fence, command: OpenCommand) -> int:
    """Read the chain, then carry the decision out under the fence; 1 when the command ended. Raises EvidenceUnavailable."""
    found = _evidence(context, command)
    with transaction(context.conn):
        hold_fence(context.conn, fence)
        verdict = found if isinstance(found, Verdict) else effects.decide(context.conn, command, found, fence.epoch)
        ended = store.consume(context.conn, fence, command.command_id, *verdict)
        crash_point("before_decide_payment_commit")
    crash_point("after_decide_payment_commit")
    return int(ended)


def _evidence(context: ShiftContext, command: OpenCommand) -> Evidence | Verdict:
    intents = intent_store.read_intents(context.conn, [command.target_id])
    if not intents:
        return rejected("not found")
    (intent,) = intents
    key, gateway = key_of(intent), context.clients.gateway
    crash_point("before_payment_evidence_rpc")
    said = gateway.authorization_states([key], LATEST) + gateway.authorization_states([key], FINALIZED)
    crash_point("after_payment_evidence_rpc")
    if not all(isinstance(one, Ok) for one in said):
        raise EvidenceUnavailable("the token does not say whether the authorization is used")
    unused = all(isinstance(one, Ok) and not one.value for one in said)
    # Used in the finalized state too, so that what the log shows of it stays.
    used_for_good = all(isinstance(one, Ok) and bool(one.value) for one in said)
    seen = observations.of_refs(context.conn, GATEWAY, [intent.ref]).get(intent.ref, ()) if used_for_good else ()
    otherwise = sightings.spent_otherwise(intent, seen)
    named = str(command.payload.get("tx_hash") or "").removeprefix("0x")
    if not named:
        return Evidence(unused, otherwise=otherwise)
    try:
        tx_hash = bytes.fromhex(named)
    except ValueError:
        return rejected("not a transaction hash")
    if len(tx_hash) != 32:
        return rejected("not a transaction hash")
    receipt, final = _receipt(context, tx_hash)
    exact = receipt is not None and receipt.status == 1 and carries(intent, receipt)
    return Evidence(unused, tx_hash, exact, exact and final, otherwise)


def _receipt(context: ShiftContext, tx_hash: bytes) -> tuple[Receipt | None, bool]:
    """The receipt, and whether its block is final: not above the finalized one, and the one that the chain has at its height.

    Each of these may come from another node, and a node may be on a fork that gave way.
    """
    gateway = context.clients.gateway
    crash_point("before_named_receipt_rpc")
    try:
        (answer,), finalized = gateway.receipts([tx_hash]), gateway.finalized().number
        receipt = answer.value if isinstance(answer, Ok) else None
        blocks = [] if receipt is None else gateway.blocks([receipt.block_number])
    except (RpcError, RpcUnavailable) as error:
        raise EvidenceUnavailable(str(error)) from None
    crash_point("after_named_receipt_rpc")
    if not isinstance(answer, Ok):
        raise EvidenceUnavailable("the receipt could not be read")
    if receipt is None:
        return None, False
    shown = [one.value.hash for one in blocks if isinstance(one, Ok) and one.value is not None]
    return receipt, receipt.block_number <= finalized and shown == [receipt.block_hash]


def carries(intent: Intent, receipt: Receipt) -> bool:
    """Whether the logs show the payment as asked: its authorization used in its token, and the transfer that follows."""
    key = key_of(intent)
    raws: list[Any] = list(receipt.logs)
    mine = [one for one in decode_logs(raws).envelopes if one.contract == key.token and one.ref == key.ref]
    events = [decode_payload(one.kind, one.payload, one.position, one.ref) for one in mine]
    used = any(isinstance(one, AuthorizationUsed) and one.authorizer == key.authorizer for one in events)
    wanted = PaymentTransferred(key.ref, key.authorizer, bytes.fromhex(intent.merchant[2:]), intent.amount)
    return used and wanted in events
