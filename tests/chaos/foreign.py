"""Transactions with the relayer's own keys that the relayer knows nothing of: what an injected review has to be traced to."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field

import psycopg

from tests.stack.harness import Stack
from workers.chain.signer import LocalSigner
from workers.devnet.rpc import Rpc, RpcFailure

FEE = 100 * 10**9  # wei a gas: over whatever waits at that nonce
CATCH_SECONDS = 10.0
TRIES = 20


@dataclass(frozen=True, slots=True)
class Foreign:
    """One nonce that was spent elsewhere. `address` is 0x text; `at` are seconds since the start."""

    number: int
    at: float
    address: str
    nonce: int
    tx_hash: str

    def __str__(self) -> str:
        return f"foreign transaction {self.number} (at {self.at:.1f} s, nonce {self.nonce} of {self.address})"


@dataclass
class Intruder:
    """Spends `times` nonces of random signers at random moments of the first 60 % of `seconds`; seed decides."""

    stack: Stack
    seed: int
    times: int
    seconds: float
    note: Callable[[str], None]
    spent: list[Foreign] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(f"foreign {self.seed}")
        self._quit = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Spend no more."""
        self._quit.set()
        self._thread.join(30)

    def _run(self) -> None:
        began = time.monotonic()
        moments = sorted(self._random.uniform(0.1, 0.6) * self.seconds for _ in range(self.times))
        with closing(self.stack.deployment.gateway_rpc()) as rpc:
            chain_id = int(self.stack.deployment.gateway["chain_id"])
            keys = [bytes.fromhex(key[2:]) for key in self.stack.deployment.raw["relayer_signer_keys"]]
            for number, moment in enumerate(moments, 1):
                signer = LocalSigner(self._random.choice(keys), chain_id)
                if self._quit.wait(max(0.0, began + moment - time.monotonic())):
                    return
                self._spend(rpc, signer, number, began)

    def _spend(self, rpc: Rpc, signer: LocalSigner, number: int, began: float) -> None:
        """Take the next nonce that the chain expects, where the relayer has given it to a request."""
        address = "0x" + signer.address.hex()
        caught = time.monotonic() + CATCH_SECONDS
        while time.monotonic() < caught and not self._outstanding(rpc, address):
            time.sleep(0.02)
        for _ in range(TRIES):
            nonce = int(rpc.call("eth_getTransactionCount", address, "latest"), 16)
            raw, tx_hash = signer.sign(nonce, signer.address, b"", 21_000, FEE, FEE)
            try:
                rpc.call("eth_sendRawTransaction", "0x" + raw.hex())
            except RpcFailure as error:
                self.note(f"nonce {nonce} was faster: {error}")
                continue
            if self._mined(rpc, "0x" + tx_hash.hex()):
                self.spent.append(Foreign(number, time.monotonic() - began, address, nonce, "0x" + tx_hash.hex()))
                self.note(str(self.spent[-1]))
                return
        self.note(f"foreign transaction {number} did not come in")

    def _outstanding(self, rpc: Rpc, address: str) -> bool:
        try:
            with self.stack.database() as conn:
                row = conn.execute(
                    "SELECT next_nonce FROM signer WHERE address = %s", (bytes.fromhex(address[2:]),)
                ).fetchone()
        except psycopg.OperationalError:
            return False
        return (
            row is not None
            and row[0] is not None
            and row[0] > int(rpc.call("eth_getTransactionCount", address, "latest"), 16)
        )

    def _mined(self, rpc: Rpc, tx_hash: str) -> bool:
        until = time.monotonic() + 3
        while time.monotonic() < until:
            if rpc.call("eth_getTransactionReceipt", tx_hash):
                return True
            time.sleep(0.05)
        return False
