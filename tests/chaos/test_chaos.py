"""A minute of chaos: 5 % of each fault, kill -9 every 2 s, a frozen owner, a restart of the database. `make chaos` is the long run."""

from __future__ import annotations

import random

import pytest

from tests.chaos.run import Plan, run


@pytest.mark.full
@pytest.mark.stack
@pytest.mark.timeout(420)
def test_a_minute_of_chaos() -> None:
    plan = Plan(
        seconds=60, requests=200, seed=random.SystemRandom().randrange(1, 2**31), stopped_seconds=15, drain_seconds=180
    )
    report = run(plan)
    assert report.problems == []
