"""L-1, L-2, L-7, R-4: a process dies at every point of writing, applying and retiring; the next one loses and doubles nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.envelopes import scene
from tests.envelopes.dying import dies_at, killed_waiting
from tests.envelopes.lives import LIVES
from tests.envelopes.lives_after import Retire
from tests.envelopes.lives_writing import Append, Life, Publish, Record
from tests.envelopes.scene import CHAIN, Connection

ROOT = Path(__file__).parents[2]
FILES = (
    "requests_app/store/appending.py", "requests_app/store/envelopes.py", "requests_app/store/retirement.py",
    "requests_app/store/usage.py", "workers/publisher.py", "workers/apply.py", "workers/replay.py", "workers/duties/bands.py",
    "workers/duties/bands_retire.py",
)  # fmt: skip
PLACES = [(life, point, 1) for life, points in LIVES.items() for point in points]
# of the second table of a band too
PLACES += [(Retire, f"{when}_band_{step}", 2) for step in ("detach", "drop") for when in ("before", "after")]


@pytest.mark.parametrize(("life", "point", "nth"), PLACES, ids=lambda one: getattr(one, "__name__", str(one)))
def test_killed(log: Connection, poison: None, life: type[Life], point: str, nth: int) -> None:
    """L-1, L-2, L-7, R-4: a real process ends there by os._exit; what it left is whole or not there; the next one makes it good once."""
    scenery = life(log)
    dies_at(log, point, scenery.work, nth)
    scenery.halfway(log, point)
    scenery.work(log)
    scenery.whole(log)


@pytest.mark.parametrize(
    ("life", "hold"),
    [
        (Record, f"SELECT 1 FROM chain_cursor WHERE source_id = {CHAIN} FOR UPDATE"),
        (Append, "LOCK TABLE usage_unsettled IN EXCLUSIVE MODE"),
        (Publish, "LOCK TABLE published_envelope IN EXCLUSIVE MODE"),
    ],
)
def test_killed_while_the_server_works(log: Connection, poison: None, life: type[Life], hold: str) -> None:
    """L-1: SIGKILL in the middle of a statement, which the server may still commit: neither is anything lost nor counted twice."""
    scene.publisher(log)
    scenery = life(log)
    killed_waiting(log, hold, scenery.work)
    scenery.work(log)
    scenery.whole(log)


def test_every_point_of_the_log_is_killed_at() -> None:
    named: set[str] = set()
    for name in FILES:
        for point in re.findall(r'crash_point\(f?"([^"]+)"\)', (ROOT / name).read_text()):
            steps = ("detach", "finalize", "drop") if "{action}" in point else ("",)
            named |= {point.replace("{action}", step) for step in steps}
    assert named - {point for _, point, _ in PLACES} == set()
