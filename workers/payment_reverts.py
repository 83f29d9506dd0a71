"""Payments whose call was mined and reverted (reference queue_settle 4.3 R6, B50).

Anybody may carry out a signed authorization. So a final revert says only that *our* transaction moved nothing: the token is asked, at the
very block, whether the authorization is used. Used: whoever executed it is found and confirmed. Unused: a person decides.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from requests_app.crash_points import crash_point
from requests_app.store import intents as intent_store
from requests_app.store import settling as store
from requests_app.store.attempts import Found, OpenAttempt
from requests_app.store.intents import Intent
from requests_app.store.session import retry_serialization
from requests_app.transitions import recording
from requests_app.transitions.payment_ends import RevertedPayment
from workers.chain.client import LATEST
from workers.chain.hexdata import hex_data, hex_quantity
from workers.chain.payments import AuthorizationKey, Spent
from workers.chain.rpc import FINALIZED
from workers.chain.rpc_errors import Answer, Ok, RpcError, RpcUnavailable
from workers.chain.views import Receipt
from workers.lane import Lane

if TYPE_CHECKING:
    from workers.shift import ShiftContext

log = logging.getLogger("relayer.send")

CLOCK_SLACK_SECONDS: Final = 3600  # between the chain's clock and the database's
UNUSED: Final = "the transaction reverted, and the authorization is unused"
OUT_OF_GAS: Final = "the transaction used all its gas and reverted, and the authorization is unused"
CANCELED: Final = "the transaction reverted: the payer had canceled the authorization"
UNSEEN: Final = "the transaction reverted: the authorization is used, but no transaction shows it"


def key_of(intent: Intent) -> AuthorizationKey:
    """What the chain knows the payment's authorization by."""
    return AuthorizationKey(bytes.fromhex(intent.token[2:]), bytes.fromhex(intent.payer[2:]), intent.ref)


def spender(context: ShiftContext, intent: Intent) -> Spent | None:
    """The transaction that used or canceled the payment's authorization: from the stored log, else from the chain's.

    A cancellation ends the payment for good, and the stored log may hold one of a block that gave way: the chain has to show it.
    None: nothing shows it. Raises RpcError, RpcUnavailable.
    """
    key = key_of(intent)
    seen = store.seen_spent(context.conn, [(key.ref, key.token, key.authorizer)]).get(key.ref)
    if seen is not None and not seen.canceled:
        return Spent(*seen)
    crash_point("before_find_spent_rpc")
    found = context.clients.gateway.find_spent(key, int(intent.created_at.timestamp()) - CLOCK_SLACK_SECONDS)
    crash_point("after_find_spent_rpc")
    return found


def states(context: ShiftContext, intents: Sequence[Intent], block: str) -> list[Answer[bool]]:
    """Whether each payment's authorization is used or canceled at a block."""
    crash_point("before_authorization_state_rpc")
    said = context.clients.gateway.authorization_states([key_of(one) for one in intents], block)
    crash_point("after_authorization_state_rpc")
    return said


def unused(context: ShiftContext, payments: Mapping[int, int]) -> tuple[set[int], set[int]]:
    """Of payments by nonce: the nonces of those whose authorization the chain says nothing of, and the payments whose it calls unused,
    in its newest state and in the finalized one."""
    if not payments:
        return set(), set()
    found = {one.id: one for one in intent_store.read_intents(context.conn, sorted(payments.values()))}
    nonces = [nonce for nonce, payment in payments.items() if payment in found]
    asked = [found[payments[nonce]] for nonce in nonces]
    said = list(zip(states(context, asked, LATEST), states(context, asked, FINALIZED), strict=True))
    unsaid = {nonce for nonce, pair in zip(nonces, said, strict=True) if not all(isinstance(one, Ok) for one in pair)}
    free = {
        payments[nonce]
        for nonce, pair in zip(nonces, said, strict=True)
        if all(isinstance(one, Ok) and not one.value for one in pair)
    }
    return unsaid, free


def judge(context: ShiftContext, lane: Lane, final: Sequence[tuple[OpenAttempt, Receipt]]) -> None:
    """Decide about payments whose revert the chain can no longer take back. Those that the node says nothing of wait."""
    cases = store.read_cases(context.conn, [item.subject.id for item, _ in final])
    ended: list[tuple[Found, RevertedPayment]] = []
    for item, receipt in final:
        case = cases.get(item.subject.id)
        verdict = None if case is None else _verdict(context, case.intent, item, receipt)
        if verdict is not None:
            ended.append(
                (Found(item.nonce, item.seq, 0, receipt.block_number, receipt.block_hash, settled=True), verdict)
            )
    changed = retry_serialization(lambda: recording.revert_payments(context.conn, lane.id, ended))
    if ended:
        log.warning(
            "payments reverted on chain",
            extra={"action": "payment_reverted", "signer": lane.name, "payments": len(ended), "moved": len(changed)},
        )


def _verdict(context: ShiftContext, intent: Intent, item: OpenAttempt, receipt: Receipt) -> RevertedPayment | None:
    evidence: dict[str, Any] = {"tx_hash": hex_data(receipt.tx_hash), "block": receipt.block_number}
    evidence |= {"gas_used": receipt.gas_used, "gas_limit": item.gas_limit}
    (used,) = states(context, [intent], hex_quantity(receipt.block_number))
    if not isinstance(used, Ok):
        return None
    if not used.value:
        why = OUT_OF_GAS if receipt.used_all(item.gas_limit) else UNUSED
        return RevertedPayment(intent.id, None, why, {**evidence, "authorization_used": False})
    try:
        found = spender(context, intent)
    except (RpcError, RpcUnavailable):
        return None
    if found is None or found.canceled:
        evidence |= {"authorization_used": True, "canceled_by": hex_data(found.tx_hash) if found else None}
        return RevertedPayment(intent.id, None, CANCELED if found else UNSEEN, evidence)
    return RevertedPayment(intent.id, found.tx_hash, "", evidence)
