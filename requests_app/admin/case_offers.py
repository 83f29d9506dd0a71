"""Which deeds a case allows now, in words, and why the others are not offered (reference queue_settle 4.9).

Judged here from the stored rows to draw the page, again by `decisions.decide` under locks, and once more by whoever carries it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from requests_app.admin import payment_words
from requests_app.admin.forms import DeedForm, Input, reason_input
from requests_app.admin.requests import fixed_bytes
from requests_app.decisions import actions_of, may_acknowledge, needs_two, waits
from requests_app.models import PaymentIntent, ReviewCase
from requests_app.models.commands import Target
from requests_app.models.requests import GatewayRequest
from requests_app.models.reviews import ReviewAction
from requests_app.states import IntentState, Kind, Status
from requests_app.store.commands import SlotView
from requests_app.transitions.nonce_guards import no_failure, no_resend

LARGEST_GWEI: Final = Decimal(100_000)
TITLES: Final[dict[ReviewAction, str]] = {
    ReviewAction.RESUME: "Broadcast the same bytes again",
    ReviewAction.REPLACE: "Replace with a higher fee",
    ReviewAction.CANCEL_NONCE: "Cancel the nonce",
    ReviewAction.RESEND: "Send anew on a new nonce",
    ReviewAction.ATTACH: "Name the transaction that carries it",
    ReviewAction.MARK_SENT: "Name the transaction that carries it",
    ReviewAction.SETTLE: "Settle it by hand",
    ReviewAction.FAIL: "Close it as failed",
    ReviewAction.ACKNOWLEDGE: "Take note and close the case",
}
TONES: Final[dict[ReviewAction, str]] = {
    ReviewAction.RESUME: "good",
    ReviewAction.REPLACE: "info",
    ReviewAction.CANCEL_NONCE: "warn",
    ReviewAction.RESEND: "bad",
    ReviewAction.ATTACH: "info",
    ReviewAction.MARK_SENT: "info",
    ReviewAction.SETTLE: "bad",
    ReviewAction.FAIL: "bad",
    ReviewAction.ACKNOWLEDGE: "good",
}
BUTTONS: Final[dict[ReviewAction, str]] = {
    ReviewAction.RESUME: "Broadcast again",
    ReviewAction.REPLACE: "Offer more",
    ReviewAction.CANCEL_NONCE: "Cancel this nonce",
    ReviewAction.RESEND: "Propose a new nonce",
    ReviewAction.ATTACH: "Attach this transaction",
    ReviewAction.MARK_SENT: "Mark as sent",
    ReviewAction.SETTLE: "Propose to settle",
    ReviewAction.FAIL: "Close as failed",
    ReviewAction.ACKNOWLEDGE: "Close the case",
}


_NAMES_TRANSACTION: Final = frozenset({ReviewAction.ATTACH, ReviewAction.MARK_SENT, ReviewAction.SETTLE})
_CALLS_AGAIN: Final = frozenset({ReviewAction.RESUME, ReviewAction.REPLACE, ReviewAction.RESEND})


class Unreadable(ValueError):
    """An input that means nothing; the text is for the person who typed it."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What the offers depend on."""

    case: ReviewCase
    row: GatewayRequest | PaymentIntent | None
    slot: SlotView | None

    @property
    def standing(self) -> Status | IntentState | None:
        """Where the request or payment stands; None when it is not kept."""
        if isinstance(self.row, PaymentIntent):
            return IntentState(self.row.state)
        return Status(self.row.status) if self.row is not None else None

    @property
    def noun(self) -> str:
        """What the case is about, in a word."""
        return "payment" if self.case.kind == Kind.PAYMENT else "request"

    @property
    def window_closed(self) -> bool:
        """Whether it is a payment whose payer's authorization has ended."""
        if not isinstance(self.row, PaymentIntent) or not self.row.authorization:
            return False
        return int(self.row.authorization["valid_before"]) <= datetime.now(UTC).timestamp()

    @property
    def signed(self) -> bool:
        """Whether signed bytes exist that somebody may have."""
        return self.slot is not None


def refusal(action: ReviewAction, now: Situation) -> str | None:
    """Why the action does not fit now; None when it does."""
    if now.case.status != "open":
        return "the case is closed"
    if now.case.kind == Target.SOURCE:
        return "it is about a source: its own page says what can be done"
    if action not in actions_of(Kind(now.case.kind)):
        return f"that is no deed about a {now.noun}"
    standing = now.standing
    if standing is None:
        return f"the {now.noun} is no longer kept"
    if action is ReviewAction.ACKNOWLEDGE:
        return None if may_acknowledge(standing) else f"the {now.noun} has not ended: decide what becomes of it"
    if not waits(standing):
        return f"the {now.noun} is {standing.value.replace('_', ' ')} now"
    if now.window_closed and action in _CALLS_AGAIN:
        return "the payer's authorization has ended: the call would revert"
    return _slot_refusal(action, Kind(now.case.kind), now.slot)


def _slot_refusal(action: ReviewAction, kind: Kind, slot: SlotView | None) -> str | None:
    if action in _NAMES_TRANSACTION:
        return None
    if action is ReviewAction.RESEND:
        return no_resend(kind, slot)
    if action is ReviewAction.FAIL:
        return no_failure(kind, slot)
    if slot is None:
        return "nothing was ever signed for it"
    if not slot.open:
        return f"nonce {slot.nonce} is {slot.state.value}"
    return "no bytes of its call are stored" if slot.raw is None else None


