"""Payments whose transaction nobody shows for long: found by its receipt, given up, or named by a reviewer."""

from __future__ import annotations

from typing import ClassVar

from requests_app import decisions
from requests_app.models.reviews import ReviewAction
from tests.crash.people import persons
from tests.crash.scene import Deeds, duty_turns
from tests.crash.scenes.contested import LOOKS, Contested
from tests.crash.scenes.paying import LateListener, Payment
from tests.faults.rules import Fault, Rule
from workers.commands import CommandTurn
from workers.listener import ListenerTurn
from workers.settle import SettleTurn
from workers.shift import ShiftContext, Turn


class Overheard(Payment):
    """The receipt is found before the log shows anything."""

    aims: ClassVar[tuple[str, ...]] = ("record_mined_commit",)
    payments: ClassVar[int] = 1
    constants: ClassVar = LOOKS

    def turns(self) -> list[Turn]:
        return [Deeds(self), SettleTurn(), LateListener(self), *duty_turns("confirm")]

    def weather(self) -> None:
        super().weather()
        if self.ground.mined():
            self.listen()


class Unclear(Payment):
    """The node says nothing clear to what it is sent until a person is to look; then it keeps the bytes, and the log shows them mined."""

    payments: ClassVar[int] = 1
    letters: ClassVar[list[tuple[str, str]]] = []  # their status, and what their payment was left in

    def prepare(self) -> None:
        super().prepare()
        self.ground.gateway.add(Rule(Fault.ERROR, "eth_sendRawTransaction", options={"message": "busy"}))

    def turns(self) -> list[Turn]:
        return [Deeds(self), SettleTurn(), ListenerTurn(), *duty_turns("confirm")]

    def weather(self) -> None:
        super().weather()
        if self.states() == {"needs_review": 1}:
            self.ground.gateway.clear()
        self.hurry()

    def check(self) -> None:
        super().check()
        cases = self.ground.rows("SELECT reason_code, status, outcome FROM review_case")
        assert cases == [("outcome_unknown", "closed", "confirming")]
        assert self.ground.value("SELECT count(*) FROM tx_attempt") == 1
        assert self.ground.rows("SELECT status, subject_state FROM dead_letter") == self.letters


class Exhausted(Unclear):
    """It is looked up and sent again until the deliveries are used up."""

    aims: ClassVar[tuple[str, ...]] = ("find_payments_rpc", "give_up_commit")
    constants: ClassVar = {"workers.settling.LONGEST_DELAY_SECONDS": 0.1, "workers.settling.STUCK_SECONDS": 0.0}
    letters: ClassVar = [("parked", "needs_review")]


class Outstanding(Unclear):
    """Its time for a receipt is over before that."""

    aims: ClassVar[tuple[str, ...]] = ("review_payments_commit",)
    settings: ClassVar = {"IN_FLIGHT_DEADLINE_SECONDS": 0}


class Named(Contested):
    """In no block for too long, given to a person, who names a stranger's transaction that carries it, as often as it takes."""

    aims: ClassVar[tuple[str, ...]] = (
        "stuck_head_rpc", "doubt_payments_commit", "payment_evidence_rpc", "named_receipt_rpc", "decide_payment_commit",
    )  # fmt: skip
    settings: ClassVar = {"PAYMENT_STUCK_SECONDS": 0.2}
    constants: ClassVar = {**LOOKS, "workers.duties.confirm.WIDE_SECONDS": 0.05}

    def prepare(self) -> None:
        super().prepare()
        self.people = persons("ann")
        self.listen()
        self.ground.gateway.lose_sends = True

    def turns(self) -> list[Turn]:
        return [Deeds(self), SettleTurn(), CommandTurn(), LateListener(self), *duty_turns("confirm")]

    def weather(self) -> None:
        super().weather()
        if self.states() == {"needs_review": 1} and not self._done:
            self.listen(False)
            self.somebody()
        if self._done and not self.left():
            self.listen()
            self.ground.gateway.lose_sends = False
        self.hurry()

    def act(self, context: ShiftContext) -> None:
        super().act(context)
        row = context.conn.execute(
            "SELECT c.id, c.version FROM review_case c WHERE c.status = 'open'"
            " AND NOT EXISTS (SELECT 1 FROM review_decision d WHERE d.case_id = c.id)"
        ).fetchone()
        if row is not None and self.stranger.exists():
            decisions.decide(
                context.conn, case_id=row[0], version=row[1], action=ReviewAction.MARK_SENT, reason="it is there",
                reviewer_id=self.people[0], parameters={"tx_hash": self.stranger.read_text()},
            )  # fmt: skip

    def over(self) -> bool:
        return super().over() and not self.ground.value("SELECT count(*) FROM command WHERE state <> 'consumed'")

    def check(self) -> None:
        super().check()
        (payment,) = self.intents()
        assert "0x" + (payment.tx_hash or b"").hex() == self.stranger.read_text()
        assert self.bank.entries(payment) == ["hold", "post"]
        assert ("applied",) in self.ground.rows("SELECT DISTINCT outcome FROM command")
