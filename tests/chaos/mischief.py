"""What the world does to payments of a run: executes, revokes and misuses their authorizations, and gives money late. All of it by seed."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.chaos.orders import Fate, Order, endowments
from tests.stack.harness import Stack
from workers.devnet.authorization import authorize, cancel
from workers.devnet.contracts import contract
from workers.devnet.rpc import RpcFailure
from workers.devnet.sending import Call, Sender

DOLLAR = contract("DevnetUSD")
DELAY_SECONDS = 3.0  # how long after the relayer was told somebody else may come
EARLY = 0.5  # of those who are faster, how many come before the relayer is told
TRIES = 5
MINTS = 50
MINED_SECONDS = 20.0
FINISH_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Deed:
    """Something that was done to an order. `at`: seconds since the start."""

    number: int
    fate: Fate
    at: float
    tx_hash: str

    def __str__(self) -> str:
        return f"{self.fate.value} of order {self.number} at {self.at:.1f} s by {self.tx_hash}"


@dataclass
class Mischief:
    """Deeds in a thread of their own, each when it is due. `funds_after`: seconds until a payer without money gets some."""

    stack: Stack
    orders: Sequence[Order]
    funds_after: float
    note: Callable[[str], None]
    done: list[Deed] = field(default_factory=list)

    def __post_init__(self) -> None:
        gateway = self.stack.deployment.gateway
        self.token, self.chain_id = gateway["payment_tokens"][0], int(gateway["chain_id"])
        self._rpc = self.stack.deployment.gateway_rpc()
        self._somebody = Sender(self._rpc, self.stack.deployment.operators[3], self.chain_id)
        self._owner = Sender(self._rpc, self.stack.deployment.deployer, self.chain_id)
        self._sending, self._turn = threading.Lock(), threading.Condition()
        self._due: list[tuple[float, int, Order, Sender, Call]] = []
        self._waiting: set[str] = set()  # payers, once their first order is known
        self._serial, self._ending, self._began = 0, False, time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Give everybody the money that they have, list whom the token refuses, and wait for deeds to come due."""
        calls = [self._dollar("mint", payer, sum_) for payer, sum_ in endowments(self.orders).items() if sum_]
        listed = {one.payer.address for one in self.orders if one.fate is Fate.REFUSED}
        calls += [self._dollar("setBlacklisted", payer, True) for payer in sorted(listed)]
        for first in range(0, len(calls), MINTS):
            self._owner.run(calls[first : first + MINTS])
        self._began = time.monotonic()
        self._thread.start()

    def finish(self) -> None:
        """Do what is still due, without waiting for its time; returns when all of it is in blocks. Raises TimeoutError."""
        with self._turn:
            self._ending = True
            self._turn.notify()
        self._thread.join(FINISH_SECONDS)
        self._rpc.receipts([one.tx_hash for one in self.done], FINISH_SECONDS)
        self._rpc.close()

    def before_authorize(self, order: Order) -> None:
        """The payer has signed and the relayer has not been told: half of the fast are faster than that."""
        if order.fate is Fate.OVERTAKEN and order.chance < EARLY:
            tx_hash = self._do(order, self._somebody, self._transfer(order))
            until = time.monotonic() + MINED_SECONDS
            while tx_hash and not self._mined(tx_hash) and time.monotonic() < until:
                time.sleep(0.1)

    def after_authorize(self, order: Order) -> None:
        """The relayer has been told."""
        late = order.chance * DELAY_SECONDS
        match order.fate:
            case Fate.OVERTAKEN if order.chance >= EARLY:
                self._plan((order.chance - EARLY) * DELAY_SECONDS, order, self._somebody, self._transfer(order))
            case Fate.REVOKED:
                v, r, s = cancel(self.token, self.chain_id, order.payer, order.ref)
                call = self._dollar("cancelAuthorization", order.payer.address, order.ref, v, r, s)
                self._plan(late, order, self._somebody, call)
            case Fate.OTHER_AMOUNT | Fate.OTHER_PARTY:
                self._plan(late, order, self._somebody, self._otherwise(order))
            case Fate.LATE_FUNDS | Fate.SHARED_FUNDS:
                with self._turn:
                    first = order.payer.address not in self._waiting
                    self._waiting.add(order.payer.address)
                if order.fate is Fate.LATE_FUNDS or not first:
                    mint = self._dollar("mint", order.payer.address, order.amount)
                    self._plan(self.funds_after, order, self._owner, mint)
            case _:
                pass

    def _dollar(self, function: str, *values: object) -> Call:
        return Call(self.token["address"], DOLLAR.call(function, *values))

    def _transfer(self, order: Order) -> Call:
        return self._carried_out(order, order.signed, order.merchant, order.amount)

    def _otherwise(self, order: Order) -> Call:
        merchant, amount = order.other
        until = int(order.signed["valid_before"])
        signed = authorize(self.token, self.chain_id, order.payer, merchant, amount, order.ref, until)
        return self._carried_out(order, signed, merchant, amount)

    def _carried_out(self, order: Order, signed: dict[str, str], merchant: str, amount: int) -> Call:
        raw = bytes.fromhex(signed["signature"][2:])
        window = int(signed["valid_after"]), int(signed["valid_before"])
        members = (order.payer.address, merchant, amount, *window, order.ref, raw[64], raw[:32], raw[32:64])
        return self._dollar("transferWithAuthorization", *members)

    def _plan(self, seconds: float, order: Order, sender: Sender, call: Call) -> None:
        with self._turn:
            self._serial += 1
            heapq.heappush(self._due, (time.monotonic() + seconds, self._serial, order, sender, call))
            self._turn.notify()

    def _run(self) -> None:
        while True:
            with self._turn:
                while not self._ending and (not self._due or self._due[0][0] > time.monotonic()):
                    self._turn.wait(self._due[0][0] - time.monotonic() if self._due else None)
                if not self._due:
                    return
                _, _, order, sender, call = heapq.heappop(self._due)
            self._do(order, sender, call)

    def _do(self, order: Order, sender: Sender, call: Call) -> str | None:
        """On its way into a block, whatever the token says to it: who was faster is judged by the events."""
        with self._sending:
            for _ in range(TRIES):
                try:
                    (tx_hash,) = sender.send([call])
                except (OSError, RpcFailure) as error:
                    self.note(f"{order.fate.value} of order {order.number} again: {error}")
                    time.sleep(0.5)
                    continue
                self.done.append(Deed(order.number, order.fate, time.monotonic() - self._began, tx_hash))
                return tx_hash
        self.note(f"{order.fate.value} of order {order.number} could not be done")
        return None

    def _mined(self, tx_hash: str) -> bool:
        with self._sending:
            try:
                return self._rpc.call("eth_getTransactionReceipt", tx_hash) is not None
            except (OSError, RpcFailure):
                return False