def explanation(action: ReviewAction, now: Situation) -> tuple[str, list[str]]:
    """What the deed will do, and what to know before."""
    if now.case.kind == Kind.PAYMENT and action in payment_words.EXPLANATIONS:
        return payment_words.EXPLANATIONS[action]
    nonce = f"nonce {now.slot.nonce}" if now.slot else "no nonce"
    noun = now.noun
    match action:
        case ReviewAction.RESUME:
            text = (
                f"The signer's owner sends the stored bytes of {nonce} again, unchanged. The {noun} is under way again."
            )
            return text, ["It can never pay twice: the same bytes can be mined once."]
        case ReviewAction.REPLACE:
            offered = f"{Decimal(now.slot.max_fee) / 10**9:f} gwei" if now.slot else "–"
            text = f"Signs the same call at {nonce} once more with a fee of at least a tenth above the last offer, and sends it."
            points = [
                "Both stay on record; whichever is mined wins.",
                "Above your ceiling nothing is signed: the command is then rejected.",
            ]
            return text, [f"Offered so far: {offered} a gas.", *points]
        case ReviewAction.CANCEL_NONCE:
            text = (
                f"Signs a transaction that does nothing (0 wei to itself) at {nonce} with a higher fee, and sends it."
            )
            return text, [
                f"The {noun} stays here until one of them is final: ours means it was sent after all, the empty one means it failed.",
            ]
        case ReviewAction.RESEND:
            text = f"The {noun} goes back to the queue and is signed anew at another nonce."
            return text, [
                "Allowed only because the old nonce is proven dead (rule G-RESEND).",
                "Another person must confirm it.",
            ]
        case ReviewAction.ATTACH:
            text = "The transaction is read from the chain. If it succeeded, carries exactly this call and belongs to nobody else, the request takes its reference id and waits for the answer."
            return text, ["Everything else is rejected, and nothing changes."]
        case ReviewAction.FAIL:
            text = "The request ends as failed. Its clients see your reason."
            two = needs_two(action, signed=now.signed)
            return text, ["It was signed once: another person must confirm it."] if two else [
                "Nothing was ever signed for it."
            ]
        case _:
            return f"The {noun} stays as it is; only the case is closed.", []


def inputs_of(action: ReviewAction, given: Mapping[str, str]) -> list[Input]:
    """The inputs of a deed, with what was typed before."""
    inputs = []
    if action is ReviewAction.REPLACE:
        inputs.append(
            Input(
                "ceiling_gwei",
                "Ceiling",
                "gwei a gas; nothing above it is signed",
                "number",
                given.get("ceiling_gwei", ""),
                limit=24,
            )
        )
    if action in _NAMES_TRANSACTION:
        inputs.append(
            Input("tx_hash", "Transaction hash", "0x and 64 digits", value=given.get("tx_hash", ""), limit=66)
        )
    if action is ReviewAction.SETTLE:
        inputs.append(
            Input(
                "evidence",
                "Evidence",
                "what proves that the money has moved",
                "select",
                given.get("evidence", ""),
                choices=payment_words.EVIDENCE,
            )
        )
    return [*inputs, reason_input(given.get("reason", ""))]


def parameters_of(action: ReviewAction, given: Mapping[str, str], now: Situation) -> dict[str, Any]:
    """The deed's parameters from what was typed. Raises Unreadable."""
    if action is ReviewAction.REPLACE:
        ceiling = _wei(given.get("ceiling_gwei", ""))
        if now.slot is not None and ceiling <= now.slot.max_fee:
            raise Unreadable("The ceiling is not above what was offered already.")
        return {"ceiling_wei": str(ceiling)}
    if action in _NAMES_TRANSACTION:
        text = given.get("tx_hash", "").strip().lower()
        raw = fixed_bytes(text, 32)
        if raw is None:
            raise Unreadable("A transaction hash is 0x and 64 hexadecimal digits.")
        named = {"tx_hash": f"0x{raw.hex()}"}
        if action is not ReviewAction.SETTLE:
            return named
        if given.get("evidence") not in dict(payment_words.EVIDENCE):
            raise Unreadable("Say what proves that the money has moved.")
        return {**named, "off_chain": given["evidence"] == payment_words.OFF_CHAIN}
    return {}


def _wei(text: str) -> int:
    try:
        gwei = Decimal(text.strip())
    except InvalidOperation:
        raise Unreadable("The ceiling is a number of gwei, for example 2.5.") from None
    if not gwei.is_finite() or not Decimal(0) < gwei <= LARGEST_GWEI:
        raise Unreadable(f"The ceiling is above 0 and at most {LARGEST_GWEI} gwei.")
    return int(gwei * 10**9)


def offers(
    now: Situation, hidden: Mapping[str, str], given: Mapping[str, str]
) -> tuple[list[DeedForm], list[tuple[str, str]]]:
    """The forms of the deeds that fit, and (title, why not) of those that do not."""
    forms: list[DeedForm] = []
    refused: list[tuple[str, str]] = []
    for action in actions_of(Kind(now.case.kind)):
        why = refusal(action, now)
        if why is not None:
            refused.append((TITLES[action], why))
            continue
        text, points = explanation(action, now)
        typed = given if given.get("deed") == action.value else {}
        two = needs_two(action, signed=now.signed)
        title = f"{TITLES[action]}{' (needs two persons)' if two else ''}"
        forms.append(
            DeedForm(
                title, text, action.value, BUTTONS[action], inputs_of(action, typed), hidden, points, TONES[action]
            )
        )
    return forms, [] if now.case.status != "open" else refused
