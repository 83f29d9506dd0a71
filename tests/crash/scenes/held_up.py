"""Sends that are put off: estimates that fail, an account that is disabled between lease and signature, and one that stays so."""

from __future__ import annotations

from typing import ClassVar

from tests.crash.scene import Scene
from tests.faults.rules import Fault, Rule


class HeldUp(Scene):
    """Whatever keeps a request from being signed, it is signed once in the end."""

    aims: ClassVar[tuple[str, ...]] = (
        "send_nack_commit",
        "left_nack_commit",
        "send_ack_commit",
        "send_move_commit",
        "send_put_off_commit",
    )
    constants: ClassVar = {
        "workers.estimate.FIRST_DELAY": 0.05,
        "workers.settle.DISABLED_SECONDS": 0.1,
        "workers.readiness.DISABLED_SECONDS": 0.1,
    }
    _mood = ""

    def weather(self) -> None:
        super().weather()
        if len(self.ground.accepted()) < self.count:
            return
        mood = next((one for one in ("send_nack_commit", "left_nack_commit", "send_*") if self.left(one)), "calm")
        if mood != self._mood:
            self._mood = mood
            self.ground.gateway.clear()
            if mood == "send_nack_commit":
                self.ground.gateway.add(Rule(Fault.ERROR, "eth_estimateGas", options={"message": "busy"}))
            elif mood == "left_nack_commit":
                self.ground.gateway.add(Rule(Fault.DELAY, "eth_estimateGas", options={"seconds": 0.2}))
        leased = "SELECT count(*) FROM queue_job WHERE queue = 'send' AND leased_by IS NOT NULL AND visible_at > clock_timestamp()"
        disabled = mood == "send_*" or (mood == "left_nack_commit" and self.ground.value(leased))
        self.ground.conn.execute("UPDATE client_account SET status = %s", ("disabled" if disabled else "active",))
