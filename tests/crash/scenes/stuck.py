"""A row whose transaction never shows: parked at its deadline, then decided: a higher offer, or nothing at its nonce."""

from __future__ import annotations

from typing import ClassVar

from requests_app import decisions
from requests_app.models.reviews import ReviewAction
from tests.crash.people import persons
from tests.crash.scene import Scene
from workers.duties import deadlines
from workers.shift import ShiftContext, Turn
from workers.sweep import DutyTurn


class Stuck(Scene):
    """The node evicts what it is sent; the deadline sends the row to a person, who has more offered, until it is mined."""

    aims: ClassVar[tuple[str, ...]] = ("command_end_commit", "judge_command_commit", "reopen_attempts_commit")
    also: ClassVar[tuple[str, ...]] = ("store_replacements_commit", "overdue_commit", "commands_commit")
    count = 1
    constants: ClassVar = {"workers.duties.deadlines.INTERVAL": 0.1}
    action: ClassVar[ReviewAction] = ReviewAction.REPLACE
    awaited: ClassVar[tuple[str, ...]] = ("*",)  # points that must have been met before the node keeps what it is sent

    def prepare(self) -> None:
        super().prepare()
        self.people = persons("ann")
        self.ground.gateway.lose_sends = True

    def turns(self) -> list[Turn]:
        return [*super().turns(), DutyTurn("deadlines", deadlines.INTERVAL, deadlines.run)]

    def weather(self) -> None:
        super().weather()
        applied = self.ground.value("SELECT count(*) FROM command WHERE state = 'consumed' AND outcome = 'applied'")
        if applied and not self.left(*self.awaited):
            self.ground.gateway.lose_sends = False
            self.ground.age_attempts(1.0)
        elif self.ground.statuses() == {"tx_in_flight": 1}:
            self.ground.make_overdue(self.kind, "status = 'tx_in_flight'")

    def act(self, context: ShiftContext) -> None:
        super().act(context)
        row = context.conn.execute(
            "SELECT c.id, c.version FROM review_case c WHERE c.status = 'open'"
            " AND NOT EXISTS (SELECT 1 FROM review_decision d WHERE d.case_id = c.id)"
        ).fetchone()
        if row is not None:
            parameters = {"ceiling_wei": str(10**15)} if self.action is ReviewAction.REPLACE else {}
            decisions.decide(
                context.conn, case_id=row[0], version=row[1], action=self.action, reason="because", reviewer_id=self.people[0],
                parameters=parameters,
            )  # fmt: skip


class SpentNonce(Stuck):
    """The person has the nonce spent on nothing: the request fails, nothing was asked of the gateway."""

    aims: ClassVar[tuple[str, ...]] = ()
    also: ClassVar[tuple[str, ...]] = ("command_end_commit", "close_slots_commit", "finalize_slots_commit")
    action = ReviewAction.CANCEL_NONCE
    awaited = ("command_end_commit",)

    def check(self) -> None:
        assert self.ground.statuses() == {"failure": 1}
        assert self.ground.rows("SELECT state FROM nonce_slot") == [("dead",)]
