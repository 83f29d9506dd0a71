"""A kept chain has one genesis, however often it was started."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from workers.devnet.anvil import FIRST_BASE_FEE, keep_first_genesis


def _block(number: int, base_fee: int) -> dict[str, Any]:
    return {"header": {"number": hex(number), "baseFeePerGas": hex(base_fee)}, "transactions": [], "ommers": []}


def test_only_the_chains_own_genesis_stays(tmp_path: Path) -> None:
    state = tmp_path / "gateway-state.json"
    own = [_block(0, FIRST_BASE_FEE + 7), _block(1, FIRST_BASE_FEE), _block(2, 1_000_000_000)]
    late = [_block(0, 1_000_000_000), _block(0, 1_000_000_000)]
    state.write_text(json.dumps({"best_block_number": 2, "blocks": [late[0], *own, late[1]]}))
    assert keep_first_genesis(state) == 2
    assert json.loads(state.read_text()) == {"best_block_number": 2, "blocks": own}
    assert keep_first_genesis(state) == 0


def test_a_chain_without_a_past_has_nothing_to_mend(tmp_path: Path) -> None:
    assert keep_first_genesis(tmp_path / "none.json") == 0
