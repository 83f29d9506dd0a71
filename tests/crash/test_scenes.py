"""The crash matrix: processes end at every point of every scene, others go on, and everything is compared (design 2.4).

`make test`: every point once, the kinds of requests, the ways to end and who recovers rotating by CRASH_SEED (by default the day).
`make test-full`: every point × every kind × every way × restart and take-over, and once with an observer who looks late. The record of where processes really ended is
written to $RELAYER_VAR/crash/<test>.jsonl.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from requests_app.states import Kind
from tests.crash.ground import Ground, staged
from tests.crash.relay import RECOVERIES, WAYS, Death, Relay
from tests.crash.scene import Scene, every_scene

SEED = int(os.environ.get("CRASH_SEED", "0")) or int(time.time() // 86400)
SCENES = every_scene()
LATE_SECONDS = 0.5  # longer than whatever passes by itself: a slot is mined for 0.2 s
pytestmark = [pytest.mark.django_db(transaction=True)]


def _rotating(scene: type[Scene]) -> tuple[Kind, str]:
    """This seed's kind of request and recovery for a scene."""
    place = SEED + sorted(SCENES).index(scene.__name__)
    return scene.kinds[place % len(scene.kinds)], RECOVERIES[place // len(scene.kinds) % len(RECOVERIES)]


def _ways(scene: type[Scene], recovery: str) -> dict[str, str]:
    """This seed's way for each point."""
    ways = WAYS[recovery]
    return {name: ways[(SEED + place) % len(ways)] for place, name in enumerate(scene.armed())}


def _cpu() -> float:
    """Seconds of CPU of this process and of its ended children."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def _write(test: str, deaths: list[Death]) -> None:
    path = Path(os.environ["RELAYER_VAR"]) / "crash" / f"{test}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(asdict(death)) + "\n" for death in deaths))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", sorted(SCENES))
def test_every_point_once(ground: Ground, settings: Any, name: str) -> None:
    scene = SCENES[name]
    kind, recovery = _rotating(scene)
    began, spent = time.monotonic(), _cpu()
    with staged(ground, scene, settings):
        relay = Relay(ground, scene, kind, recovery, _ways(scene, recovery))
        deaths = relay.run()
    _write(f"once-{name}", deaths)
    took = f"{time.monotonic() - began:.1f} s ({_cpu() - spent:.1f} s CPU)"
    print(f"{name}: seed {SEED}, {kind.slug}, {recovery}, {len(deaths)} deaths in {took}")
    missed = set(scene.points()) - {death.point for death in deaths}
    assert missed == set(), f"nobody ended there: give {sorted(missed)} a scene"


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("recovery", RECOVERIES)
@pytest.mark.parametrize("name", sorted(SCENES))
def test_every_point_in_every_way(ground: Ground, settings: Any, name: str, recovery: str) -> None:
    scene = SCENES[name]
    deaths: list[Death] = []
    missed: set[str] = set()
    with staged(ground, scene, settings):
        for kind in scene.kinds:
            for way in sorted(set(WAYS[recovery])):
                found = Relay(ground, scene, kind, recovery, dict.fromkeys(scene.armed(), way)).run()
                deaths += found
                missed |= {f"{kind.slug} {way} {name}" for name in set(scene.points()) - {one.point for one in found}}
    _write(f"all-{name}-{recovery}", deaths)
    print(f"{name}, {recovery}: {len(deaths)} deaths")
    assert missed == set()


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", sorted(name for name, scene in SCENES.items() if "weather" in vars(scene)))
def test_every_point_is_met_when_the_observer_is_late(ground: Ground, settings: Any, name: str) -> None:
    scene = SCENES[name]
    kind, recovery = _rotating(scene)
    with staged(ground, scene, settings):
        deaths = Relay(ground, scene, kind, recovery, _ways(scene, recovery), late=LATE_SECONDS).run()
    assert set(scene.points()) - {death.point for death in deaths} == set()
