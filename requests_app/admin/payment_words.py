"""What a reviewer is told before deciding about a payment: the deeds that are different there from those about requests."""

from __future__ import annotations

from typing import Final

from requests_app.models.reviews import ReviewAction

ON_CHAIN: Final = "on_chain"
OFF_CHAIN: Final = "off_chain"
EVIDENCE: Final = (
    (ON_CHAIN, "the transaction carries exactly this payment and is final"),
    (OFF_CHAIN, "documents outside the chain; no transaction of ours can move the money any more"),
)
EXPLANATIONS: Final[dict[ReviewAction, tuple[str, list[str]]]] = {
    ReviewAction.RESEND: (
        "The payment goes back to its queue, before all others, and is signed anew at another nonce under the same authorization.",
        [
            "The chain is asked first: the authorization must be unused, at the head and in the finalized state.",
            "The old nonce must be proven dead (rule G-RESEND) or taken by a call that reverted for good, and the payer's window still open.",
            "Another person must confirm it.",
        ],
    ),
    ReviewAction.MARK_SENT: (
        "The transaction is read from the chain. If it carries this payment exactly (token, payer, merchant, amount, ref), the payment is confirming with its hash; finality then decides as usual.",
        [
            "Everything else is rejected, and nothing changes.",
            "It may be anybody's transaction: what counts is what it did.",
        ],
    ),
    ReviewAction.SETTLE: (
        "The hold is posted by you, and the payment ends as settled with the transaction you name.",
        [
            "With a transaction: it must carry the payment exactly and be final; otherwise the command is rejected.",
            "With documents: nothing of ours may still be mined, and the authorization must be unused, or used up for good by something else.",
            "A settled payment never changes again. Another person must confirm it.",
        ],
    ),
    ReviewAction.FAIL: (
        "The hold is voided and the payment ends as failed. The client sees your reason.",
        [
            "The chain is asked first: nothing of ours may still be mined, and the authorization must be unused, or used up for good by something else (canceled, another amount, another party).",
            "If the authorization can still be used by somebody else, the payer could yet pay: have it canceled on chain.",
        ],
    ),
}
