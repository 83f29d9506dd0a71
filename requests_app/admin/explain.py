"""The words for what the machine does: why a request stopped, and what each step of its way means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from requests_app.models.reviews import ReasonCode
from requests_app.states import TRANSITIONS, IntentState, Status, Verb


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason code in words: what happened, what to look at, what usually follows."""

    headline: str
    happened: str
    look_at: tuple[str, ...]
    usually: str


REASONS: Final[dict[ReasonCode, Reason]] = {
    ReasonCode.OUTCOME_UNKNOWN: Reason(
        "Nobody can say whether it reached the chain",
        "A signed transaction was handed to a node, and neither a receipt nor a request event appeared before the deadline.",
        (
            "whether any node knows one of the attempts by its hash",
            "whether the signer's account nonce is past the slot's nonce",
            "whether the gateway has a request event from one of the attempts",
        ),
        "Broadcast the same bytes again: that can never pay twice. Only when the nonce is gone for good may it be sent anew.",
    ),
    ReasonCode.FOREIGN_NONCE: Reason(
        "Its nonce was used by a transaction that is not ours",
        "The chain's account nonce is past this slot, and none of our attempts was mined at it: the key was used elsewhere.",
        (
            "which transaction consumed the nonce, and who sent it",
            "whether other slots of the same signer are affected",
            "whether the key must be treated as leaked",
        ),
        "Stop the signer, find the other user of the key, then send the request anew on a new nonce.",
    ),
    ReasonCode.FEE_CEILING: Reason(
        "The network asks more than we allow",
        "The transaction is stuck, and replacing it needs fees above the configured ceiling.",
        ("the present base fee and our last attempt's fee", "how many other requests wait behind this nonce"),
        "Wait for fees to fall, or approve one replacement above the ceiling.",
    ),
    ReasonCode.SIGNER_BLOCKED: Reason(
        "Its signer may not send",
        "The signer was blocked while this holds one of its nonces, and nothing of ours can bring that nonce to the chain: not even an empty transaction is taken at or below it (refused_bytes), the chain waits at a lower nonce that is not ours (nonce_gap), or a node answered another hash than that of its bytes (hash_mismatch).",
        (
            "the signer's reason and the chain's nonce, in the evidence and on the signer's page",
            "what stands at the lowest nonce: its own case, or nothing of ours",
            "whether the attempt is on chain all the same",
        ),
        "Mend the signer first: cancel the nonce that is stuck, or fill the missing one with the key itself; then resume it. What is mined after all goes on by itself and closes its case.",
    ),
    ReasonCode.RECEIPT_VANISHED: Reason(
        "A receipt that we had seen is gone",
        "The transaction was mined, then the block left the chain, and it has not been mined again.",
        ("whether the chain reorganised, and how deep", "whether the attempt is known to any node now"),
        "Broadcast the same bytes again; the nonce is still ours.",
    ),
    ReasonCode.REFUSED_AFTER_SIGNING: Reason(
        "A node refused bytes that were already signed",
        "After the nonce was taken and the transaction was signed, every endpoint refused it for good.",
        ("the refusal's text on the last attempt", "whether another node accepted an earlier attempt"),
        "Mend the cause, then broadcast the same bytes again or cancel the nonce.",
    ),
    ReasonCode.ENVELOPE_CONFLICT: Reason(
        "The chain contradicts itself",
        "Two different events were read at one position of the log, and one of them names this: by its reference, or by a transaction of its. Which is true cannot be told here, so the source is halted and nothing more of it is read; the source has a case of its own. What had ended before stays as it is, and is shown to be taken note of.",
        (
            "the conflict's two digests and transactions, in the evidence and under envelope conflicts",
            "what independent nodes say about that block",
            "for what had ended: whether the event that decided it is the true one",
        ),
        "Find out which node was wrong and take it away, then end the halt in the source's case: lift it when the stored event is the true one, take the chain's version when it is the false one. A request goes on by itself when its true event is read, which closes the case; of a payment a person says what became of it.",
    ),
    ReasonCode.DEEP_REORG: Reason(
        "The chain is another one below what may give way",
        "The block that a source had sealed is no longer on the chain, and no block down to the source's reorg depth is as it was stored. So much is not taken back without a person: the source is halted.",
        (
            "what each node says of the sealed block, in the evidence: one that stands alone may be wrong, or follow another chain",
            "whether the chain was rolled back, or its operator has announced a reorganisation",
            "the block in the evidence, after the newest stored event that the chain still shows: what gives way begins there",
        ),
        "A node that is wrong is taken away, then the halt is lifted. When the chain did change, an approver takes its version from that block on: what rested on the old blocks waits again, as after any reorganisation.",
    ),
    ReasonCode.AUTHORIZATION_WINDOW_CLOSED: Reason(
        "The payer's authorization ran out before the money moved",
        "The last moment of the payer's signed authorization is past on the chain, and nobody has executed it: no transaction can move this money any more.",
        (
            "whether the log shows the authorization used, or canceled by the payer",
            "what the receipts of the attempts say, and whether the nonce is still open",
            "why it took so long: a paused signer, fees, an unreachable node",
        ),
        "Spend the nonce on nothing if it is still open, then close the payment as failed; the client makes a new one.",
    ),
    ReasonCode.AMOUNT_MISMATCH: Reason(
        "The authorization was used, but not for this amount",
        "The chain shows the payer's authorization with this payment's reference as used for good, and the money that moved is not what was asked.",
        (
            "the transfer that follows the authorization, and who sent the transaction",
            "whether the payer signed two authorizations with one nonce",
            "whether the token takes a fee",
        ),
        "Agree with the merchant on what arrived, then settle by hand or close as failed. Nothing can be sent again with this reference.",
    ),
    ReasonCode.WRONG_PARTY: Reason(
        "The authorization was used, but paid somebody else",
        "The chain shows the payer's authorization with this payment's reference as used for good, in favour of another address than the merchant's.",
        (
            "who received the money, and who sent the transaction",
            "whether the payer signed two authorizations with one nonce",
        ),
        "Close as failed: the merchant was not paid, and nothing can be sent again with this reference.",
    ),
    ReasonCode.REVERTED_FINAL: Reason(
        "Its transaction reverted, for good",
        "The transaction was mined with status 0 in a block that is final, and the log does not show that anybody else executed the authorization.",
        (
            "the revert's reason, read again at that block",
            "whether all its gas was used: then it cost more than when it was simulated, and a new try has a new limit",
            "whether the authorization is still unused, and still valid",
            "the payer's balance at that block",
        ),
        "Close as failed when the authorization is used, canceled or over; otherwise a new nonce may be tried.",
    ),
    ReasonCode.PAID_TWICE: Reason(
        "The same payment moved money twice",
        "Two transactions on the finalized chain executed this payment's reference, or it was settled with one transaction and executed by another.",
        (
            "both transactions, and whether the token accepts a nonce twice",
            "which one the books name",
        ),
        "Return the second amount outside the relayer and write down how. The books keep the first.",
    ),
    ReasonCode.UNEXPECTED_PAYMENT: Reason(
        "Money moved that the books do not expect",
        "The finalized chain shows this payment's reference as paid although it had ended, or was never authorized here; or a transaction of ours carried a reference that no payment has.",
        (
            "who sent the transaction",
            "how the payment ended, and when",
            "whether the client knows of it",
        ),
        "Tell client and merchant; make the books right by hand. A payment that has ended does not change. One that was never authorized here settles by that very transaction when its client authorizes it after all, and the case closes by itself.",
    ),
}

