"""A payment that an operator has canceled before anything is signed for it."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from requests_app.payment_control import cancel_payment
from tests.crash.people import persons
from tests.crash.scene import Deeds
from tests.crash.scenes.paying import Payment
from workers.commands import CommandTurn
from workers.shift import ShiftContext, Turn


class Ordered(Payment):
    """The order is given again until it is on record, with one form: it takes effect once."""

    aims: ClassVar[tuple[str, ...]] = ("commands_commit", "order_commit")
    payments: ClassVar[int] = 1

    def prepare(self) -> None:
        super().prepare()
        self.people = persons("ann")

    def turns(self) -> list[Turn]:
        return [Deeds(self), CommandTurn()]

    def act(self, context: ShiftContext) -> None:
        super().act(context)
        found = context.conn.execute("SELECT id FROM payment_intent WHERE state = 'authorized'").fetchone()
        if found is not None:
            cancel_payment(
                context.conn, payment_id=found[0], token=UUID(int=1), reason="asked to", reviewer_id=self.people[0]
            )

    def over(self) -> bool:
        return self.states() == {"canceled": 1}

    def check(self) -> None:
        assert self.ground.rows("SELECT state, outcome FROM command") == [("consumed", "applied")]
        ended = "SELECT count(*) FROM intent_transition WHERE to_state = 'canceled' AND actor = 'operator'"
        assert self.ground.value(ended) == 1
        assert not self.jobs()
