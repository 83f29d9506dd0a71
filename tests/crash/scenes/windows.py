"""Authorizations and their windows: one that opens later, and one that ends while its transaction is in no block."""

from __future__ import annotations

from typing import Any, ClassVar

from tests.crash.scene import Deeds, duty_turns
from tests.crash.scenes.contested import LOOKS, Contested
from tests.crash.scenes.paying import LATER, Payment
from workers.listener import ListenerTurn
from workers.settle import SettleTurn
from workers.shift import Turn


class Early(Payment):
    """The token calls the authorization not valid yet: the payment waits, and is sent once when its window opens."""

    aims: ClassVar[tuple[str, ...]] = ("until_valid_rpc", "nack_payments_commit")
    payments: ClassVar[int] = 1

    def sign(self, made: dict[str, Any], number: int) -> None:
        super().sign(made, number)
        self.set_window(valid_after=str(LATER))  # the door itself lets in only what is valid by the database's clock

    def weather(self) -> None:
        super().weather()
        if not self.left():
            self.set_window(valid_after="0")
        self.hurry()


class Closed(Contested):
    """The window ends while the node keeps none of what it is sent: the nonce is spent on nothing, and the payment fails once."""

    aims: ClassVar[tuple[str, ...]] = ("window_final_rpc", "fail_closed_commit")
    constants: ClassVar = {**LOOKS, "workers.windows.INTERVAL_SECONDS": 0.02}

    def prepare(self) -> None:
        super().prepare()
        self.ground.gateway.lose_sends = True

    def turns(self) -> list[Turn]:
        return [Deeds(self), SettleTurn(), ListenerTurn(), *duty_turns("confirm")]

    def weather(self) -> None:
        super().weather()
        if self.states() == {"confirming": 1}:
            self.set_window(valid_before="1")
        if self.ground.value("SELECT count(*) FROM tx_attempt WHERE kind = 'cancel'"):
            self.ground.gateway.lose_sends = False
        self.hurry()

    def over(self) -> bool:
        return self.states() == {"failed": 1} and not self.jobs()

    def check(self) -> None:
        (payment,) = self.intents()
        assert payment.ref not in self.bank.transfers()
        assert self.bank.entries(payment) == ["hold", "void"]
        assert self.ground.rows("SELECT state FROM nonce_slot") == [("dead",)]
