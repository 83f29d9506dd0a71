"""A signer that runs out of gas money again and again."""

from __future__ import annotations

from typing import ClassVar

from tests.crash.scene import Scene

RICH = 10**21


class Funds(Scene):
    """Requests wait while it is paused, and are sent once when money has come."""

    aims: ClassVar[tuple[str, ...]] = ("hold_back_commit", "lift_pause_commit")

    def prepare(self) -> None:
        super().prepare()
        self._balance(0)

    def weather(self) -> None:
        super().weather()
        status = self.ground.value("SELECT status FROM signer")
        if not self.left() or status == "paused":
            self._balance(RICH)
        elif status == "active":
            self._balance(0)

    def over(self) -> bool:
        return super().over() and self.ground.rows("SELECT status FROM signer") == [("active",)]

    def restore(self) -> None:
        self._balance(RICH)

    def _balance(self, wei: int) -> None:
        self.ground.rpc.call("anvil_setBalance", "0x" + self.ground.signer.hex(), hex(wei))
