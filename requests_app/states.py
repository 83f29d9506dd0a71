"""The state machines, as data: gateway requests (design 2.1) and payment intents (design 2.2).

Everything that depends on it is derived: SQL guards, database CHECKs, API statuses, admin actions, docs and metrics.
Pure Python: nothing of Django is imported here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final


class Kind(IntEnum):
    """What a subject is. (kind, id) names one everywhere: queue, slots, transitions, reviews."""

    USER_DECRYPT = 1
    PUBLIC_DECRYPT = 2
    INPUT_PROOF = 3
    PAYMENT = 4

    @property
    def table(self) -> str:
        """The table of this kind's rows."""
        return TABLES[self]

    @property
    def slug(self) -> str:
        """The name in URLs, metrics and logs."""
        return self.name.lower().replace("_", "-")


TABLES: Final[dict[Kind, str]] = {
    Kind.USER_DECRYPT: "user_decrypt_req",
    Kind.PUBLIC_DECRYPT: "public_decrypt_req",
    Kind.INPUT_PROOF: "input_proof_req",
    Kind.PAYMENT: "payment_intent",
}
# The kinds that are asked of the gateway; a payment intent has a machine of its own, below.
REQUEST_KINDS: Final = (Kind.USER_DECRYPT, Kind.PUBLIC_DECRYPT, Kind.INPUT_PROOF)


class ReqType(StrEnum):
    """The three forms of a user decrypt request."""

    DIRECT = "user_decrypt"
    DELEGATED = "delegated_user_decrypt"
    UNIFIED = "unified"


class Status(StrEnum):
    """Where a request stands. Each value says what may happen next."""

    QUEUED = "queued"  # waits until the host ACL allows it and the gateway has its ciphertexts
    PROCESSING = "processing"  # may be sent; no signed bytes exist yet
    TX_IN_FLIGHT = "tx_in_flight"  # signed bytes are stored; the chain has not shown them yet
    RECEIPT_RECEIVED = "receipt_received"  # the gateway assigned a reference id; its answer is awaited
    COMPLETED = "completed"  # the answer is stored (a rejected proof is an answer)
    TIMED_OUT = "timed_out"  # not ready in time, or no answer after the chain was asked once more
    FAILURE = "failure"  # denied, refused for good, or reverted on chain
    NEEDS_REVIEW = "needs_review"  # the outcome cannot be proven: a person decides


FINAL: Final = frozenset({Status.COMPLETED, Status.TIMED_OUT, Status.FAILURE})
ACTIVE: Final = frozenset(set(Status) - FINAL)


class Actor(StrEnum):
    """Who may change a state."""

    API = "api"
    WORKER = "worker"
    CHAIN = "chain"  # a fact read from the chain: never fenced, made idempotent by the guard
    SWEEP = "sweep"
    OPERATOR = "operator"


class Fence(StrEnum):
    """What proves that a decision is still this worker's to take."""

    NONE = "none"
    JOB = "job receipt"
    SIGNER = "signer lease"
    DUTY = "duty lease"
    LISTENER = "listener lease"


class Verb(StrEnum):
    """The transitions' names."""

    SUBMIT = "submit"
    ADMIT = "admit"
    DENY = "deny"
    EXPIRE_READINESS = "expire_readiness"
    PREPARE_SEND = "prepare_send"
    REFUSE = "refuse"
    REVERT = "revert"
    RECORD_RECEIPT = "record_receipt"
    WITHDRAW = "withdraw"
    COMPLETE = "complete"
    EXPIRE_RESPONSE = "expire_response"
    ABANDON = "abandon"
    PARK = "park"
    CANCEL = "cancel"
    RESEND = "resend"
    RESUME = "resume"
    ATTACH = "attach"
    REJECT = "reject"


@dataclass(frozen=True, slots=True)
class Transition:
    """One row of the machine: from which states, to which, by whom, under which fence, writing which columns."""

    verb: Verb
    sources: frozenset[Status]
    target: Status
    actors: frozenset[Actor]
    fences: tuple[tuple[Actor, Fence], ...]
    writes: tuple[str, ...]
    meaning: str


def _row(
    verb: Verb,
    sources: set[Status],
    target: Status,
    actors: set[Actor],
    fence: Fence | dict[Actor, Fence],
    writes: str,
    meaning: str,
) -> Transition:
    fences = fence if isinstance(fence, dict) else dict.fromkeys(sorted(actors), fence)
    if set(fences) != actors:
        raise ValueError(f"{verb}: every actor needs its fence")
    return Transition(
        verb, frozenset(sources), target, frozenset(actors), tuple(fences.items()), tuple(writes.split()), meaning
    )


