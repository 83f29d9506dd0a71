"""Sixty payments under chaos: each paid once, as asked, or not at all; every review and every unpaid one has its injected cause.

`make chaos-payments` is the long run.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.chaos.orders import MUST_SETTLE, Fate, Order, make_orders
from tests.chaos.payments import run
from tests.chaos.storm import STOP_SECONDS, Plan
from tests.chaos.uses import Use, is_paid_rightly

# Sized for a loaded machine with two cores: a kill waits until everything works again, for ten seconds at most.
A_WHILE = Plan(seconds=15, count=60, seed=0, stopped_seconds=10, drain_seconds=300, patience=10)


@pytest.mark.stack
@pytest.mark.timeout(900)
def test_payments_in_a_quarter_of_a_minute_of_chaos() -> None:
    report = run(replace(A_WHILE, seed=random.SystemRandom().randrange(1, 2**31)))
    assert report.problems == []
    assert report.stop_seconds <= STOP_SECONDS


def test_a_seed_makes_the_same_orders_again() -> None:
    orders = make_orders(7, 100)
    assert orders == make_orders(7, 100)
    assert orders != make_orders(8, 100)
    assert [one.number for one in orders] == list(range(100))
    assert {one.fate for one in orders} == set(Fate)
    quiet = [one for one in make_orders(7, 10_000) if one.fate in MUST_SETTLE]
    assert len(quiet) >= 9_900


def test_what_the_judge_takes_for_paid_rightly() -> None:
    orders = make_orders(7, 100)
    plain = next(one for one in orders if one.fate is Fate.PLAIN)
    other = next(one for one in orders if one.fate is Fate.OTHER_AMOUNT)

    def use(order: Order, amount: int, tx_hash: str = "0x01") -> Use:
        return Use(order.payer.address, order.ref, tx_hash, (order.payer.address, order.merchant, amount))

    right, twice = use(plain, plain.amount), use(plain, plain.amount, "0x02")
    assert is_paid_rightly(plain, "settled", b"\x01", [right])
    assert is_paid_rightly(plain, "canceled", b"", [])
    assert is_paid_rightly(other, "needs_review", b"", [use(other, other.amount - 1)])
    for state, tx_hash, uses in (
        ("settled", b"\x01", []),
        ("settled", b"\x02", [right]),
        ("settled", b"\x01", [right, twice]),
        ("settled", b"\x01", [use(plain, plain.amount - 1)]),
        ("canceled", b"", [right]),
        ("needs_review", b"", [right]),
        ("needs_review", b"", [use(plain, plain.amount - 1)]),
    ):
        assert not is_paid_rightly(plain, state, tx_hash, uses), (state, uses)
    assert not is_paid_rightly(other, "needs_review", b"", [use(other, other.amount)])
