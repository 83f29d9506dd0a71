"""Raw JSON-RPC 2.0 over one kept connection: single calls and batches, every outcome told apart (queue_settle 4.5, 4.10).

web3.py is not used here on purpose: it retries eth_sendRawTransaction, refuses it in batches, and raises for a whole
batch when one element fails.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import orjson

from requests_app import backoff
from requests_app.crash_points import crash_point
from workers.chain.batch_size import BatchSize
from workers.chain.budget import TokenBucket
from workers.chain.connection import CONNECT_SECONDS, READ_SECONDS, HttpAnswer, KeptConnection, StaleConnection
from workers.chain.hexdata import hex_quantity, quantity
from workers.chain.rpc_errors import (
    Answer,
    Failed,
    Missing,
    Ok,
    RpcError,
    RpcRateLimited,
    RpcUnavailable,
    WrongChain,
)

log = logging.getLogger("relayer.chain")

BATCH_LIMIT: Final = 50
# Nodes and the proxies before them cap a request body, mostly at a few MB; proofs make a call as large as that alone.
REQUEST_BYTES: Final = 1_000_000
SLOW_SHARE: Final = 0.4  # of the read timeout: a batch that takes longer is halved before it is not answered at all
BREAKER_FIRST_SECONDS: Final = 0.5
BREAKER_LONGEST_SECONDS: Final = 15.0
FINALIZED: Final = "finalized"
Call: TypeAlias = tuple[str, Sequence[Any]]


class RpcEndpoint:
    """One node. Keeps one connection and its own breaker state; use one instance a process and thread.

    `chain_id`, when given, is compared with eth_chainId before the first call and after every outage; another chain
    raises WrongChain and nothing else is sent. `finality_depth`: what is asked of the `finalized` block is asked of the one so many
    blocks below this node's head, on a chain that marks none (0: the chain's own mark).
    """

    def __init__(
        self,
        url: str,
        timeout: tuple[float, float] = (CONNECT_SECONDS, READ_SECONDS),
        *,
        chain_id: int | None = None,
        budget: float = 0.0,
        finality_depth: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._finality_depth = finality_depth
        # Sends have a budget of their own: a flood of reads never keeps a transaction back.
        self._budgets = {read: TokenBucket(budget, clock=clock) for read in (True, False)}
        self._barred_until = 0.0
        self._connection = KeptConnection(url, timeout)
        self._read_seconds = timeout[1]
        self._chain_id = chain_id
        self._verified = chain_id is None
        self._clock = clock
        self._failures = 0
        self._closed_until = 0.0
        self._next_id = 0
        self._sizes = BatchSize()
        self.name = self._connection.name

    @property
    def available_at(self) -> float:
        """The moment, on this endpoint's clock, from which breaker and budget let reads through."""
        return max(self._closed_until, self._barred_until, self._budgets[True].ready_at)

    def verify(self) -> None:
        """Compare the chain id if that is due. Raises WrongChain, RpcUnavailable, RpcError."""
        self._verify_chain()

    def bar(self, seconds: float) -> None:
        """Keep the endpoint out for a while, and verify its chain again afterwards."""
        self._barred_until = self._clock() + seconds
        self._verified = self._chain_id is None

    def doubt(self) -> None:
        """Compare the chain id again before the next call (a health check: the node behind the address may be another)."""
        self._verified = self._chain_id is None

    def close(self) -> None:
        """Close the kept connection."""
        self._connection.close()

    def call(self, method: str, params: Sequence[Any] = ()) -> Any:
        """The `result` of one call.

        Raises RpcError for an error object, RpcUnavailable without a usable answer, WrongChain.
        """
        self._verify_chain()
        ((method, params),) = self._numbered([(method, params)])
        return self._single(method, params)

    def batch(self, calls: Sequence[Call], limit: int = BATCH_LIMIT) -> list[Answer[Any]]:
        """One answer a call, in order, in HTTP requests of at most `limit` calls.

        Transport failures come back as Missing, never as an exception, so that the answers of earlier requests are
        not lost; after one of them the rest is not sent (Missing with sent=False), nor is what the node's slowness leaves no time for.
        Raises WrongChain only.
        """
        if not calls:
            return []
        try:
            self._verify_chain()
            calls = self._numbered(calls)
        except RpcUnavailable as error:
            return [Missing(error.reason, sent=False, answer_status=error.answer_status)] * len(calls)
        except RpcError as error:
            return [Missing(f"asked beforehand: {error.message}", sent=False)] * len(calls)
        first = self._next_id + 1
        self._next_id += len(calls)
        encoded = [encode(first + offset, method, params) for offset, (method, params) in enumerate(calls)]
        answers: list[Answer[Any]] = []
        began = self._clock()
        while len(answers) < len(calls):
            if answers and self._clock() - began > self._read_seconds:
                answers.extend([Missing("not attempted: the node is slow", sent=False)] * (len(calls) - len(answers)))
                break
            size = fitting(encoded[len(answers) :], self._sizes.of(limit))
            part = calls[len(answers) : len(answers) + size]
            body = b"[" + b",".join(encoded[len(answers) : len(answers) + size]) + b"]"
            try:
                answers.extend(self._batch_request(body, first + len(answers), part, limit))
            except RpcUnavailable as error:
                answers.extend([Missing(error.reason, error.sent, error.answer_status)] * len(part))
                rest = len(calls) - len(answers)
                answers.extend([Missing("not attempted: the request before it failed", sent=False)] * rest)
                break
        return answers

    def _verify_chain(self) -> None:
        if self._verified:
            return
        actual = quantity_or_unavailable(self._single("eth_chainId", ()), self.name)
        if actual != self._chain_id:
            raise WrongChain(self.name, self._chain_id or 0, actual)
        self._verified = True

    def _numbered(self, calls: Sequence[Call]) -> Sequence[Call]:
        """The calls with a number in the place of the `finalized` mark, where the chain has none: of this very node, which may lag."""
        if not self._finality_depth or not any(FINALIZED in params for _, params in calls):
            return calls
        head = quantity_or_unavailable(self._single("eth_blockNumber", ()), self.name)
        final = hex_quantity(max(0, head - self._finality_depth))
        return [(method, [final if one == FINALIZED else one for one in params]) for method, params in calls]

    def _single(self, method: str, params: Sequence[Any]) -> Any:
        self._next_id += 1
        answer = self._post(encode(self._next_id, method, params), is_read(method), 1)
        document = self._document(answer)
        if isinstance(document, dict):
            if isinstance(document.get("error"), dict):
                raise error_object(document["error"])
            if answer.status == 200 and "result" in document and document.get("id") == self._next_id:
                return document["result"]
        raise self._failed(
            RpcUnavailable(f"{self.name}: not a JSON-RPC answer", sent=True, answer_status=answer.status)
        )

    def _batch_request(self, body: bytes, first: int, calls: Sequence[Call], limit: int) -> list[Answer[Any]]:
        began = self._clock()
        try:
            answer = self._post(body, all(is_read(method) for method, _ in calls), len(calls))
        except RpcUnavailable:
            self._was_slow(began, len(calls))
            raise
        document = self._document(answer)
        answers = matched(document, first, len(calls))
        if answers is None:
            if len(calls) > 1 and isinstance(document, dict):  # a lone error object usually means "batch too large"
                self._sizes.refused(self._sizes.of(limit))
            # Some nodes answer a whole batch with one error object, or leave elements out: nobody knows which ran.
            return [Missing(f"{self.name}: batch {_shape(document)}", answer_status=answer.status)] * len(calls)
        if not self._was_slow(began, len(calls)):
            self._sizes.answered(len(calls))
        return answers

    def _was_slow(self, began: float, calls: int) -> bool:
        """Whether so many calls took the node too long. The same batch would time out each time, and what is asked again comes on top."""
        slow = calls > 1 and self._clock() - began > self._read_seconds * SLOW_SHARE
        if slow:
            self._sizes.refused(calls)
        return slow

    def _post(self, body: bytes, read: bool, calls: int) -> HttpAnswer:
        if not self._budgets[read].take(calls):
            # Ours, not the node's: it says nothing about the endpoint's health.
            raise RpcRateLimited(f"{self.name}: the budget of this process is spent", None)
        crash_point("before_rpc_request")
        try:
            try:
                answer = self._connection.post(body)
            except StaleConnection:
                if not read:
                    raise
                # A read may be asked again; it met a connection that the node had already given up.
                answer = self._connection.post(body)
        except RpcUnavailable as error:
            raise self._failed(error) from None
        crash_point("after_rpc_request")
        if answer.status == 429:
            raise self._failed(RpcRateLimited(f"{self.name}: too many requests", answer.retry_after))
        return answer

    def _document(self, answer: HttpAnswer) -> Any:
        try:
            document = orjson.loads(answer.body)
        except orjson.JSONDecodeError:
            reason = f"{self.name}: HTTP {answer.status} without JSON"
            raise self._failed(RpcUnavailable(reason, sent=True, answer_status=answer.status)) from None
        if answer.status < 500:
            self._failures, self._closed_until = 0, 0.0
        return document

    def _failed(self, error: RpcUnavailable) -> RpcUnavailable:
        """Open the breaker, longer after each failure in a row; the chain is verified again afterwards."""
        self._failures += 1
        pause = backoff.doubled(self._failures, BREAKER_FIRST_SECONDS, BREAKER_LONGEST_SECONDS)
        if isinstance(error, RpcRateLimited) and error.retry_after is not None:
            pause = min(60.0, max(pause, error.retry_after))
        self._closed_until = self._clock() + pause
        self._verified = self._chain_id is None
        log.warning(
            "endpoint unavailable",
            extra={"action": "rpc_unavailable", "endpoint": self.name, "reason": error.reason, "pause_seconds": pause},
        )
        return error