_FAIL = "fail_label fail_detail fail_selector completed_at"
_S, _A, _F = Status, Actor, Fence

# fmt: off
TRANSITIONS: Final[dict[Verb, Transition]] = {row.verb: row for row in (
    _row(Verb.ADMIT, {_S.QUEUED}, _S.PROCESSING, {_A.WORKER}, _F.JOB, "deadline_at",
         "host ACL and gateway readiness passed"),
    _row(Verb.DENY, {_S.QUEUED}, _S.FAILURE, {_A.WORKER, _A.API}, {_A.WORKER: _F.JOB, _A.API: _F.NONE}, _FAIL,
         "the host ACL denied it, the checks cannot succeed, or (by the API, in the statement that stores it) its signature is bad"),
    _row(Verb.EXPIRE_READINESS, {_S.QUEUED}, _S.TIMED_OUT, {_A.WORKER, _A.SWEEP},
         {_A.WORKER: _F.JOB, _A.SWEEP: _F.DUTY}, _FAIL,
         "the ciphertexts did not become ready before the deadline"),
    _row(Verb.PREPARE_SEND, {_S.PROCESSING}, _S.TX_IN_FLIGHT, {_A.WORKER}, _F.SIGNER, "gw_req_tx_hash deadline_at",
         "nonce taken and signed bytes stored, before any broadcast"),
    _row(Verb.REFUSE, {_S.PROCESSING}, _S.FAILURE, {_A.WORKER}, _F.SIGNER, _FAIL,
         "proven permanent refusal before signed bytes exist"),
    _row(Verb.REVERT, {_S.TX_IN_FLIGHT, _S.NEEDS_REVIEW}, _S.FAILURE, {_A.CHAIN}, _F.NONE, _FAIL,
         "the transaction was mined with receipt status 0"),
    _row(Verb.RECORD_RECEIPT, {_S.TX_IN_FLIGHT, _S.NEEDS_REVIEW}, _S.RECEIPT_RECEIVED, {_A.CHAIN}, _F.NONE,
         "gw_reference_id gw_req_tx_hash receipt_block deadline_at",
         "the request event of one of our attempts was read from the chain"),
    _row(Verb.WITHDRAW, {_S.RECEIPT_RECEIVED}, _S.TX_IN_FLIGHT, {_A.CHAIN}, _F.LISTENER,
         "gw_reference_id gw_consensus_tx_hash receipt_block deadline_at",
         "the block of its request event gave way to another: the same bytes are broadcast again"),
    _row(Verb.COMPLETE, {_S.RECEIPT_RECEIVED}, _S.COMPLETED, {_A.CHAIN}, _F.NONE,
         "res accepted resolved_threshold gw_response_tx_hash completed_at",
         "the answer, or enough shares of it, was read from the chain"),
    _row(Verb.EXPIRE_RESPONSE, {_S.RECEIPT_RECEIVED}, _S.TIMED_OUT, {_A.SWEEP}, _F.DUTY, _FAIL,
         "no answer before the deadline, and the chain, asked once more, has none"),
    _row(Verb.ABANDON, {_S.PROCESSING}, _S.FAILURE, {_A.SWEEP}, _F.DUTY, _FAIL,
         "not sent before the deadline; no attempt exists"),
    _row(Verb.PARK, {_S.PROCESSING, _S.TX_IN_FLIGHT, _S.RECEIPT_RECEIVED}, _S.NEEDS_REVIEW, {_A.WORKER, _A.SWEEP},
         {_A.WORKER: _F.SIGNER, _A.SWEEP: _F.DUTY}, "deadline_at", "the outcome cannot be proven: a person decides"),
    _row(Verb.CANCEL, {_S.QUEUED, _S.PROCESSING}, _S.FAILURE, {_A.API}, _F.NONE, _FAIL,
         "the only client of the row withdrew it before any attempt"),
    _row(Verb.RESEND, {_S.NEEDS_REVIEW}, _S.PROCESSING, {_A.OPERATOR}, _F.DUTY, "deadline_at",
         "the old nonce is proven dead and the chain holds no request of ours: send anew"),
    _row(Verb.RESUME, {_S.NEEDS_REVIEW}, _S.TX_IN_FLIGHT, {_A.OPERATOR}, _F.SIGNER, "deadline_at",
         "broadcast the stored bytes again"),
    _row(Verb.ATTACH, {_S.NEEDS_REVIEW}, _S.RECEIPT_RECEIVED, {_A.OPERATOR}, _F.DUTY,
         "gw_reference_id gw_req_tx_hash receipt_block deadline_at",
         "the reviewer names the transaction that carries the request"),
    _row(Verb.REJECT, {_S.NEEDS_REVIEW}, _S.FAILURE, {_A.OPERATOR}, _F.DUTY, _FAIL,
         "the reviewer closes the request as failed"),
)}
# fmt: on

