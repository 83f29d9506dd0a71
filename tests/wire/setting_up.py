"""Grants and commitments for many scenarios at once, and a way to wait for many of them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from concurrent.futures import Future

from workers.devnet.traffic import Traffic


class Countdown:
    """How often something was reached, for somebody who waits for a number of times."""

    def __init__(self) -> None:
        self._reached = threading.Semaphore(0)

    def reached(self) -> None:
        self._reached.release()

    def wait_for(self, times: int, timeout: float = 60.0) -> None:
        """Returns when it was reached so often, or after `timeout` seconds each; whoever did not arrive fails by itself."""
        for _ in range(times):
            if not self._reached.acquire(timeout=timeout):
                return


class Setup:
    """Grants and commitments of many scenarios in few transactions: what is asked within a moment goes together."""

    GATHER_SECONDS = 0.05

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._asked: queue.Queue[tuple[list[bytes], list[bytes], Future[None]] | None] = queue.Queue()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def run(self, calls: Sequence[bytes], handles: Sequence[bytes]) -> None:
        """Returns when all is mined."""
        done: Future[None] = Future()
        self._asked.put((list(calls), list(handles), done))
        done.result(120)

    def close(self) -> None:
        self._asked.put(None)
        self._thread.join(60)

    def _work(self) -> None:
        while (first := self._asked.get()) is not None:
            batch, last = [first], False
            while True:
                try:
                    item = self._asked.get(timeout=self.GATHER_SECONDS)
                except queue.Empty:
                    break
                if item is None:
                    last = True
                    break
                batch.append(item)
            self._carry_out(batch)
            if last:
                return

    def _carry_out(self, batch: Sequence[tuple[list[bytes], list[bytes], Future[None]]]) -> None:
        try:
            self._traffic.set_up(
                [call for calls, _, _ in batch for call in calls],
                [handle for _, handles, _ in batch for handle in handles],
            )
        except Exception as error:
            for _, _, done in batch:
                done.set_exception(error)
        else:
            for _, _, done in batch:
                done.set_result(None)
