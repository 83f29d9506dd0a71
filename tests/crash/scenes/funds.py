"""A signer that runs out of gas money again and again."""

from __future__ import annotations

from typing import ClassVar

from tests.crash.scene import Scene

RICH = 10**21


class Funds(Scene):
    """Requests wait while it is paused, and are sent once when money has come."""

    aims: ClassVar[tuple[str, ...]] = ("hold_back_commit", "lift_pause_commit")

    def weather(self) -> None:
        super().weather()
        status = self.ground.value("SELECT status FROM signer")
        if status == "active" and self.left("hold_back_commit"):
            self._balance(0)
        elif status == "paused" and self.left("hold_back_commit", "lift_pause_commit"):
            self._balance(RICH if self.left("lift_pause_commit") else 0)
        if not self.left("hold_back_commit"):
            self._balance(RICH)

    def over(self) -> bool:
        return super().over() and self.ground.rows("SELECT status FROM signer") == [("active",)]

    def restore(self) -> None:
        self._balance(RICH)

    def _balance(self, wei: int) -> None:
        self.ground.rpc.call("anvil_setBalance", "0x" + self.ground.signer.hex(), hex(wei))
