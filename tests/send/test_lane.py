"""What a holder remembers of the chain's count of mined transactions."""

from __future__ import annotations

from typing import Any

from workers.signers import LOWER_LOOKS, Lane


def lane() -> Lane:
    nothing: Any = None
    return Lane(nothing, nothing)


def test_a_node_behind_the_others_says_nothing_new() -> None:
    one = lane()
    for count in (5, 4, 4, 5, 4, 4):
        one.saw_chain_count(count)
        assert one.chain_latest == 5


def test_a_count_that_stays_lower_is_a_reorganisation() -> None:
    """Found by the model check: what was in the blocks taken back was never sent again while the lease lasted."""
    one = lane()
    one.saw_chain_count(5)
    for _ in range(LOWER_LOOKS):
        one.saw_chain_count(3)
    assert one.chain_latest == 3
