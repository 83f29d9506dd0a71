"""A nonce that is not mined: higher offers, then nothing, then a person; and bytes that the node refuses for good."""

from __future__ import annotations

from typing import ClassVar

from tests.crash.scene import Scene
from tests.faults.rules import Fault, Rule
from workers.duties import deadlines
from workers.shift import Turn
from workers.sweep import DutyTurn


class Ladder(Scene):
    """The node evicts whatever it is sent while blocks go on, until the no-op of the last step may be mined."""

    aims: ClassVar[tuple[str, ...]] = (
        "market_rpc",
        "passed_over_rpc",
        "note_waiting_commit",
        "noop_gas_rpc",
        "store_replacements_commit",
        "park_commit",
    )
    count = 1
    settings: ClassVar = {"STUCK_SECONDS": 0.1}
    constants: ClassVar = {"workers.replace.INTERVAL_SECONDS": 0.02}

    def prepare(self) -> None:
        super().prepare()
        self.ground.gateway.lose_sends = True

    def weather(self) -> None:
        self.ground.pass_time(blocks=3)
        spent = self.ground.statuses().get("needs_review") and self.ground.value(
            "SELECT count(*) FROM tx_attempt WHERE kind IN ('cancel', 'fill')"
        )
        if spent and not self.left():
            self.ground.gateway.lose_sends = False
            self.ground.age_attempts(1.0)

    def over(self) -> bool:
        dead = self.ground.value("SELECT count(*) FROM nonce_slot WHERE state = 'dead'")
        return dead == 1 and self.ground.statuses() == {"needs_review": 1}

    def check(self) -> None:
        assert self.ground.rows("SELECT reason_code FROM review_case WHERE status = 'open'") == [("fee_ceiling",)]
        offers = [row[0] for row in self.ground.rows("SELECT kind FROM tx_attempt ORDER BY seq")]
        assert offers[:6] == ["pay", "replace", "replace", "replace", "replace", "cancel"]


class Refused(Scene):
    """The node refuses the first transactions for good: their nonces are filled, their rows go to a person.

    Who dies between the refusal and the person leaves a row whose nonce is dead to the deadline.
    """

    also: ClassVar[tuple[str, ...]] = (
        "store_replacements_commit",
        "park_commit",
        "broadcast_rpc",
        "record_sends_commit",
    )
    constants: ClassVar = {"workers.duties.deadlines.INTERVAL": 0.1}

    def prepare(self) -> None:
        super().prepare()
        self.ground.gateway.add(
            Rule(Fault.ERROR, "eth_sendRawTransaction", options={"message": "intrinsic gas too low"})
        )

    def turns(self) -> list[Turn]:
        return [*super().turns(), DutyTurn("deadlines", deadlines.INTERVAL, deadlines.run)]

    def weather(self) -> None:
        super().weather()
        if self.ground.value("SELECT count(*) FROM tx_attempt WHERE state = 'refused'"):
            self.ground.gateway.clear()
        self.ground.age_attempts(0.2)
        dead = f"SELECT subject_id FROM nonce_slot WHERE state = 'dead' AND kind = {self.kind.value}"
        self.ground.make_overdue(self.kind, f"status = 'tx_in_flight' AND id IN ({dead})")

    def over(self) -> bool:
        found = self.ground.statuses()
        open_slots = self.ground.value("SELECT count(*) FROM nonce_slot WHERE state NOT IN ('final', 'dead')")
        return sum(found.values()) == self.count and set(found) <= {"completed", "needs_review"} and open_slots == 0

    def check(self) -> None:
        dead = self.ground.value("SELECT count(*) FROM nonce_slot WHERE state = 'dead'")
        assert dead == self.ground.statuses().get("needs_review", 0)
        reasons = {row[0] for row in self.ground.rows("SELECT reason_code FROM review_case WHERE status = 'open'")}
        assert reasons <= {"refused_after_signing", "outcome_unknown"}
