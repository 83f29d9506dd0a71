"""A signer that may not send what readiness has just left to it: the chain fell silent meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import ClassVar

from tests.crash.scene import DECRYPTS, Scene
from workers.settle import SettleTurn
from workers.shift import ShiftContext, Turn


class HandedBack(Scene):
    """It goes back into the queue, and out of it to the chain, once."""

    aims: ClassVar[tuple[str, ...]] = ("hand_back_commit",)
    kinds = DECRYPTS
    count = 5
    _settle: SettleTurn

    def turns(self) -> Sequence[Turn]:
        deeds, ready, settle, *others = super().turns()
        assert isinstance(settle, SettleTurn)
        self._settle = settle
        return [deeds, ready, Silence(settle), settle, *others]

    def act(self, context: ShiftContext) -> None:
        """One request more, once the send turn has said that it has room."""
        if self._settle._handover.room:
            self.ground.post_all(self.submissions[: len(self.ground.accepted()) + 1])


class Silence:
    """Rests the signers for a moment, the first time that something waits for them."""

    name = "silence"

    def __init__(self, settle: SettleTurn) -> None:
        self._settle = settle
        self._over = False

    def run(self, context: ShiftContext) -> int:
        if self._settle._handover._given and not self._over:
            self._over = True
            for lane in self._settle._pool.lanes(context) if self._settle._pool else ():
                lane.send_at = monotonic() + 0.1
        return 0

    def close(self) -> None:
        """Nothing is kept."""
