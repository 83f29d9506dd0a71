"""How many rows of what a seeded database has: shares of kinds and states, and how deep the history goes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from requests_app.states import INITIAL, REQUEST_KINDS, IntentState, Kind, Status

SPAN_SECONDS: Final = 6 * 86_400.0  # finished rows end within six days: younger than the shortest retention
ACCOUNTS: Final = 40
SIGNERS: Final = {Kind.USER_DECRYPT: 8, Kind.PUBLIC_DECRYPT: 3, Kind.INPUT_PROOF: 5, Kind.PAYMENT: 2}
CHUNK: Final = 25_000

_KIND_SHARES: Final = {Kind.USER_DECRYPT: 0.5, Kind.PUBLIC_DECRYPT: 0.2, Kind.INPUT_PROOF: 0.3}
# Of the live rows that are not in review. Most wait for the gateway, as when it answers slowly: what is in flight is bounded by the
# signers' windows, what is queued by the door (QUEUE_CAPACITY).
_LIVE_SHARES: Final = {
    Status.RECEIPT_RECEIVED: 0.73,
    Status.TX_IN_FLIGHT: 0.02,
    Status.PROCESSING: 0.1,
    Status.QUEUED: 0.15,
}
# Newest first; older rows keep only themselves and their clients' views. With everything of everything 10 M rows would need 40 GB; so they need 15.
_SLOTS_SHARE: Final = 0.22
_HISTORY_SHARE: Final = 0.1
_BODIES_SHARE: Final = 0.01
# Payment intents beside the requests, for each of these. What holds a nonce comes first.
_PAYMENTS_SHARE: Final = 0.02
_LIVE_PAYMENTS: Final = {
    IntentState.CONFIRMING: 0.25,
    IntentState.SETTLING: 0.05,
    IntentState.AUTHORIZED: 0.4,
    IntentState.CREATED: 0.3,
}

# Tables that are filled without their indexes, in the order in which these come back.
BIG_TABLES: Final = (
    *(kind.table for kind in REQUEST_KINDS),
    "request_client",
    "nonce_slot",
    "tx_attempt",
    "gateway_ref",
    "req_transition",
    "request_payload",
    "user_decrypt_share",
)
_SMALL_TABLES: Final = ("queue_job", "review_case", "review_decision", "command", "signer", "finished_figure")
_PAYMENT_TABLES: Final = ("payment_intent", "intent_transition", "ledger_entry", "ledger_leg", "ledger_balance")
# Also emptied, never filled: rows that would hang on requests and payments which are gone.
_ATTACHED: Final = (
    "dead_letter",
    "idempotency_record",
    "usage_billed",
    "usage_settled",
    "kept_share",
    "reorg_evidence",
    "figures_up_to",
    "payment_observation",
    "recon_finding",
    "webhook_delivery",
)
TABLES: Final = (*BIG_TABLES, *_SMALL_TABLES, *_PAYMENT_TABLES, *_ATTACHED)

_STATE_ORDER: Final = (
    Status.RECEIPT_RECEIVED,
    Status.NEEDS_REVIEW,
    Status.TX_IN_FLIGHT,
    Status.PROCESSING,
    Status.QUEUED,
)


@dataclass(frozen=True, slots=True)
class KindPlan:
    """Rows of one kind: numbers 1 to `finished` have ended, those up to `last` are live, oldest states first."""

    kind: Kind
    finished: int
    live: dict[Status, int]

    @property
    def last(self) -> int:
        """The highest row number."""
        return self.finished + sum(self.live.values())

    @property
    def states(self) -> list[str]:
        """The live states in the order of their rows."""
        return [status.value for status in self.live]

    @property
    def cuts(self) -> list[int]:
        """The first row number of every live state but the first."""
        return _cuts(self.finished, self.live.values())

    def newest(self, share: float) -> int:
        """The row number from which on the newest `share` of the finished rows, and all live ones, stand."""
        return self.finished - int(self.finished * share) + 1


@dataclass(frozen=True, slots=True)
class PaymentPlan:
    """Payment intents, numbered like the rows of a kind."""

    finished: int
    live: dict[IntentState, int]

    @property
    def last(self) -> int:
        """The highest row number."""
        return self.finished + sum(self.live.values())

    @property
    def states(self) -> list[str]:
        """The live states in the order of their rows."""
        return [state.value for state in self.live]

    @property
    def cuts(self) -> list[int]:
        """The first row number of every live state but the first."""
        return _cuts(self.finished, self.live.values())


@dataclass(frozen=True, slots=True)
class Layout:
    """A whole database. `finished`, `live` and `reviews` (part of `live`) are the sums over the kinds."""

    finished: int
    live: int
    reviews: int

    def __post_init__(self) -> None:
        if self.finished < 100 or self.live < 0 or not 0 <= self.reviews <= self.live:
            raise ValueError("at least 100 finished rows, and no more reviews than live rows")

    def kinds(self) -> list[KindPlan]:
        """The plan of every kind."""
        finished, live = _divide(self.finished, _KIND_SHARES), _divide(self.live - self.reviews, _KIND_SHARES)
        reviews = _divide(self.reviews, _KIND_SHARES)
        return [KindPlan(kind, finished[kind], _states(kind, live[kind], reviews[kind])) for kind in REQUEST_KINDS]

    def payments(self) -> PaymentPlan:
        """The plan of the payments."""
        live = int(self.live * _PAYMENTS_SHARE)
        return PaymentPlan(
            int(self.finished * _PAYMENTS_SHARE), {state: int(live * share) for state, share in _LIVE_PAYMENTS.items()}
        )

    def estimate(self) -> dict[str, int]:
        """About how many rows every big table gets."""
        plans = self.kinds()
        rows = {plan.kind.table: plan.last for plan in plans}
        sent = int(self.finished * _SLOTS_SHARE + self.live * 0.75)
        old, users, paid = int(self.finished * _BODIES_SHARE), plans[0], self.payments().last
        return {
            **rows,
            "request_client": int((self.finished + self.live) * 1.01),
            "nonce_slot": sent + int(paid * 0.93),
            "tx_attempt": sent + int(paid * 0.93) + self.reviews,
            "gateway_ref": sent,
            "req_transition": int(self.finished * _HISTORY_SHARE * 4.6 + self.live * 3.3),
            "request_payload": old + self.live,
            "user_decrypt_share": int(users.finished * _BODIES_SHARE) * 13 + users.live[Status.RECEIPT_RECEIVED] * 4,
            "payment_intent": paid,
        }


def depths(plan: KindPlan) -> dict[str, int]:
    """From which row number on the parts of a request are kept, as the statement's parameters."""
    return {
        "slots_from": plan.newest(_SLOTS_SHARE),
        "history_from": plan.newest(_HISTORY_SHARE),
        "bodies_from": plan.newest(_BODIES_SHARE),
    }


def chunks(last: int) -> Iterator[tuple[int, int]]:
    """Ranges of row numbers from 1 to `last`, each written by one statement."""
    for first in range(1, last + 1, CHUNK):
        yield first, min(first + CHUNK - 1, last)


def _cuts(finished: int, counts: Iterable[int]) -> list[int]:
    return [finished + 1 + number for number in accumulate(counts)][:-1]


def _divide(total: int, shares: dict[Kind, float]) -> dict[Kind, int]:
    """Whole parts that sum up to the total."""
    parts = {kind: int(total * share) for kind, share in shares.items()}
    parts[Kind.USER_DECRYPT] += total - sum(parts.values())
    return parts


def _states(kind: Kind, live: int, reviews: int) -> dict[Status, int]:
    counts = {status: int(live * share) for status, share in _LIVE_SHARES.items()}
    if INITIAL[kind] is not Status.QUEUED:
        counts[Status.PROCESSING] += counts.pop(Status.QUEUED)
    counts[Status.RECEIPT_RECEIVED] += live - sum(counts.values())
    counts[Status.NEEDS_REVIEW] = reviews
    return {status: counts[status] for status in _STATE_ORDER if status in counts}
