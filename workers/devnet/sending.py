"""Transactions of devnet accounts: signed here, sent in batches, nonces kept by the sender."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import rlp

from workers.devnet.accounts import Wallet
from workers.devnet.eip712 import keccak256, sign
from workers.devnet.rpc import Rpc

CALL_GAS: Final = 3_000_000
CREATION_GAS: Final = 8_000_000
TIP_WEI: Final = 1_000_000_000
# Blocks of the devnet are mostly empty, so the base fee only falls; this much above it survives a few full blocks.
FEE_FACTOR: Final = 4


class TransactionFailed(ValueError):
    """A devnet transaction was mined with status 0."""


@dataclass(frozen=True, slots=True)
class Call:
    """One transaction to be signed. `to` None creates a contract."""

    to: str | None
    data: bytes
    gas: int = CALL_GAS


class Sender:
    """Sends for one account on one chain. One process at a time may use an account."""

    def __init__(self, rpc: Rpc, account: Wallet, chain_id: int) -> None:
        self._rpc = rpc
        self._account = account
        self._chain_id = chain_id
        self._nonce: int | None = None

    def send(self, calls: Sequence[Call]) -> list[str]:
        """Broadcasts all calls in order and returns their hashes. Raises RpcFailure; the nonce is read anew after it."""
        if not calls:
            return []
        if self._nonce is None:
            self._nonce = self._rpc.nonce(self._account.address, "pending")
        max_fee = self._max_fee()
        raw = [self._sign(call, self._nonce + place, max_fee) for place, call in enumerate(calls)]
        try:
            hashes: list[str] = self._rpc.batch([("eth_sendRawTransaction", [transaction]) for transaction in raw])
        except Exception:
            self._nonce = None
            raise
        self._nonce += len(calls)
        return hashes

    def run(self, calls: Sequence[Call]) -> None:
        """As `send`, and waits until all are mined. Raises TransactionFailed when one was reverted."""
        self.wait(self.send(calls))

    def wait(self, hashes: Sequence[str]) -> None:
        """Returns when all these transactions are mined. Raises TransactionFailed when one was reverted."""
        for receipt in self._rpc.receipts(hashes):
            if receipt["status"] != "0x1":
                raise TransactionFailed(f"{receipt['transactionHash']} to {receipt['to']} was reverted")

    def _max_fee(self) -> int:
        block = self._rpc.call("eth_getBlockByNumber", "latest", False)
        return int(block["baseFeePerGas"], 16) * FEE_FACTOR + TIP_WEI

    def _sign(self, call: Call, nonce: int, max_fee: int) -> str:
        """A signed EIP-1559 transaction without value and access list, as 0x text."""
        to = bytes.fromhex(call.to[2:]) if call.to else b""
        fields = [self._chain_id, nonce, TIP_WEI, max_fee, call.gas, to, 0, call.data, []]
        signature = sign(self._account.key, keccak256(b"\x02" + rlp.encode(fields)))
        r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:64], "big")
        raw: bytes = rlp.encode([*fields, signature[64] - 27, r, s])
        return "0x02" + raw.hex()
