"""Typed reads that every chain answers alike: identity, blocks, calls, accounts, transactions, logs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from workers.chain.calldata import ContractCall
from workers.chain.endpoints import Endpoints
from workers.chain.hexdata import MalformedHex, data, hex_data, hex_quantity, quantity
from workers.chain.rpc import BATCH_LIMIT, FINALIZED, Call
from workers.chain.rpc_errors import Answer, Failed, Ok, RpcError, RpcUnavailable
from workers.chain.views import (
    UNREADABLE_CODE,
    Account,
    Block,
    Receipt,
    TransactionView,
    block_of,
    mapped,
    receipt_of,
    transaction_of,
)

T = TypeVar("T")
LATEST: Final = "latest"


class ChainClient:
    """Reads of one chain over its endpoints. Batch methods return one answer an item and raise only WrongChain.

    Single reads raise RpcError, RpcUnavailable, WrongChain.
    """

    def __init__(self, endpoints: Endpoints) -> None:
        self.endpoints = endpoints

    def close(self) -> None:
        """Close the kept connections."""
        self.endpoints.close()

    def chain_id(self) -> int:
        """The chain id that the node reports."""
        return self._one("eth_chainId", (), quantity)

    def genesis_hash(self) -> bytes:
        """The 32-byte hash of block 0: the identity of this very chain."""
        return self._block("0x0").hash

    def head_number(self) -> int:
        """The number of the newest block."""
        return self._one("eth_blockNumber", (), quantity)

    def head(self) -> Block:
        """The newest block."""
        return self._block(LATEST)

    def finalized(self) -> Block:
        """The newest block that the chain will not take back."""
        return self._block(FINALIZED)

    def blocks(self, numbers: Sequence[int]) -> list[Answer[Block | None]]:
        """Blocks by number; Ok(None) for one that the node does not have."""
        calls = [("eth_getBlockByNumber", [hex_quantity(number), False]) for number in numbers]
        return mapped(self.endpoints.batch(calls), block_of)

    def call_contract(self, call: ContractCall, block: str = LATEST, gas: int | None = None) -> bytes:
        """The return data of one eth_call (`gas` caps what it may burn)."""
        fields = {"to": hex_data(call.to), "data": hex_data(call.data)}
        if gas is not None:
            fields["gas"] = hex_quantity(gas)
        return self._one("eth_call", [fields, block], data)

    def views(
        self, calls: Sequence[ContractCall], read: Callable[[bytes], T], block: str = LATEST, limit: int = BATCH_LIMIT
    ) -> list[Answer[T]]:
        """Contract views in batches of at most `limit`, each return value read by `read`."""
        requests: list[Call] = [
            ("eth_call", [{"to": hex_data(call.to), "data": hex_data(call.data)}, block]) for call in calls
        ]
        return mapped(self.endpoints.batch(requests, limit), lambda value: read(data(value)))

    def accounts(self, addresses: Sequence[bytes]) -> list[Answer[Account]]:
        """Transaction counts (latest, pending) and balance of each 20-byte address."""
        calls: list[Call] = []
        for address in map(hex_data, addresses):
            calls += [
                ("eth_getTransactionCount", [address, LATEST]),
                ("eth_getTransactionCount", [address, "pending"]),
                ("eth_getBalance", [address, LATEST]),
            ]
        answers = mapped(self.endpoints.batch(calls), quantity)
        return [_account(answers[start : start + 3]) for start in range(0, len(answers), 3)]

    def transaction_counts(self, addresses: Sequence[bytes], block: str = LATEST) -> list[Answer[int]]:
        """Transaction counts at a block tag (`finalized` for what can no longer change)."""
        calls = [("eth_getTransactionCount", [hex_data(address), block]) for address in addresses]
        return mapped(self.endpoints.batch(calls), quantity)

    def receipts(self, hashes: Sequence[bytes]) -> list[Answer[Receipt | None]]:
        """Receipts by 32-byte hash, 50 a request. Ok(None) proves nothing: a node may lag."""
        calls = [("eth_getTransactionReceipt", [hex_data(tx_hash)]) for tx_hash in hashes]
        return mapped(self.endpoints.batch(calls), receipt_of)

    def transactions(self, hashes: Sequence[bytes]) -> list[Answer[TransactionView | None]]:
        """Transactions by 32-byte hash, pending ones included. Ok(None) proves nothing."""
        calls = [("eth_getTransactionByHash", [hex_data(tx_hash)]) for tx_hash in hashes]
        return mapped(self.endpoints.batch(calls), transaction_of)

    def raw_logs(
        self,
        first: int,
        last: int,
        addresses: Sequence[bytes],
        topics: Sequence[Sequence[bytes] | None],
    ) -> list[Any]:
        """eth_getLogs over blocks `first` to `last`; each topic place is a list of alternatives or None for any.

        Raises RpcError also when the node finds the range too large: ask for less.
        """
        found = self.endpoints.call("eth_getLogs", [log_filter(first, last, addresses, topics)])
        if not isinstance(found, list):
            raise RpcUnavailable("eth_getLogs answered no list", sent=True)
        return found

    def _block(self, tag: str) -> Block:
        block = self._one("eth_getBlockByNumber", [tag, False], block_of)
        if block is None:
            raise RpcUnavailable(f"the node has no {tag} block", sent=True)
        return block

    def _one(self, method: str, params: Sequence[Any], read: Callable[[Any], T]) -> T:
        try:
            return read(self.endpoints.call(method, params))
        except MalformedHex as error:
            raise RpcUnavailable(f"unreadable answer to {method}: {error}", sent=True) from None


def log_filter(
    first: int, last: int, addresses: Sequence[bytes], topics: Sequence[Sequence[bytes] | None]
) -> dict[str, Any]:
    """The filter object of eth_getLogs."""
    return {
        "fromBlock": hex_quantity(first),
        "toBlock": hex_quantity(last),
        "address": [hex_data(address) for address in addresses],
        "topics": [None if place is None else [hex_data(topic) for topic in place] for place in topics],
    }


def _account(parts: Sequence[Answer[int]]) -> Answer[Account]:
    values: list[int] = []
    for part in parts:
        if not isinstance(part, Ok):
            return part
        values.append(part.value)
    if len(values) != 3:
        return Failed(RpcError(UNREADABLE_CODE, "three values were asked"))
    # Behind a load balancer `pending` may come from a node that lags; it is never below `latest`.
    return Ok(Account(values[0], max(values[0], values[1]), values[2]))
