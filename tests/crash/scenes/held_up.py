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

    def prepare(self) -> None:
        super().prepare()
        self._hold_up()

    def weather(self) -> None:
        super().weather()
        self._hold_up()

    def _hold_up(self) -> None:
        mood = next((one for one in ("send_nack_commit", "left_nack_commit", "send_*") if self.left(one)), "calm")
        if mood != self._mood:
            self._mood = mood
            self.ground.gateway.clear()
            if mood == "send_nack_commit":
                self.ground.gateway.add(Rule(Fault.ERROR, "eth_estimateGas", options={"message": "busy"}))
        posted = len(self.ground.accepted()) == self.count  # a disabled account is not let in
        disabled = posted and (mood == "send_*" or (mood == "left_nack_commit" and self._leased()))
        self.ground.conn.execute("UPDATE client_account SET status = %s", ("disabled" if disabled else "active",))
        # Nothing is signed before the account is disabled.
        held = mood in ("left_nack_commit", "send_*") and not disabled
        self.ground.gateway.held = "eth_estimateGas" if held else ""

    def _leased(self) -> bool:
        """Whether a process has leased a job while the account was active."""
        leased = "SELECT count(*) FROM queue_job WHERE queue = 'send' AND leased_by IS NOT NULL AND visible_at > clock_timestamp()"
        return bool(self.ground.value(leased))
