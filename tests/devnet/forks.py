"""Reorganisations of an anvil chain."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from workers.devnet.rpc import Rpc


def take_back(rpc: Rpc, depth: int, again: Sequence[Sequence[Any]] = ()) -> None:
    """Other blocks in place of the last `depth`, with `again`: pairs of a raw transaction and the place of its block.

    Another account earns the fees from then on: anvil fills the time and the randomness of a block so that one with the same
    transactions would often be the same block, and nothing would have happened.
    """
    rpc.call("anvil_setCoinbase", "0x" + secrets.token_hex(20))
    rpc.call("anvil_reorg", depth, list(again))
