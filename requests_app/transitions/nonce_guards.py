"""What must hold of a subject's nonce before a person may end the subject or have it sent anew (rules G-RESEND and G-FAIL).

Asked to draw the desk's page, and again under the subject's lock by whoever carries the decision out: one judgement, in the same words.
"""

from __future__ import annotations

from requests_app.models.signing import SlotState
from requests_app.states import Kind
from requests_app.store.commands import SlotView


def no_resend(kind: Kind, slot: SlotView | None) -> str | None:
    """Why nothing may be signed at another nonce; None when it may.

    A payment's call that reverted for good has taken its nonce, too. A request ends with its revert and is not sent anew.
    """
    if slot is None or slot.state is SlotState.DEAD or (kind is Kind.PAYMENT and slot.reverted):
        return None
    return (
        f"nonce {slot.nonce} is {slot.state.value}, not proven dead: two transactions for one thing could both be mined"
    )


def no_failure(kind: Kind, slot: SlotView | None) -> str | None:
    """Why the subject may not be closed as failed; None when it may: the nonce brings nothing new any more.

    A payment whose call succeeded has moved its money. A request whose call succeeded was asked for, and may still have to be given up.
    """
    if slot is None or slot.state is SlotState.DEAD:
        return None
    if slot.open:
        return f"something may still be mined at nonce {slot.nonce}: cancel it first"
    if slot.state is SlotState.MINED:
        return f"what was mined at nonce {slot.nonce} is not final yet: wait until it is"
    if kind is Kind.PAYMENT and not slot.reverted:
        return f"a transaction of ours is final at nonce {slot.nonce} and has not reverted: name it"
    return None
