"""The decision of a delivery, and the times between deliveries: pure."""

from __future__ import annotations

import random

import pytest

from requests_app.states import INTENT_FINAL, IntentState
from workers import settling
from workers.settling import AttemptLog, Nonce, Step, least_patience, next_step, retry_delay, spoken

ON, OFF = AttemptLog.ON, AttemptLog.OFF
S = IntentState


@pytest.mark.parametrize(
    ("state", "nonce", "attempt", "age", "policy", "step"),
    [
        (S.AUTHORIZED, Nonce.NONE, 1, 0, ON, Step.SEND),
        (S.AUTHORIZED, Nonce.NONE, 10, 9_999, ON, Step.SEND),
        (S.AUTHORIZED, Nonce.DEAD, 1, 0, ON, Step.SEND),
        (S.CREATED, Nonce.NONE, 1, 0, ON, Step.WAIT),
        (S.CREATED, Nonce.NONE, 10, 0, ON, Step.GIVE_UP),
        (S.SETTLING, Nonce.OPEN, 1, 0, ON, Step.RECOVER),
        (S.SETTLING, Nonce.OPEN, 99, 9_999, ON, Step.RECOVER),
        (S.SETTLING, Nonce.DEAD, 1, 0, ON, Step.SIGN_ANEW),
        (S.SETTLING, Nonce.NONE, 1, 0, ON, Step.SIGN_ANEW),
        (S.SETTLING, Nonce.NONE, 2, 30, OFF, Step.WAIT),
        (S.SETTLING, Nonce.NONE, 3, 299.9, OFF, Step.WAIT),
        (S.SETTLING, Nonce.NONE, 3, 300, OFF, Step.REVIEW),
        (S.SETTLING, Nonce.NONE, 10, 30, OFF, Step.REVIEW),
        (S.CONFIRMING, Nonce.OPEN, 1, 0, ON, Step.NOTHING),
        (S.NEEDS_REVIEW, Nonce.OPEN, 1, 0, ON, Step.NOTHING),
        (None, Nonce.NONE, 1, 0, ON, Step.NOTHING),
    ],
)
def test_what_a_delivery_is_for(
    state: IntentState | None, nonce: Nonce, attempt: int, age: float, policy: AttemptLog, step: Step
) -> None:
    assert next_step(state, nonce, attempt, age, policy) is step


def test_no_delivery_does_anything_with_an_ended_payment() -> None:
    found = {
        next_step(state, nonce, 1, 0, policy) for state in INTENT_FINAL for nonce in Nonce for policy in AttemptLog
    }
    assert found == {Step.NOTHING}


def test_nothing_is_sent_without_a_log_twice() -> None:
    """The original scenario never broadcasts what may have been broadcast."""
    found = {
        next_step(S.SETTLING, nonce, attempt, age, OFF) for nonce in Nonce for attempt in (1, 9) for age in (0.0, 1e6)
    }
    assert found == {Step.WAIT, Step.REVIEW}


def test_delays_double_to_two_minutes_and_half_of_each_is_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "uniform", lambda low, high: high)
    assert [retry_delay(n) for n in range(1, 11)] == [5, 10, 20, 40, 80, 120, 120, 120, 120, 120]
    monkeypatch.setattr(random, "uniform", lambda low, high: low)
    assert [retry_delay(n) for n in range(1, 7)] == [2.5, 5, 10, 20, 40, 60]


def test_a_job_outlives_the_time_after_which_a_stuck_payment_is_noticed() -> None:
    assert least_patience() == 635 / 2 > settling.STUCK_SECONDS


def test_seconds_are_spoken() -> None:
    assert [spoken(one) for one in (0, 30, 59.9, 60, 330, 3600)] == ["0s", "30s", "59s", "1m0s", "5m30s", "60m0s"]
