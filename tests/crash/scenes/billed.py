"""Usage that becomes a payment, once, and is settled by it."""

from __future__ import annotations

from typing import Any, ClassVar

from requests_app import billing
from tests.crash.scene import Deeds, duty_turns
from tests.crash.scenes.paying import PATH, Payment
from tests.payments.settling.chain import MERCHANT
from workers.listener import ListenerTurn
from workers.settle import SettleTurn
from workers.shift import ShiftContext, Turn

PICODOLLARS = 1_000 * 10**6  # what the first payment of these scenes costs


class Billed(Payment):
    """An operator makes the bill; the client finds its payment and pays."""

    aims: ClassVar[tuple[str, ...]] = ("bill_usage_commit", "make_bill_commit")
    payments: ClassVar[int] = 1
    settings: ClassVar = {"BILLING_MERCHANT": MERCHANT}

    def prepare(self) -> None:
        super().prepare()
        self.ground.conn.execute(
            "INSERT INTO usage_unsettled VALUES (%(payer)s, 1, 5, %(half)s, 2, 7), (%(payer)s, 1, 6, %(half)s, 1, 8)",
            {"payer": self.ground.account, "half": PICODOLLARS // 2},
        )

    def turns(self) -> list[Turn]:
        return [Deeds(self), SettleTurn(), ListenerTurn(), *duty_turns("confirm")]

    def act(self, context: ShiftContext) -> None:
        if not self.ground.value("SELECT count(*) FROM payment_intent"):
            by = billing.biller()
            payers = {"crash": self.ground.deployment.users[0].address}
            billing.make_bills(context.conn, by, billing.due(context.conn, by, 1, payers=payers))
        super().act(context)

    def create(self, number: int) -> dict[str, Any] | None:
        """The payment of the bill, once there is one."""
        name = self.ground.value("SELECT public_id FROM payment_intent")
        found = self.ground.client().get(f"{PATH}/{name}") if name else None
        return found.json() if found is not None and found.status_code == 200 else None

    def check(self) -> None:
        super().check()
        (name,) = self.ground.rows("SELECT public_id FROM payment_intent")
        settled = "SELECT reference, sum(spend)::bigint, sum(messages)::bigint FROM usage_settled GROUP BY 1"
        assert self.ground.rows(settled) == [(*name, PICODOLLARS, 3)]
        for place in ("unsettled", "billed"):
            assert self.ground.value(f"SELECT count(*) FROM usage_{place}") == 0, place
