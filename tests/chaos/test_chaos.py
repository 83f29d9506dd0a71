"""A minute of chaos: 5 % of each fault, kill -9 of random processes, a frozen owner, a restart of the database, then an orderly stop.

`make chaos` is the long run, with a kill every two seconds and nonces spent behind the relayer's back.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.chaos.run import run
from tests.chaos.storm import STOP_SECONDS, Plan

# Sized for a loaded machine with two cores: a kill waits until everything works again, for ten seconds at most.
MINUTE = Plan(seconds=20, count=60, seed=0, stopped_seconds=10, drain_seconds=240, patience=10)


@pytest.mark.stack
@pytest.mark.timeout(900)
def test_a_minute_of_chaos() -> None:
    report = run(replace(MINUTE, seed=random.SystemRandom().randrange(1, 2**31)))
    assert report.problems == []
    assert report.stop_seconds <= STOP_SECONDS