INITIAL: Final[dict[Kind, Status]] = {
    Kind.USER_DECRYPT: Status.QUEUED,
    Kind.PUBLIC_DECRYPT: Status.QUEUED,
    Kind.INPUT_PROOF: Status.PROCESSING,  # proofs have no readiness stage
}

# The setting that bounds each waiting state (design 5.2.2). A row in review waits for a person, not for a clock.
DEADLINE_SETTING: Final[dict[Status, str | None]] = {
    Status.QUEUED: "QUEUED_DEADLINE_SECONDS",
    Status.PROCESSING: "PROCESSING_DEADLINE_SECONDS",
    Status.TX_IN_FLIGHT: "IN_FLIGHT_DEADLINE_SECONDS",
    Status.RECEIPT_RECEIVED: "RESPONSE_DEADLINE_SECONDS",
    Status.NEEDS_REVIEW: None,
}

# v1 answers the row as it is (design 3.4); failures and time-outs carry their reason in the body.
V1_HTTP_STATUS: Final[dict[Status, int]] = {
    **dict.fromkeys(ACTIVE, 202),
    Status.COMPLETED: 200,
    Status.TIMED_OUT: 504,
    Status.FAILURE: 400,
}


def sources(verb: Verb) -> list[str]:
    """The states a verb may start from, as the text array its SQL guard takes."""
    return sorted(state.value for state in TRANSITIONS[verb].sources)


class IntentState(StrEnum):
    """Where a payment intent stands, and by that who owns it (reference queue_settle 1.2)."""

    CREATED = "created"  # waits for the payer's signed authorization
    AUTHORIZED = "authorized"  # the authorization is verified and stored; a job waits
    SETTLING = "settling"  # held in the ledger; signed bytes are stored; a node may have them
    CONFIRMING = "confirming"  # a node has the transaction; the log and finality decide
    NEEDS_REVIEW = "needs_review"  # the outcome cannot be proven: a person decides
    SETTLED = "settled"  # final on chain, posted in the ledger
    FAILED = "failed"  # proven not to move money any more, its hold voided
    CANCELED = "canceled"  # withdrawn, or expired, before anything was signed


INTENT_FINAL: Final = frozenset({IntentState.SETTLED, IntentState.FAILED, IntentState.CANCELED})
INTENT_ACTIVE: Final = frozenset(set(IntentState) - INTENT_FINAL)


class IntentActor(StrEnum):
    """Who may move an intent. The ledger's `by` uses the same words."""

    API = "api"
    RELAYER = "relayer"
    LISTENER = "listener"
    OPERATOR = "operator"
    SYSTEM = "system"


class Evidence(StrEnum):
    """What a transition must bring along."""

    TX_HASH = "tx_hash"
    REASON = "reason"


@dataclass(frozen=True, slots=True)
class IntentTransition:
    """One edge of the intent machine. A pair of states has at most one edge."""

    source: IntentState
    target: IntentState
    actors: frozenset[IntentActor]
    evidence: frozenset[Evidence]
    meaning: str


def _edge(source: IntentState, target: IntentState, actors: str, evidence: str, meaning: str) -> IntentTransition:
    who = frozenset(IntentActor(name) for name in actors.split())
    return IntentTransition(source, target, who, frozenset(Evidence(name) for name in evidence.split()), meaning)


_I = IntentState

