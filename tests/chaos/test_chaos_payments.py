"""A hundred payments under chaos: each paid once, as asked, or not at all; every review and every unpaid one has its injected cause.

`make chaos-payments` is the long run.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.chaos.orders import Fate, make_orders
from tests.chaos.payments import run
from tests.chaos.storm import STOP_SECONDS, Plan

# Sized for a loaded machine with two cores: a kill waits until everything works again, for ten seconds at most.
HALF_A_MINUTE = Plan(seconds=30, count=100, seed=0, stopped_seconds=10, drain_seconds=180, patience=10)


@pytest.mark.stack
@pytest.mark.timeout(480)
def test_payments_in_half_a_minute_of_chaos() -> None:
    report = run(replace(HALF_A_MINUTE, seed=random.SystemRandom().randrange(1, 2**31)))
    assert report.problems == []
    assert report.stop_seconds <= STOP_SECONDS


def test_a_seed_makes_the_same_orders_again() -> None:
    orders = make_orders(7, 100)
    assert orders == make_orders(7, 100)
    assert orders != make_orders(8, 100)
    assert [one.number for one in orders] == list(range(100))
    assert {one.fate for one in orders} == set(Fate)
    quiet = [one for one in make_orders(7, 10_000) if one.fate in (Fate.PLAIN, Fate.OVERTAKEN, Fate.LATE_FUNDS)]
    assert len(quiet) >= 9_900
