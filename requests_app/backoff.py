"""How long to wait before something that was fruitless is tried again. Pure, but for chance."""

from __future__ import annotations

import random

_MOST_DOUBLINGS = 40  # of any pause of ours: a float would overflow after a thousand


def doubled(tries: int, first: float, longest: float) -> float:
    """Seconds to wait after `tries` fruitless ones, counted from 1: `first`, doubled with each further one, at most `longest`."""
    return min(longest, first * 2.0 ** min(tries - 1, _MOST_DOUBLINGS))


def half_by_chance(tries: int, first: float, longest: float) -> float:
    """As `doubled`, half of it fixed and half by chance (equal jitter): what failed together does not come back together."""
    whole = doubled(tries, first, longest)
    return whole / 2 + random.uniform(0, whole / 2)
