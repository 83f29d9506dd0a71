"""What the chain shows, as typed values: blocks, receipts, transactions (execution-apis, JSON-RPC)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from workers.chain.abi_reader import MalformedAbi
from workers.chain.hexdata import MalformedHex, data, quantity
from workers.chain.rpc_errors import Answer, Failed, Ok, RpcError

T = TypeVar("T")
UNREADABLE_CODE: Final = -32700


@dataclass(frozen=True, slots=True)
class Block:
    """A block header's essentials; hashes 32 bytes, timestamp in Unix seconds."""

    number: int
    hash: bytes
    parent_hash: bytes
    timestamp: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """A mined transaction. `status` 1 or 0; `to` None for a creation; `logs` are raw, as from eth_getLogs; `gas_used` in gas."""

    tx_hash: bytes
    block_number: int
    block_hash: bytes
    status: int
    sender: bytes
    to: bytes | None
    logs: Sequence[Any]
    gas_used: int

    def used_all(self, gas_limit: int) -> bool:
        """Whether nothing of the limit was left: with status 0 it most likely ran out of gas, and no replay shows why."""
        return self.gas_used >= gas_limit


@dataclass(frozen=True, slots=True)
class TransactionView:
    """A transaction that the node knows; block fields are None while it is pending."""

    tx_hash: bytes
    sender: bytes
    to: bytes | None
    nonce: int
    block_number: int | None
    block_hash: bytes | None
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Account:
    """Transaction counts at the latest block and with the pool, and the balance in wei at the latest block."""

    latest: int
    pending: int
    balance: int


def block_of(value: Any) -> Block | None:
    """A block, or None for null (not known to this node). Raises MalformedHex."""
    if value is None:
        return None
    fields = _object(value)
    return Block(
        quantity(fields.get("number")),
        data(fields.get("hash"), 32),
        data(fields.get("parentHash"), 32),
        quantity(fields.get("timestamp")),
    )


def receipt_of(value: Any) -> Receipt | None:
    """A receipt, or None for null: not mined as far as this node knows, which proves nothing. Raises MalformedHex."""
    if value is None:
        return None
    fields = _object(value)
    logs = fields.get("logs")
    if not isinstance(logs, list):
        raise MalformedHex("receipt without logs")
    return Receipt(
        data(fields.get("transactionHash"), 32),
        quantity(fields.get("blockNumber")),
        data(fields.get("blockHash"), 32),
        quantity(fields.get("status")),
        data(fields.get("from"), 20),
        _address(fields.get("to")),
        logs,
        quantity(fields.get("gasUsed")),
    )


def transaction_of(value: Any) -> TransactionView | None:
    """A transaction, or None for null. Raises MalformedHex."""
    if value is None:
        return None
    fields = _object(value)
    mined = fields.get("blockHash") is not None
    return TransactionView(
        data(fields.get("hash"), 32),
        data(fields.get("from"), 20),
        _address(fields.get("to")),
        quantity(fields.get("nonce")),
        quantity(fields.get("blockNumber")) if mined else None,
        data(fields.get("blockHash"), 32) if mined else None,
        data(fields.get("input", "0x")),
    )


def mapped(answers: Sequence[Answer[Any]], read: Callable[[Any], T]) -> list[Answer[T]]:
    """The same answers with their values read; one that does not read becomes Failed, the others stay."""
    return [_read(answer, read) if isinstance(answer, Ok) else answer for answer in answers]


def _read(answer: Ok[Any], read: Callable[[Any], T]) -> Answer[T]:
    try:
        return Ok(read(answer.value))
    except (MalformedHex, MalformedAbi) as error:
        return Failed(RpcError(UNREADABLE_CODE, f"unreadable answer: {error}"))


def _object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise MalformedHex("expected an object")
    return value


def _address(value: Any) -> bytes | None:
    return None if value is None else data(value, 20)
