"""Shares that name a KMS context whose threshold the host chain does not tell: completed when it answers again."""

from __future__ import annotations

from typing import ClassVar

from requests_app.states import Kind
from tests.crash.scene import FORMS, Scene
from tests.faults.rules import Fault, Rule
from workers.devnet.control import Behaviour, write
from workers.duties import thresholds
from workers.shift import Turn
from workers.sweep import DutyTurn


class Untold(Scene):
    """Nothing is lost of what came meanwhile."""

    aims: ClassVar[tuple[str, ...]] = ("thresholds_commit",)
    kinds = (Kind.USER_DECRYPT,)
    count = 1
    constants: ClassVar = {"workers.thresholds.RETRY_SECONDS": 0.05}

    def prepare(self) -> None:
        context = self.ground.kms_context()
        extra = "0x01" + context.to_bytes(32, "big").hex()
        self.submissions = self.ground.submissions([FORMS[self.kind]], extra_data=extra)
        write(self.ground.devnet.layout.control, user=Behaviour(answer=False))
        self._asked = False

    def turns(self) -> list[Turn]:
        return [*super().turns(), DutyTurn("thresholds", 0.05, thresholds.run)]

    def weather(self) -> None:
        super().weather()
        if not self._asked and self.ground.statuses() == {"receipt_received": 1}:
            self._asked = True
            self.ground.host.add(Rule(Fault.ERROR, "eth_call"))
            self.restore()
        if self._asked and self.ground.value("SELECT count(*) FROM gateway_ref WHERE n >= 9 AND threshold IS NULL"):
            self.ground.host.clear()

    def restore(self) -> None:
        self.ground.devnet.layout.control.unlink(missing_ok=True)
