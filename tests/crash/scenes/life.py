"""The plain life of requests, from POST to their answers: whatever no other scene is played for."""

from __future__ import annotations

from typing import ClassVar

from tests.crash.scene import Scene


class Life(Scene):
    """Nothing goes wrong but the processes."""

    aims: ClassVar[tuple[str, ...]] = ("*",)


class Renewed(Life):
    """The same, for what happens every half second: it goes on until that was met, however quickly requests are through."""

    aims: ClassVar[tuple[str, ...]] = ("lease_renew_commit", "beat_commit")

    def over(self) -> bool:
        return super().over() and not self.left()
