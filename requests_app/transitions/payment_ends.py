"""What the shared sending machinery does to payments where it ends requests of the gateway: parked, reverted, their nonce closed.

In the caller's transaction, after attempts and slots were locked. The relayer moves what is settling; what is confirming is the
listener's, in whose name a fact of the chain is written. Nothing here fails a payment that may still move money.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from psycopg import Connection

from requests_app.ledger import void_of
from requests_app.models.reviews import ReasonCode
from requests_app.states import IntentActor, IntentState
from requests_app.store import intents as store
from requests_app.store import ledger
from requests_app.store import settling as settling_store
from requests_app.store.intents import Intent
from requests_app.store.queue import RESCUE
from requests_app.transitions import intents
from requests_app.transitions.intents import Change, Moved

_OWNERS: Final = {IntentState.SETTLING: IntentActor.RELAYER, IntentState.CONFIRMING: IntentActor.LISTENER}
CANCELED_BY_OPERATOR: Final = "its nonce was spent on nothing, as an operator asked"


class RevertedPayment(NamedTuple):
    """A payment whose call was mined and reverted, final. `used_by`: the transaction that executed its authorization instead."""

    intent_id: int
    used_by: bytes | None
    reason: str
    evidence: Mapping[str, Any]


def park(
    conn: Connection[Any],
    evidence: Mapping[int, Mapping[str, Any]],
    reason: ReasonCode,
    detail: str,
    epoch: int | None = None,
    *,
    of_nonce: bool = False,
) -> list[Moved]:
    """settling or confirming -> needs_review with an open case each. Those in other states are left out.

    `of_nonce`: the reason is what became of our nonce, which says nothing of a payment that somebody else's transaction carries: the
    listener judges that one by the log.
    """
    moved: list[Moved] = []
    found = store.lock_intents(conn, sorted(evidence))
    if of_nonce:
        ours = _ours(conn, found)
        found = [one for one in found if one.state is not IntentState.CONFIRMING or one.id in ours]
    for state, actor in _OWNERS.items():
        changes = [
            Change.of(one, reason=detail, evidence=evidence[one.id]) for one in found if one.state is state
        ]  # fmt: skip
        moved += intents.move(conn, IntentState.NEEDS_REVIEW, changes, actor, review=reason, epoch=epoch)
    return moved


def revert(conn: Connection[Any], reverted: Sequence[RevertedPayment]) -> list[Moved]:
    """A final revert is no failure (R6): with the authorization used, whoever used it is confirmed; unused, a person decides."""
    by_id = {one.intent_id: one for one in reverted}
    moved = confirm_other(conn, {one.intent_id: one.used_by for one in reverted if one.used_by is not None})
    unused = {one.intent_id: one.evidence for one in reverted if one.used_by is None}
    for name in sorted({by_id[key].reason for key in unused}):
        mine = {key: value for key, value in unused.items() if by_id[key].reason == name}
        moved += park(conn, mine, ReasonCode.REVERTED_FINAL, name, of_nonce=True)
    return moved


def confirm_other(conn: Connection[Any], spenders: Mapping[int, bytes]) -> list[Moved]:
    """To confirming with the hash of somebody else's transaction, from settling or from confirming our own. A fact: not fenced."""
    if not spenders:
        return []
    found = store.lock_intents(conn, sorted(spenders))
    own = [one for one in found if one.state is IntentState.CONFIRMING and one.tx_hash != spenders[one.id]]
    changes = [Change.of(one, reason="somebody else executed the authorization") for one in own]
    settling = [one.intent for one in intents.move(conn, IntentState.SETTLING, changes, IntentActor.LISTENER)]
    settling += [one for one in found if one.state is IntentState.SETTLING]
    taken = [Change.of(one, tx_hash=spenders[one.id]) for one in settling]
    return intents.move(conn, IntentState.CONFIRMING, taken, IntentActor.LISTENER)


def close(conn: Connection[Any], filled: Mapping[int, str | None], epoch: int, unused: Collection[int]) -> list[Moved]:
    """Payments whose nonce was spent on nothing, final; the value is the command that asked for it, if a person did.

    Where a person asked, those whose authorization the chain calls `unused` fail, and their hold is voided; somebody else may have
    executed the others, and a person looks again. Who was not asked for gets a job again: the settle worker sees whether the window is
    closed for good, or signs anew.
    """
    found = store.lock_intents(conn, sorted(filled))
    asked = [one for one in found if filled[one.id] is not None and one.state is IntentState.NEEDS_REVIEW]
    executed = {
        ref for ref, seen in settling_store.seen_spent(conn, [_key(one) for one in asked]).items() if not seen.canceled
    }
    over = [one for one in asked if one.id in unused and one.ref not in executed]
    changes = [Change.of(one, reason=CANCELED_BY_OPERATOR) for one in over]
    failed = intents.move(conn, IntentState.FAILED, changes, IntentActor.OPERATOR, epoch=epoch)
    store.drop_settle(conn, [one.intent.id for one in failed])
    # The no-op has won: whatever was confirming at this nonce will never be mined.
    ours = _ours(conn, found)
    lost = [one for one in found if one.state is IntentState.CONFIRMING and one.id in ours]
    back = [Change.of(one, reason="its nonce was spent on nothing") for one in lost]
    settling = [one.intent for one in intents.move(conn, IntentState.SETTLING, back, IntentActor.LISTENER)]
    settling += [one for one in found if one.state is IntentState.SETTLING]
    store.enqueue_settle(conn, [one.id for one in settling], RESCUE)
    ledger.append(conn, [void_of(one.intent, IntentActor.OPERATOR, memo=CANCELED_BY_OPERATOR) for one in failed])
    return failed


def _ours(conn: Connection[Any], found: Sequence[Intent]) -> set[int]:
    """Those whose hash on record is one of the transactions that we signed for them."""
    signed = settling_store.own_hashes(conn, [one.id for one in found if one.tx_hash is not None])
    return {one.id for one in found if one.tx_hash is not None and (one.id, one.tx_hash) in signed}


def _key(intent: Intent) -> tuple[bytes, bytes, bytes]:
    """(ref, token, payer) of an authorization, as the log names it."""
    return intent.ref, bytes.fromhex(intent.token[2:]), bytes.fromhex(intent.payer[2:])
