"""What can be wrong between a client and its node, and when: the rules of the fault proxy."""

from __future__ import annotations

import random
import threading
from collections import Counter
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any


class Fault(StrEnum):
    """The kinds. The first nine meet a whole HTTP request, the rest single calls of it."""

    REFUSE = "refuse"  # connection reset, nothing reaches the node
    DELAY = "delay"  # `seconds` late
    DROP_REQUEST = "drop_request"  # taken from the client, never forwarded, connection closed after `seconds`
    DROP_ANSWER = "drop_answer"  # the node worked, its answer is lost
    DUPLICATE = "duplicate"  # the node gets the request twice; the client gets the second answer
    RATE_LIMIT = "rate_limit"  # HTTP 429, with `retry_after` seconds when given
    HTML = "html"  # HTTP 502 with a page for people
    ONE_ERROR = "one_error"  # a batch answered by one error object; a single call is left alone
    STALE_HEAD = "stale_head"  # the node of this request lags `blocks` behind: head, logs, receipts, nonces
    NULL_RECEIPT = "null_receipt"  # "no such receipt" for a mined transaction
    WRONG_CHAIN = "wrong_chain"  # eth_chainId answers `chain_id`
    ERROR = (
        "error"  # an error object (`code`, `message`, `data`) in place of the call; `executed`: after the node worked
    )
    OTHER_HASH = (
        "other_hash"  # a submission is answered by a hash that is not its own; `executed`: after the node took it
    )
    TWO_EVENTS = "two_events"  # each log of an answer stands there twice, the second time with another content


WHOLE = frozenset(list(Fault)[:9])
ONLY_METHOD = {
    Fault.NULL_RECEIPT: "eth_getTransactionReceipt",
    Fault.WRONG_CHAIN: "eth_chainId",
    Fault.OTHER_HASH: "eth_sendRawTransaction",
    Fault.TWO_EVENTS: "eth_getLogs",
}
# A node that says what cannot be: no weather that passes, but a case for a person.
CONTRADICTIONS = frozenset({Fault.OTHER_HASH, Fault.TWO_EVENTS})


@dataclass(frozen=True, slots=True)
class Rule:
    """One fault: for calls whose method matches the pattern, from the (`skip` + 1)-th on, at most `times` times, by chance.

    `options` are the values named at the kind.
    """

    fault: Fault
    method: str = "*"
    skip: int = 0
    times: int | None = None
    probability: float = 1.0
    options: dict[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """As JSON for the control port."""
        return asdict(self)

    @classmethod
    def read(cls, document: dict[str, Any]) -> Rule:
        """From the control port. Raises ValueError for an unknown kind."""
        return cls(**{**document, "fault": Fault(document["fault"])})

    def meets(self, method: str) -> bool:
        return fnmatchcase(method, self.method) and ONLY_METHOD.get(self.fault, method) == method


class Script:
    """The rules in force with their counters and the random source. Safe for threads."""

    def __init__(self, seed: int) -> None:
        self._lock = threading.Lock()
        self._random = random.Random(seed)
        self._rules: list[list[Any]] = []  # rule, calls met, faults made
        self.injected: Counter[str] = Counter()
        self.seen: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()  # raw transaction -> how often it reached the node

    def add(self, rule: Rule) -> None:
        with self._lock:
            self._rules.append([rule, 0, 0])

    def clear(self) -> None:
        """No faults from now on; the counters stay."""
        with self._lock:
            self._rules.clear()

    def saw(self, methods: list[str]) -> None:
        with self._lock:
            self.seen.update(methods)

    def reached(self, calls: list[dict[str, Any]]) -> None:
        with self._lock:
            self.sent.update(call["params"][0] for call in calls if call.get("method") == "eth_sendRawTransaction")

    def whole(self, methods: list[str]) -> list[Rule]:
        """The faults of this HTTP request."""
        with self._lock:
            return [
                entry[0]
                for entry in self._rules
                if entry[0].fault in WHOLE and any(entry[0].meets(method) for method in methods) and self._hit(entry)
            ]

    def single(self, method: str) -> Rule | None:
        """The fault of this call, the first that applies."""
        with self._lock:
            for entry in self._rules:
                if entry[0].fault not in WHOLE and entry[0].meets(method) and self._hit(entry):
                    found: Rule = entry[0]
                    return found
        return None

    def _hit(self, entry: list[Any]) -> bool:
        rule, met, made = entry
        entry[1] += 1
        if met < rule.skip or (rule.times is not None and made >= rule.times):
            return False
        if rule.probability < 1.0 and self._random.random() >= rule.probability:
            return False
        entry[2] += 1
        self.injected[rule.fault.value] += 1
        return True


def everything(probability: float, *, delay_seconds: float = 0.2, blocks: int = 3) -> list[Rule]:
    """Each kind that passes, with the same probability, as `make chaos` wants it. Submissions fail with an error only unexecuted."""
    options: dict[Fault, dict[str, Any]] = {
        Fault.DELAY: {"seconds": delay_seconds},
        Fault.STALE_HEAD: {"blocks": blocks},
        Fault.ERROR: {"code": -32603, "message": "Internal error"},
        Fault.WRONG_CHAIN: {"chain_id": 1},
    }
    kinds = [kind for kind in Fault if kind not in CONTRADICTIONS]
    return [Rule(kind, probability=probability, options=options.get(kind, {})) for kind in kinds]
