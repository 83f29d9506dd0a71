"""How many jobs wait, remembered for a moment: to count thousands for every request cost as much as storing it (bench/http.py).

Few are counted anew every time, and so is a queue near the door: what is remembered only ever admits where the safety margin is
still free, so that a burst on several processes within FRESH_SECONDS ends inside it.
"""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from django.conf import settings

from requests_app.states import Kind

FRESH_SECONDS: Final = 0.25
FEW: Final = 500


class Depths(NamedTuple):
    """Jobs of a kind: `ready` wait for their readiness check, `send` to be sent (of payments: to be settled)."""

    ready: int
    send: int


# What was counted last and until when it holds (monotonic seconds).
_counted: dict[Kind, tuple[float, Depths]] = {}


def door() -> int:
    """The depth from which new work is refused."""
    return int(settings.QUEUE_CAPACITY - settings.QUEUE_SAFETY_MARGIN)


def recall(kind: Kind) -> Depths | None:
    """The depths of the kind; None when they are to be counted."""
    until, depths = _counted.get(kind, (0.0, None))
    if depths is None or time.monotonic() >= until or max(depths) + settings.QUEUE_SAFETY_MARGIN >= door():
        return None
    return depths


def learn(kind: Kind, depths: Depths) -> None:
    """Keep what was just counted."""
    if max(depths) >= FEW:
        _counted[kind] = (time.monotonic() + FRESH_SECONDS, depths)
    else:
        _counted.pop(kind, None)


forget = _counted.clear
