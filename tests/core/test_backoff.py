"""Pauses between tries."""

from __future__ import annotations

from requests_app.backoff import doubled, half_by_chance


def test_pauses_double_up_to_the_longest_however_often_it_was_tried() -> None:
    assert [doubled(tries, 0.5, 5.0) for tries in range(1, 7)] == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
    assert doubled(1_000_000, 0.5, 5.0) == 5.0


def test_half_of_a_pause_is_chance() -> None:
    for tries, whole in ((1, 5.0), (2, 10.0), (12, 10_240.0), (2_000, 21_600.0)):
        pauses = {half_by_chance(tries, 5.0, 21_600.0) for _ in range(50)}
        assert whole / 2 <= min(pauses) < max(pauses) <= whole
