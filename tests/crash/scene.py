"""A scene: a small scripted piece of the relayer's life that passes certain crash points, as often as it is asked.

What happens in the processes (`turns`, `act`) and what happens around them (`prepare`, `weather`, in the test process) must look at
the database and the chain to know what is next: any process may end at any point, and the next one takes the scene up.
`weather` may look late, after whatever goes on by itself: what a scene needs stands before the first process (`prepare`), is done
between two turns of one (`act`), or is a state that lasts until `weather` ends it.
One file a scene under tests/crash/scenes; the module's subclasses of Scene are found by themselves.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from requests_app.states import Kind
from requests_app.store.intents import SETTLE
from requests_app.store.queue import READY, SEND
from requests_app.store.turns import Board
from tests.crash import scenes
from tests.crash.sites import crash_point_names
from workers.commands import CommandTurn
from workers.devnet.traffic import Form, Submission
from workers.listener import ListenerTurn
from workers.sharing import request_turns
from workers.shift import ShiftContext, Turn
from workers.sweep import duties

if TYPE_CHECKING:
    from tests.crash.ground import Ground

REQUESTS: tuple[Kind, ...] = (Kind.USER_DECRYPT, Kind.PUBLIC_DECRYPT, Kind.INPUT_PROOF)
PAYMENTS: tuple[Kind, ...] = (Kind.PAYMENT,)
DECRYPTS: tuple[Kind, ...] = (Kind.USER_DECRYPT, Kind.PUBLIC_DECRYPT)
FORMS: Mapping[Kind, Form] = {
    Kind.USER_DECRYPT: "user_decrypt",
    Kind.PUBLIC_DECRYPT: "public_decrypt",
    Kind.INPUT_PROOF: "input_proof",
}

# Points without a scene yet, with the reason. Whoever plays them takes them out: a pattern that is not needed any more fails a test.
PENDING: Mapping[str, str] = dict.fromkeys(
    ("hold_unlogged_commit", "confirm_unlogged_commit"), "no process works without the attempt log"
)


class Scene:
    """One scene with requests of one kind.

    `aims`: patterns of the points it is played for, without before_, after_, between_; `also`: points to end at on the way, so that the
    recovery passes others. `settings` and `constants` hold while it is played; constants are "module.NAME".
    """

    aims: ClassVar[tuple[str, ...]] = ()
    also: ClassVar[tuple[str, ...]] = ()
    kinds: ClassVar[tuple[Kind, ...]] = REQUESTS
    count: ClassVar[int] = 2  # requests
    settings: ClassVar[Mapping[str, Any]] = {}
    constants: ClassVar[Mapping[str, Any]] = {}
    endpoints: ClassVar[int] = 1
    seconds: ClassVar[float] = 120.0  # without a death, before a play counts as stuck

    def __init__(self, ground: Ground, kind: Kind) -> None:
        self.ground = ground
        self.kind = kind
        self.submissions: list[Submission] = []
        self.pending: Mapping[str, str] = {}  # the relay's: where processes are still to end

    @classmethod
    def points(cls) -> list[str]:
        """The names it must be seen to end at."""
        return [name for name in point_names() if aimed(cls, name)]

    @classmethod
    def armed(cls) -> list[str]:
        """The names at which its processes end."""
        return [name for name in point_names() if aimed(cls, name) or _matches(name, cls.also)]

    def left(self, *patterns: str) -> bool:
        """Whether processes are still to end at points like these, by default at any: the scene goes on until then."""
        names = self.pending if not patterns else [name for name in self.pending if _matches(name, patterns)]
        return bool(names)

    # --- in the test process

    def prepare(self) -> None:
        """Before the first process."""
        self.submissions = self.ground.submissions([FORMS[self.kind]] * self.count) if self.count else []

    def weather(self) -> None:
        """Again and again while processes work. By default the chain is only faster than its own clock."""
        self.ground.pass_time()

    def over(self) -> bool:
        """Whether everything has happened: by default, every request is in a final state, and so is every nonce."""
        found = self.ground.statuses()
        ended = sum(found.values()) >= len(self.submissions) and set(found) <= {"completed", "failure", "timed_out"}
        return ended and not self.ground.value("SELECT count(*) FROM nonce_slot WHERE state NOT IN ('final', 'dead')")

    def restore(self) -> None:
        """After the last process, however the play went: what others must not find changed."""

    def check(self) -> None:
        """What must be true at the end beside what is always true: by default every request is completed."""
        assert self.ground.statuses() == ({"completed": len(self.submissions)} if self.submissions else {})

    # --- in the processes

    def turns(self) -> Sequence[Turn]:
        """What a process does, in this order."""
        board = Board(READY, SEND, SETTLE, around=True)
        return [Deeds(self), *request_turns(board), CommandTurn(board), ListenerTurn()]

    def act(self, context: ShiftContext) -> None:
        """What clients and people do, a step at a time: by default every request is posted until it is accepted."""
        self.ground.post_all(self.submissions)


class Deeds:
    """`act` as a turn: whoever was interrupted tries again."""

    name = "deeds"

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def run(self, context: ShiftContext) -> int:
        self._scene.ground.conn = context.conn  # the observer's belongs to the test process
        self._scene.act(context)
        return 0

    def close(self) -> None:
        """Nothing is kept."""


def duty_turns(*names: str) -> list[Turn]:
    """Duties of the sweep cluster by name, each due again at once."""
    found = [turn for turn in duties() if turn.name in names]
    assert {turn.name for turn in found} == set(names)
    for turn in found:
        turn._interval = 0.05
    return list(found)


@cache
def point_names() -> list[str]:
    """Every crash point of the product, derived from the source."""
    return sorted({name for name, _ in crash_point_names()})


@cache
def every_scene() -> dict[str, type[Scene]]:
    """Name -> scene, from the modules under tests/crash/scenes."""
    found: dict[str, type[Scene]] = {}
    for module in pkgutil.iter_modules(scenes.__path__):
        loaded = importlib.import_module(f"{scenes.__name__}.{module.name}")
        for value in vars(loaded).values():
            own = isinstance(value, type) and issubclass(value, Scene) and value.__module__ == loaded.__name__
            if own and (value.aims or value.also):
                found[value.__name__] = value
    return found


def aimed(scene: type[Scene], name: str) -> bool:
    """Whether a scene is played for a point. `*` alone: for all that no other scene is played for."""
    if "*" in scene.aims:
        return not any(_matches(name, one.aims) for one in every_scene().values() if one is not scene) and not _matches(
            name, PENDING
        )
    return _matches(name, scene.aims)


def _matches(name: str, patterns: Collection[str]) -> bool:
    return any(fnmatchcase(name.partition("_")[2], pattern) for pattern in patterns)
