"""Several endpoints of one chain: the first healthy one is used, a failing one rests behind its breaker.

Health is told by transport and by height: a node far behind the best is asked last, one that serves another chain is barred. What
the chain says (a revert, "nonce too low") never counts against an endpoint (OpenZeppelin 681).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from requests_app.errors import ConfigurationError
from workers.chain.connection import CONNECT_SECONDS, READ_SECONDS
from workers.chain.hexdata import MalformedHex, quantity
from workers.chain.rpc import BATCH_LIMIT, Call, RpcEndpoint, is_read
from workers.chain.rpc_errors import Answer, Missing, RpcError, RpcUnavailable, WrongChain

log = logging.getLogger("relayer.chain")

EXAMINE_SECONDS: Final = 10.0
LAG_BLOCKS: Final = 20  # a node this far behind the best one is asked last
BAR_SECONDS: Final = 60.0
DEADLINE_SECONDS: Final = 20.0  # after this long no further node is tried for one question


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
        budget: float = 0.0,
        finality_depth: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not urls:
            raise ConfigurationError("a chain needs at least one RPC endpoint")
        self._clock = clock
        self._examined_at = clock()
        self._lagging: frozenset[str] = frozenset()
        self.all = tuple(
            RpcEndpoint(url, timeout, chain_id=chain_id, budget=budget, finality_depth=finality_depth, clock=clock)
            for url in urls
        )

    def read(self) -> RpcEndpoint:
        """The endpoint to ask now: the first healthy one of the right chain, else the one that is usable soonest.

        Raises WrongChain when every endpoint serves another chain.
        """
        order = self._order()
        if len(order) == 1:
            return order[0]
        wrong: WrongChain | None = None
        for endpoint in order:
            try:
                endpoint.verify()
            except WrongChain as error:
                wrong = self._bar(endpoint, error)
            except (RpcUnavailable, RpcError):
                continue
            else:
                return endpoint
        if wrong is not None and all(not self.usable(endpoint) for endpoint in order):
            raise wrong
        return order[0]

    def send(self) -> RpcEndpoint:
        """The endpoint to send to now. The caller must not repeat a send whose outcome is unknown elsewhere unseen."""
        return self.read()

    def examine(self) -> None:
        """Now and then: chain id and height of every endpoint. Raises WrongChain when the only endpoint serves another chain."""
        now = self._clock()
        if now - self._examined_at < EXAMINE_SECONDS:
            return
        self._examined_at = now
        heights: dict[str, int] = {}
        for endpoint in self.all:
            if not self.usable(endpoint):
                continue
            endpoint.doubt()
            try:
                heights[endpoint.name] = quantity(endpoint.call("eth_blockNumber"))
            except WrongChain as error:
                if len(self.all) == 1:
                    raise
                self._bar(endpoint, error)
            except (RpcUnavailable, RpcError, MalformedHex):
                continue
        best = max(heights.values(), default=0)
        lagging = frozenset(name for name, height in heights.items() if best - height > LAG_BLOCKS)
        if lagging != self._lagging:
            log.warning(
                "endpoints far behind the others", extra={"action": "rpc_lagging", "endpoints": sorted(lagging)}
            )
        self._lagging = lagging

    def usable(self, endpoint: RpcEndpoint) -> bool:
        """Whether its breaker lets calls through."""
        return endpoint.available_at <= self._clock()

    def lags(self, endpoint: RpcEndpoint) -> bool:
        """Whether it was far behind the best one when they were last examined."""
        return endpoint.name in self._lagging

    def call(self, method: str, params: Sequence[Any] = ()) -> Any:
        """One read, failing over. Raises RpcError (a node's answer is final), RpcUnavailable of the last node, WrongChain.

        Raises ValueError for a method that submits.
        """
        if not is_read(method):
            raise ValueError(f"{method} is not a read; use send()")
        last: RpcUnavailable | WrongChain | None = None
        until = self._clock() + DEADLINE_SECONDS
        for endpoint in self._order():
            try:
                return endpoint.call(method, params)
            except RpcUnavailable as error:
                last = error
            except WrongChain as error:
                last = last or self._bar(endpoint, error)
            if self._clock() >= until:
                break
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
        """Usable ones in configured order, those far behind last, then resting ones, soonest first.

        With all at rest one is still tried.
        """
        now = self._clock()
        usable = [endpoint for endpoint in self.all if endpoint.available_at <= now]
        usable.sort(key=self.lags)
        resting = [endpoint for endpoint in self.all if endpoint.available_at > now]
        return usable + sorted(resting, key=lambda endpoint: endpoint.available_at)

    def _bar(self, endpoint: RpcEndpoint, error: WrongChain) -> WrongChain:
        """Keep a node of another chain out, unless it is the only one: then the caller must know."""
        if len(self.all) > 1:
            endpoint.bar(BAR_SECONDS)
            log.error("endpoint barred: %s", error, extra={"action": "rpc_wrong_chain", "endpoint": endpoint.name})
        return error
