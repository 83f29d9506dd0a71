"""A relay of deaths: one process after another plays a scene, each ends at a point nobody has ended at yet, the next one goes on.

Two recoveries. restart: the process is gone before the next one starts. takeover: a second process is up beside it, with its own
sessions and signs of life, and goes on at once; one that was only paused or cut off wakes up beside it and tries to go on as well.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import Final

from requests_app.crash_points import EXIT_CODE
from requests_app.states import Kind
from tests.crash.compare import compare
from tests.crash.ground import Ground
from tests.crash.process import Child
from tests.crash.scene import Scene

RECOVERIES: Final = ("restart", "takeover")
# cut: the same process goes on with new sessions. split: so it does, while another one takes over.
WAYS: Final[Mapping[str, tuple[str, ...]]] = {
    "restart": ("exit", "exit", "exit", "cut"),
    "takeover": ("exit", "pause", "exit", "split"),
}
FRUITLESS: Final = 4  # plays after which a point that was not passed counts as missed
TICK_SECONDS: Final = 0.02
BESIDE_SECONDS: Final = 0.12
LONGEST_SECONDS: Final = 300.0  # no further play of a scene is begun later


@dataclass(frozen=True, slots=True)
class Death:
    """One line of the record: where a process really ended, in which scene, with which kind of request, how, and who went on."""

    point: str
    scene: str
    kind: str
    way: str
    recovery: str


@dataclass
class Rival:
    """A process that was paused or cut off, and lives on beside its successor for a while; `end_at` None: it is paused."""

    child: Child
    end_at: float | None


@dataclass
class Relay:
    """Plays one scene until every point of `pending` (point -> way) has ended a process.

    `late`: seconds that the observer comes too late, each time it looks, as where the CPU is not its own.
    """

    ground: Ground
    scene: type[Scene]
    kind: Kind
    recovery: str
    pending: dict[str, str]
    late: float = 0.0
    deaths: list[Death] = field(default_factory=list)

    def run(self) -> list[Death]:
        """All plays that it takes; what is left in `pending` was never passed."""
        fruitless, late = 0, monotonic() + LONGEST_SECONDS
        while fruitless < FRUITLESS and monotonic() < late:
            before = len(self.deaths)
            self._play()
            if not any(name in self.pending for name in self.scene.points()):
                break
            fruitless = 0 if len(self.deaths) > before else fruitless + 1
        return self.deaths

    def _play(self) -> None:
        self.ground.reset()
        scene = self.scene(self.ground, self.kind)
        scene.pending = self.pending
        play: _Play | None = None
        try:
            scene.prepare()
            play = _Play(self, scene)
            play.run()
        finally:
            if play is not None:
                play.close()
            scene.restore()
        compare(self.ground, scene)
        scene.check()


class _Play:
    """The processes of one play."""

    def __init__(self, relay: Relay, scene: Scene) -> None:
        self._relay, self._scene, self._ground = relay, scene, relay.ground
        self._standby: Child | None = None
        self._rivals: list[Rival] = []
        self._main = self._next()

    def run(self) -> None:
        """Until the scene is over and its last process has ended in order."""
        stopping, late = False, monotonic() + self._scene.seconds
        while True:
            point = self._main.event(TICK_SECONDS)
            if point is not None:
                # One whose sessions were cut goes on, and may have been told to stop when it came there.
                stopping = self._met(point) and stopping
                late = monotonic() + self._scene.seconds
                continue
            if self._main.code is not None:
                assert (stopping, self._main.code) == (True, 0), f"a process ended by itself: {self._main.code}"
                return
            sleep(self._relay.late)
            self._end_rivals()
            self._ground.hurry_commands()
            self._ground.hurry_jobs()
            self._scene.weather()
            if not stopping and self._scene.over() and not self._ground.open_commands():
                if self._rivals:
                    self._wake_rivals()
                    continue
                self._main.stop()
                stopping = True
            assert monotonic() < late, f"not over, left: {sorted(self._relay.pending)}, {self._ground.described()}"

    def close(self) -> None:
        """End whatever is left."""
        for child in (self._main, self._standby, *(rival.child for rival in self._rivals)):
            if child is not None:
                child.close()

    def _next(self) -> Child:
        """The process that goes on; with another one ready behind it where somebody is to take over."""
        child = self._standby or Child(self._scene)
        child.go(self._relay.pending)
        watched = self._relay.recovery == "takeover" and bool(self._relay.pending)
        self._standby = Child(self._scene) if watched else None
        return child

    def _met(self, point: str) -> bool:
        """A process has come to its point: what becomes of it, and who goes on. Whether it is the same one."""
        relay = self._relay
        way = relay.pending.pop(point)
        if os.environ.get("CRASH_TRACE"):
            print(f"{monotonic():.2f} {way} at {point}", flush=True)
        relay.deaths.append(Death(point, relay.scene.__name__, relay.kind.slug, way, relay.recovery))
        if way == "cut":
            self._ground.expire_claims()
            return True
        self._wake_rivals()  # others have gone on without them; now they try to
        if way == "exit":
            while self._main.code is None:
                self._main.event(TICK_SECONDS)
            assert self._main.code == EXIT_CODE, self._main.code
            self._main.close()
        else:
            self._rivals.append(Rival(self._main, None if way == "pause" else monotonic() + BESIDE_SECONDS))
            self._ground.expire_leases()
        self._ground.expire_claims()
        self._main = self._next()
        return False

    def _wake_rivals(self) -> None:
        for rival in self._rivals:
            if rival.end_at is None:
                rival.child.wake()
                rival.end_at = monotonic() + BESIDE_SECONDS

    def _end_rivals(self) -> None:
        now = monotonic()
        for rival in [one for one in self._rivals if one.end_at is not None and now >= one.end_at]:
            rival.child.close()
            self._rivals.remove(rival)
