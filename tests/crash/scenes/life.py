"""The plain life of requests, from POST to their answers: whatever no other scene is played for."""

from __future__ import annotations

from typing import ClassVar

from tests.crash.scene import Scene


class Life(Scene):
    """Nothing goes wrong but the processes."""

    aims: ClassVar[tuple[str, ...]] = ("*",)
