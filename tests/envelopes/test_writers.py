"""Eight writers, new bands all the time: no error, no duplicate, usage exact, no dead-lock (issue 5's acceptance)."""

from __future__ import annotations

import pytest

from bench import envelope_writers as eight
from bench.envelope_scene import source
from tests.envelopes import scene
from tests.envelopes.scene import Connection


@pytest.mark.full
@pytest.mark.timeout(400)
def test_eight_writers_for_a_minute(log: Connection) -> None:
    """T11: 60 s into one band each, 60 s with new bands; the rate is printed by `make bench-envelopes`, here it may not halve."""
    payer = scene.account(log)
    before = eight.deadlocks(log)
    same = eight.run(log, 320, 60, new_bands=False, payer=payer)
    new = eight.run(log, 330, 60, new_bands=True, payer=payer)
    assert (same.errors, new.errors) == ([], [])
    assert eight.deadlocks(log) == before
    for first in (320, 330):
        distinct, usage, congestion = eight.exact(log, first)
        assert distinct == usage == congestion > 0
    print(
        f"one band {same.rate:,.0f}/s, p99 {same.p99_ms:.0f} ms; new bands {new.rate:,.0f}/s, p99 {new.p99_ms:.0f} ms"
    )
    print(f"another originator's p99 {same.probe_p99_ms:.1f} ms and {new.probe_p99_ms:.1f} ms")
    assert new.rate >= 0.5 * same.rate
    assert new.probe_p99_ms <= 1.5 * same.probe_p99_ms


def test_racing_writers_with_new_bands(log: Connection) -> None:
    """The same for a moment, in threads: two writers an originator, every batch in a new band."""
    import threading

    from requests_app.store.appending import Item, append
    from requests_app.store.session import connect

    for number in (320, 321):
        source(log, number, band_blocks=1)
    payer, before = scene.account(log), eight.deadlocks(log)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            with connect("worker") as conn:
                for step in range(8):
                    items = [Item(step * scene.WIDTH + n, 1, b"x", ref=b"t", payer=payer) for n in range(50)]
                    with conn.transaction():
                        append(conn, number, items, price=scene.PRICE)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(320 + n % 2,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    assert failures == []
    assert eight.deadlocks(log) == before
    assert scene.usage(log) == [(payer, number, 4000, 400) for number in (320, 321)]
    assert [scene.congestion(log, number) for number in (320, 321)] == [400, 400]
