"""The loop of a bot: it sees requests in the chain's logs, keeps what is due later, and sends answers in bulk.

RPC access only. A bot that was killed goes on where it stopped: its place is the last block without an open request,
and an answer that was sent twice is skipped by the contract.
"""

from __future__ import annotations

import json
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from workers.devnet.control import Behaviour, Control, Kind
from workers.devnet.deployment import Deployment
from workers.devnet.layout import Layout, write_atomically
from workers.devnet.rpc import Rpc, RpcFailure
from workers.devnet.sending import Call, Sender

logger = logging.getLogger("relayer.devnet")

POLL_SECONDS: Final = 0.05
OUTAGE_PAUSE_SECONDS: Final = 0.5
# A transaction that is not mined by then was lost with the node's memory pool.
LOST_SECONDS: Final = 10.0
BLOCKS_A_QUERY: Final = 2_000
# How far the saved place may lag behind while nothing happens.
IDLE_BLOCKS: Final = 200


@dataclass
class Task:
    """One request that wants an answer. `nodes` are the node numbers still to answer, None before the first turn."""

    kind: Kind
    request_id: int
    block: int
    request: Any
    seen_at: float
    due_at: float = 0.0
    nodes: list[int] | None = None
    sent_shares: int = 0


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Calls of one sender that answer some tasks."""

    sender: Sender
    calls: Sequence[Call]
    tasks: Sequence[Task]


@dataclass
class _InFlight:
    tasks: Sequence[Task]
    sent_at: float = field(default_factory=time.monotonic)


class Bot(ABC):
    """One process that plays one or several nodes."""

    name: str

    def __init__(self, deployment: Deployment, layout: Layout) -> None:
        self.deployment = deployment
        self.rpc: Rpc = deployment.gateway_rpc()
        self.control = Control(layout.control)
        self._cursor_path = layout.cursor(self.name)
        self._genesis = deployment.gateway["genesis_hash"]
        self._pending: dict[int, Task] = {}
        self._in_flight: dict[str, _InFlight] = {}
        self._seen = self._saved = self._read_cursor()
        self._caught_up = False

    @abstractmethod
    def address(self) -> str:
        """The contract whose requests are answered."""

    @abstractmethod
    def topics(self) -> list[str]:
        """topic0 of the request events."""

    @abstractmethod
    def task(self, log: dict[str, Any]) -> Task:
        """The request in a log."""

    @abstractmethod
    def is_answered(self, task: Task) -> bool:
        """Whether the chain has the answer already."""

    @abstractmethod
    def answers(self, tasks: Sequence[Task]) -> list[Outgoing]:
        """Transactions for tasks that are due. Those that need another turn are put back by `later`."""

    def later(self, task: Task, seconds: float) -> None:
        """Look at the task again after `seconds`."""
        task.due_at = time.monotonic() + seconds
        self._pending[task.request_id] = task

    def behaviour(self, task: Task) -> Behaviour:
        return self.control.of(task.kind)

    def run(self) -> None:
        """Turns for ever; a node that is away is waited for."""
        logger.info("bot started", extra={"action": "bot_start", "bot": self.name, "block": self._seen})
        while True:
            try:
                self.turn()
            except (OSError, RpcFailure) as error:
                logger.warning(
                    "bot cannot reach the chain", extra={"action": "bot_outage", "bot": self.name, "error": str(error)}
                )
                time.sleep(OUTAGE_PAUSE_SECONDS)
            else:
                time.sleep(POLL_SECONDS)

    def turn(self) -> int:
        """Reads new blocks and answers what is due. Returns the number of requests answered or put back."""
        self._read_blocks()
        # After the blocks: whoever changes the behaviour and then makes a request is served by the new one.
        self.control.refresh()
        self._settle_in_flight()
        now = time.monotonic()
        due = [task for task in self._pending.values() if self._is_due(task, now)]
        before = [(task, task.nodes, task.sent_shares) for task in due]
        for task in due:
            del self._pending[task.request_id]
        try:
            for group in self.answers(due):
                self._send(group)
        except (OSError, RpcFailure):
            # Nothing is lost: what did reach the chain is skipped when it comes again.
            for task, task.nodes, task.sent_shares in before:
                self._pending[task.request_id] = task
            raise
        self._save_cursor(bool(due))
        return len(due)

    def _is_due(self, task: Task, now: float) -> bool:
        behaviour = self.behaviour(task)
        return behaviour.answer and now >= task.due_at and now >= task.seen_at + behaviour.delay_seconds

    def _send(self, group: Outgoing) -> None:
        hashes = group.sender.send(group.calls)
        for tx_hash in hashes:
            self._in_flight[tx_hash] = _InFlight(group.tasks)

    def _read_blocks(self) -> None:
        head = self.rpc.head()
        if head < self._seen:
            # The chain lost blocks (it was killed between two dumps of its state): read what follows again.
            self._seen = head
        while self._seen < head:
            last = min(head, self._seen + BLOCKS_A_QUERY)
            for log in self.rpc.logs([self.address()], [self.topics()], self._seen + 1, last):
                task = self.task(log)
                if self._caught_up or not self.is_answered(task):
                    self._pending[task.request_id] = task
            self._seen = last
        self._caught_up = True

    def _settle_in_flight(self) -> None:
        if not self._in_flight:
            return
        hashes = list(self._in_flight)
        receipts = self.rpc.batch([("eth_getTransactionReceipt", [tx_hash]) for tx_hash in hashes])
        now = time.monotonic()
        for tx_hash, receipt in zip(hashes, receipts, strict=True):
            flight = self._in_flight[tx_hash]
            if receipt:
                del self._in_flight[tx_hash]
                if receipt["status"] != "0x1":
                    logger.error("answer reverted", extra={"action": "bot_reverted", "tx_hash": tx_hash})
            elif now > flight.sent_at + LOST_SECONDS:
                del self._in_flight[tx_hash]
                for task in flight.tasks:
                    task.nodes = None
                    self._pending[task.request_id] = task

    def _read_cursor(self) -> int:
        """The saved place on this chain; 0 on another one."""
        try:
            kept = json.loads(self._cursor_path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return 0
        return int(kept["block"]) if kept["genesis_hash"] == self._genesis else 0

    def _save_cursor(self, worked: bool) -> None:
        open_tasks = [task.block for task in self._pending.values()]
        open_tasks += [task.block for flight in self._in_flight.values() for task in flight.tasks]
        place = min(open_tasks) - 1 if open_tasks else self._seen
        if place == self._saved or (not worked and abs(place - self._saved) < IDLE_BLOCKS):
            return
        write_atomically(self._cursor_path, json.dumps({"genesis_hash": self._genesis, "block": place}))
        self._saved = place