STATUS_MEANING: Final[dict[Status, str]] = {
    Status.QUEUED: "waits until the host chain allows it and the gateway has its ciphertexts",
    Status.PROCESSING: "may be sent; no signed bytes exist yet",
    Status.TX_IN_FLIGHT: "signed bytes are stored; the chain has not shown them yet",
    Status.RECEIPT_RECEIVED: "the gateway gave it a reference id; its answer is awaited",
    Status.COMPLETED: "the answer is stored (a rejected proof is an answer, too)",
    Status.TIMED_OUT: "not ready in time, or no answer after the chain was asked once more",
    Status.FAILURE: "denied, refused for good, or reverted on chain",
    Status.NEEDS_REVIEW: "its outcome cannot be proven: a person decides",
}

INTENT_MEANING: Final[dict[IntentState, str]] = {
    IntentState.CREATED: "waits for the payer's signed authorization",
    IntentState.AUTHORIZED: "the authorization is verified and stored; it waits for a nonce",
    IntentState.SETTLING: "signed bytes are stored and the money is held in the ledger; a node may have them",
    IntentState.CONFIRMING: "a node has the transaction; the log and finality decide",
    IntentState.NEEDS_REVIEW: "its outcome cannot be proven: a person decides",
    IntentState.SETTLED: "final on chain and posted in the ledger",
    IntentState.FAILED: "proven not to move money any more; its hold is voided",
    IntentState.CANCELED: "withdrawn, or expired, before anything was signed",
}


# Names of the envelope kinds that the listener stores (workers.chain.events.EventKind; a test compares).
EVENTS: Final[dict[int, str]] = {
    1: "public decryption requested",
    2: "user decryption requested",
    3: "proof requested",
    4: "public decryption responded",
    5: "user share responded",
    6: "threshold reached",
    7: "proof verified",
    8: "proof rejected",
    9: "authorization used",
    10: "authorization canceled",
    11: "payment transferred",
}


def reason(code: str) -> Reason:
    """The words for a reason code; an unknown one (written by a newer version) is shown as it is."""
    try:
        return REASONS[ReasonCode(code)]
    except ValueError:
        return Reason(
            code.replace("_", " "), "This version has no words for this reason code.", (), "Read the evidence."
        )


def step(verb: str) -> str:
    """What a transition's verb means, in words."""
    if verb == Verb.SUBMIT.value:
        return "accepted from a client"
    try:
        return TRANSITIONS[Verb(verb)].meaning
    except (ValueError, KeyError):
        return verb.replace("_", " ")