# fmt: off
INTENT_TRANSITIONS: Final[dict[tuple[IntentState, IntentState], IntentTransition]] = {
    (edge.source, edge.target): edge for edge in (
        _edge(_I.CREATED, _I.AUTHORIZED, "api", "", "the payer's authorization was verified; refused after expires_at"),
        _edge(_I.CREATED, _I.CANCELED, "api operator system", "reason", "withdrawn, or expired"),
        _edge(_I.AUTHORIZED, _I.SETTLING, "relayer", "", "nonce taken, signed bytes stored, money held, before any broadcast"),
        _edge(_I.AUTHORIZED, _I.CANCELED, "api operator system", "reason", "withdrawn, or expired, while no slot exists"),
        _edge(_I.SETTLING, _I.CONFIRMING, "relayer listener", "tx_hash", "a node took the transaction, or the log shows it"),
        _edge(_I.SETTLING, _I.FAILED, "relayer", "reason", "proven: no transaction of ours can move the money any more"),
        _edge(_I.SETTLING, _I.NEEDS_REVIEW, "relayer", "reason", "the outcome cannot be proven"),
        _edge(_I.CONFIRMING, _I.SETTLED, "listener", "tx_hash", "final, and the log is exact; the hash equals the one on record"),
        _edge(_I.CONFIRMING, _I.SETTLING, "listener", "reason", "its block gave way, or it is in no block: the same bytes go out again"),
        _edge(_I.CONFIRMING, _I.NEEDS_REVIEW, "listener", "reason", "final, but not what was asked: reverted, or another amount or party"),
        _edge(_I.NEEDS_REVIEW, _I.SETTLED, "operator", "tx_hash reason", "the reviewer settles it by hand"),
        _edge(_I.NEEDS_REVIEW, _I.FAILED, "operator", "reason", "the reviewer closes it as failed"),
        _edge(_I.NEEDS_REVIEW, _I.CONFIRMING, "operator listener", "tx_hash reason",
              "the reviewer names the transaction, or the log shows an exact one after all"),
        _edge(_I.NEEDS_REVIEW, _I.SETTLING, "operator", "reason", "the same bytes again, or a new nonce once the old one is proven dead"),
    )
}
# fmt: on


class WebhookState(StrEnum):
    """Whether a client's webhook is told of what happens."""

    ENABLED = "enabled"  # what is due leaves
    PAUSED = "paused"  # events are kept for it, nothing leaves
    REMOVED = "removed"  # its client gave it up: no secret is kept and nothing leaves any more


class DeliveryState(StrEnum):
    """Where the delivery of one event to one webhook stands."""

    WAITING = "waiting"  # due now or later; a worker may have it in hand
    DELIVERED = "delivered"  # the receiver answered with success
    FAILED = "failed"  # given up after its last attempt, or too old; an operator may send it again
    DROPPED = "dropped"  # its webhook was removed first


class DeliveryVerb(StrEnum):
    """The transitions of a delivery."""

    DELIVER = "deliver"
    POSTPONE = "postpone"
    GIVE_UP = "give_up"
    EXPIRE = "expire"
    DROP = "drop"
    REDRIVE = "redrive"


@dataclass(frozen=True, slots=True)
class DeliveryTransition:
    """One row of the machine of deliveries."""

    verb: DeliveryVerb
    source: DeliveryState
    target: DeliveryState
    actor: Actor
    meaning: str


_D, _V = DeliveryState, DeliveryVerb

# fmt: off
DELIVERY_TRANSITIONS: Final[dict[DeliveryVerb, DeliveryTransition]] = {row.verb: row for row in (
    DeliveryTransition(_V.DELIVER, _D.WAITING, _D.DELIVERED, Actor.WORKER, "the receiver answered with 2xx"),
    DeliveryTransition(_V.POSTPONE, _D.WAITING, _D.WAITING, Actor.WORKER, "anything else: tried again after a longer and longer delay"),
    DeliveryTransition(_V.GIVE_UP, _D.WAITING, _D.FAILED, Actor.WORKER, "anything else at the last attempt, or the receiver is gone for good (410)"),
    DeliveryTransition(_V.EXPIRE, _D.WAITING, _D.FAILED, Actor.SWEEP, "too old: its webhook was paused, its account disabled, or no worker ran"),
    DeliveryTransition(_V.DROP, _D.WAITING, _D.DROPPED, Actor.SWEEP, "its webhook was removed"),
    DeliveryTransition(_V.REDRIVE, _D.FAILED, _D.WAITING, Actor.OPERATOR, "an operator sends it again; its attempts begin anew"),
)}
WEBHOOK_TRANSITIONS: Final[dict[WebhookState, frozenset[WebhookState]]] = {  # target: sources; by its client only
    WebhookState.ENABLED: frozenset({WebhookState.PAUSED}),
    WebhookState.PAUSED: frozenset({WebhookState.ENABLED}),
    WebhookState.REMOVED: frozenset({WebhookState.ENABLED, WebhookState.PAUSED}),
}
# fmt: on

# What a webhook may be told of: states that requests and payments come into. The database's outbox triggers name the same.
TOLD_OF: Final = frozenset(FINAL | {Status.NEEDS_REVIEW})
INTENT_TOLD_OF: Final = frozenset(INTENT_FINAL | {IntentState.NEEDS_REVIEW})
EVENTS: Final = (
    *(f"request.{status.value}" for status in Status if status in TOLD_OF),
    *(f"payment.{state.value}" for state in IntentState if state in INTENT_TOLD_OF),
)
USUAL_EVENTS: Final = tuple(event for event in EVENTS if not event.endswith("needs_review"))
TEST_EVENT: Final = "webhook.test"
