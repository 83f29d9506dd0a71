"""Several endpoints of one chain: the first healthy one is used, a failing one rests behind its breaker."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from requests_app.errors import ConfigurationError
from workers.chain.connection import CONNECT_SECONDS, READ_SECONDS
from workers.chain.rpc import BATCH_LIMIT, Call, RpcEndpoint, is_read
from workers.chain.rpc_errors import Answer, Missing, RpcUnavailable


class Endpoints:
    """The nodes of one chain. Reads fail over to the next node; a send is tried on one node only, once.

    Raises ConfigurationError without URLs. Not thread-safe; make one after a fork.
    """

    def __init__(
        self,
        urls: Sequence[str],
        chain_id: int | None = None,
        timeout: tuple[float, float] = (CONNECT_SECONDS, READ_SECONDS),
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not urls:
            raise ConfigurationError("a chain needs at least one RPC endpoint")
        self._clock = clock
        self.all = tuple(RpcEndpoint(url, timeout, chain_id=chain_id, clock=clock) for url in urls)

    def read(self) -> RpcEndpoint:
        """The endpoint to ask now: the first one whose breaker lets calls through, else the one that does so soonest."""
        return self._order()[0]

    def send(self) -> RpcEndpoint:
        """The endpoint to send to now. The caller must not repeat a send whose outcome is unknown elsewhere unseen."""
        return self._order()[0]

    def usable(self, endpoint: RpcEndpoint) -> bool:
        """Whether its breaker lets calls through."""
        return endpoint.available_at <= self._clock()

    def call(self, method: str, params: Sequence[Any] = ()) -> Any:
        """One read, failing over. Raises RpcError (a node's answer is final), RpcUnavailable of the last node, WrongChain.

        Raises ValueError for a method that submits.
        """
        if not is_read(method):
            raise ValueError(f"{method} is not a read; use send()")
        last: RpcUnavailable | None = None
        for endpoint in self._order():
            try:
                return endpoint.call(method, params)
            except RpcUnavailable as error:
                last = error
        assert last is not None  # noqa: S101 - there is at least one endpoint
        raise last

    def batch(self, calls: Sequence[Call], limit: int = BATCH_LIMIT) -> list[Answer[Any]]:
        """Reads in a batch of at most `limit` calls a HTTP request; elements without an answer are asked again on the next node.

        Raises WrongChain, ValueError.
        """
        if not all(is_read(method) for method, _ in calls):
            raise ValueError("a batch with submissions must go through send()")
        answers: list[Answer[Any]] = [Missing("not asked", sent=False)] * len(calls)
        open_indexes = list(range(len(calls)))
        for endpoint in self._order():
            for index, answer in zip(
                open_indexes, endpoint.batch([calls[i] for i in open_indexes], limit), strict=True
            ):
                answers[index] = answer
            open_indexes = [index for index in open_indexes if isinstance(answers[index], Missing)]
            if not open_indexes:
                break
        return answers

    def close(self) -> None:
        """Close every kept connection."""
        for endpoint in self.all:
            endpoint.close()

    def _order(self) -> list[RpcEndpoint]:
        """Usable ones in configured order, then resting ones, soonest first (with all at rest one is still tried)."""
        now = self._clock()
        usable = [endpoint for endpoint in self.all if endpoint.available_at <= now]
        resting = [endpoint for endpoint in self.all if endpoint.available_at > now]
        return usable + sorted(resting, key=lambda endpoint: endpoint.available_at)