def encode(call_id: int, method: str, params: Sequence[Any]) -> bytes:
    """The JSON of one call."""
    return orjson.dumps({"jsonrpc": "2.0", "id": call_id, "method": method, "params": list(params)})


def fitting(encoded: Sequence[bytes], most: int) -> int:
    """How many of these calls go into one request: at most `most`, at most REQUEST_BYTES in all, but always one."""
    total = 0
    for count, one in enumerate(encoded[:most]):
        total += len(one) + 1
        if count and total > REQUEST_BYTES:
            return count
    return min(most, len(encoded))


def is_read(method: str) -> bool:
    """Whether asking twice is harmless: everything but transaction submission and test-node commands."""
    return method.startswith(("eth_", "net_", "web3_")) and not method.startswith("eth_send")


def error_object(node: dict[str, Any]) -> RpcError:
    """The RpcError of a JSON-RPC error object, whatever its fields hold."""
    code = node.get("code")
    message = node.get("message")
    return RpcError(
        code if isinstance(code, int) else 0, message if isinstance(message, str) else "no message", node.get("data")
    )


def matched(document: Any, first: int, count: int) -> list[Answer[Any]] | None:
    """Answers by id for the ids `first` .. `first + count - 1`; None unless each of them occurs once and is usable."""
    if not isinstance(document, list) or len(document) != count:
        return None
    found: list[Answer[Any] | None] = [None] * count
    for element in document:
        if not isinstance(element, dict) or not isinstance(element.get("id"), int):
            return None
        index = element["id"] - first
        if not 0 <= index < count or found[index] is not None:
            return None
        if isinstance(element.get("error"), dict):
            found[index] = Failed(error_object(element["error"]))
        elif "result" in element:
            found[index] = Ok(element["result"])
        else:
            return None
    return [answer for answer in found if answer is not None]


def quantity_or_unavailable(value: Any, name: str) -> int:
    """The int of a QUANTITY result. Raises RpcUnavailable when the node sent something else."""
    try:
        return quantity(value)
    except ValueError:
        raise RpcUnavailable(f"{name}: a quantity was expected", sent=True) from None


def _shape(document: Any) -> str:
    """What came instead of a batch answer, for the log; a lone error object shows its text."""
    if isinstance(document, dict) and isinstance(document.get("error"), dict):
        return f"answered by one error object: {error_object(document['error'])}"
    return f"answered by {type(document).__name__} of another shape"
