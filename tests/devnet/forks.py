"""Reorganisations of an anvil chain."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any

from workers.devnet.rpc import Rpc

TRIES = 50


def take_back(rpc: Rpc, first: int, again: Callable[[int], Sequence[Sequence[Any]]] = lambda depth: ()) -> None:
    """Other blocks from block `first` to the head, with `again(their number)`: pairs of a raw transaction and the place of its block.

    Another account earns the fees from then on: anvil fills the time and the randomness of a block so that one with the same
    transactions would often be the same block, and nothing would have happened. The node counts from its head, and a block may come
    between asking for that and taking back: then block `first` still stands, and what is left is taken back again.
    """
    stood = _hash(rpc, first)
    for _ in range(TRIES):
        depth = _fresh_head(rpc) - first + 1
        transactions = list(again(depth))
        rpc.call("anvil_setCoinbase", "0x" + secrets.token_hex(20))
        rpc.call("anvil_reorg", depth, transactions)
        if _hash(rpc, first) != stood:
            return
    raise AssertionError(f"block {first} still stands")


def _fresh_head(rpc: Rpc) -> int:
    """The head, just after it appeared: most of a block's time is left."""
    head = old = rpc.head()
    while head == old:
        head = rpc.head()
    return head


def _hash(rpc: Rpc, number: int) -> str:
    return str(rpc.call("eth_getBlockByNumber", hex(number), False)["hash"])
