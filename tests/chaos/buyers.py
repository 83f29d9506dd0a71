"""Clients of a run of payments: they create, let the payer sign, authorize, and try again until they are answered, as real ones do."""

from __future__ import annotations

import http.client
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.mischief import Mischief
from tests.chaos.orders import LAPSE_SECONDS, LASTS_SECONDS, Fate, Order
from tests.stack.harness import Stack
from workers.devnet.authorization import authorize
from workers.devnet.demo import Answer

PATH = "/v1/payment-intents"
BUYERS = 8
AGAIN_SECONDS = 0.25
GIVE_UP_SECONDS = 300.0
TWICE = 20  # every so many orders the client sends its POST once more, although it was answered


class Unserved(Exception):
    """The API refused what it has to take, or did not answer for minutes."""


@dataclass
class Buyers:
    """Threads that post the orders, evenly over `seconds`."""

    stack: Stack
    mischief: Mischief
    orders: Sequence[Order]
    seconds: float
    tried_again: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Post all of them; returns when each is done or has its complaint."""
        self._began, self._lock = time.monotonic(), threading.Lock()
        self._left: Iterator[Order] = iter(self.orders)
        threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(BUYERS)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()

    def _serve(self) -> None:
        while True:
            with self._lock:
                order = next(self._left, None)
            if order is None:
                return
            due = self._began + self.seconds * order.number / len(self.orders)
            time.sleep(max(0.0, due - time.monotonic()))
            try:
                self._buy(order)
            except Exception as error:
                self.complaints.append(f"order {order.number} ({order.fate.value}): {type(error).__name__}: {error}")

    def _buy(self, order: Order) -> None:
        created = self._create(order)
        order.intent_id, order.ref = created["id"], bytes.fromhex(created["ref"][2:])
        if order.number % TWICE == 0 and self._create(order) != created:
            raise Unserved("the same key was answered otherwise the second time")
        lasts = LAPSE_SECONDS if order.fate is Fate.LAPSED else LASTS_SECONDS
        until = int(time.time()) + lasts
        parties = order.payer, order.merchant, order.amount
        order.signed = authorize(self.mischief.token, self.mischief.chain_id, *parties, order.ref, until)
        self.mischief.before_authorize(order)
        self._post(f"{PATH}/{order.intent_id}/authorize", order.signed, {}, 200)
        if order.fate is Fate.WITHDRAWN:
            order.withdrawn = self._post(f"{PATH}/{order.intent_id}/cancel", {}, {}, 200, 409).status == 200
        self.mischief.after_authorize(order)

    def _create(self, order: Order) -> dict[str, Any]:
        terms = {
            "chain": f"evm:{self.mischief.chain_id}", "token": self.mischief.token["address"], "payer": order.payer.address,
            "merchant": order.merchant, "amount": str(order.amount),
        }  # fmt: skip
        return self._post(PATH, terms, {"Idempotency-Key": order.key}, 201).body

    def _post(self, path: str, body: dict[str, Any], headers: Mapping[str, str], *good: int) -> Answer:
        """The answer; again when none came, when the server has trouble, is full, or works on the same key (all of these pass)."""
        give_up = time.monotonic() + GIVE_UP_SECONDS
        while time.monotonic() < give_up:
            try:
                answer = self.stack.api.post(path, body, headers)
            except (OSError, http.client.HTTPException, ValueError) as error:
                self._count(type(error).__name__)
            else:
                if answer.status in good:
                    return answer
                in_flight = answer.status == 409 and path == PATH
                if answer.status < 500 and answer.status != 429 and not in_flight:
                    raise Unserved(f"POST {path} answered {answer.status}: {answer.body}")
                self._count(str(answer.status))
            time.sleep(AGAIN_SECONDS)
        raise Unserved(f"POST {path} was not served for {GIVE_UP_SECONDS:.0f} s")

    def _count(self, cause: str) -> None:
        with self._lock:
            self.tried_again[cause] += 1
