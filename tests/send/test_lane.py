"""What a holder remembers of the chain's count of mined transactions."""

from __future__ import annotations

from typing import Any

from workers.lane import LOWER_LOOKS, Lane


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


def test_a_node_behind_the_others_that_is_believed_moves_nothing() -> None:
    """Each time it fell back and caught up the count seemed to have moved, and a stuck nonce was never replaced."""
    one, now = lane(), [100.0]
    one.clock = lambda: now[0]
    one.saw_chain_count(5)
    for _ in range(4):
        for count in (*[4] * LOWER_LOOKS, 5):
            now[0] += 10
            one.saw_chain_count(count)
    assert (one.chain_latest, one.moved_at) == (5, 100.0)
    one.saw_chain_count(6)
    assert one.moved_at == now[0]


def test_a_count_that_is_believed_stands_from_then_on() -> None:
    """Or what was seen mined above it would be sent again at once: its node may catch up."""
    one, now = lane(), [100.0]
    one.clock = lambda: now[0]
    one.saw_chain_count(5)
    for _ in range(LOWER_LOOKS):
        now[0] += 10
        one.saw_chain_count(3)
    assert (one.chain_latest, one.moved_at) == (3, now[0])


def test_after_a_recorded_reorganisation_every_rise_counts() -> None:
    one, now = lane(), [100.0]
    one.clock = lambda: now[0]
    one.saw_chain_count(5)
    now[0] = 200.0
    one.reorganised(3)
    assert (one.chain_latest, one.moved_at) == (3, 200.0)
    now[0] = 210.0
    one.saw_chain_count(4)
    assert one.moved_at == 210.0
