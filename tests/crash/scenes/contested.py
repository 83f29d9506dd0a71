"""Payments whose end is not the plain one: carried out or canceled by somebody else, in no block for long."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from requests_app.store import intents
from requests_app.store.intents import Intent
from tests.crash.scene import Deeds, duty_turns
from tests.crash.scenes.paying import LateListener, Payment
from tests.payments.settling.chain import DOLLAR, Bank
from workers.devnet.authorization import cancel
from workers.devnet.sending import Call
from workers.listener import ListenerTurn
from workers.settle import SettleTurn
from workers.shift import Turn

LOOKS = {"workers.receipts.LOOK_AFTER_SECONDS": 0.05, "workers.receipts.LONGEST_LOOK_SECONDS": 0.1}


class Contested(Payment):
    """Somebody else carries the signed authorization out, once; what scenes with a stranger share."""

    payments: ClassVar[int] = 1
    _done = False

    @property
    def stranger(self) -> Path:
        """The hash of the stranger's transaction, once that is mined."""
        return self.ground.note("stranger")

    @property
    def bank(self) -> Bank:
        """Others who use the token."""
        return Bank(self.ground.conn, self.ground.deployment, self.ground.account)

    def somebody(self) -> None:
        """The transfer by a stranger, mined."""
        if self._done:
            return
        self._done = True
        (intent,) = self.intents()
        signed = intent._replace(authorization=self.signed(0, intent.ref))
        (tx_hash,) = self.bank.as_somebody(self.bank.call_of(signed))
        self.stranger.write_text(tx_hash)

    def intents(self) -> list[Intent]:
        """The payments as they stand, in the order of their payers."""
        ids = [row[0] for row in self.ground.rows("SELECT id FROM payment_intent")]
        place = {one.address.lower(): number for number, one in enumerate(self.ground.deployment.users)}
        return sorted(intents.read_intents(self.ground.conn, ids), key=lambda one: place[one.payer.lower()])


class Faster(Contested):
    """A stranger is faster while ours is on the way: ours reverts, and the payment is settled by the stranger's transaction (B50)."""

    aims: ClassVar[tuple[str, ...]] = ("authorization_state_rpc", "revert_payments_commit")
    constants: ClassVar = LOOKS

    def prepare(self) -> None:
        super().prepare()
        self.ground.gateway.lose_sends = True

    def weather(self) -> None:
        super().weather()
        if self.states() == {"confirming": 1} and not self._done:
            self.somebody()
            self.ground.gateway.lose_sends = False
        if self._done:
            self.hurry()


class Overtaken(Contested):
    """Before the signatures come to us, a stranger carries one payment out, and a payer cancels hers on chain (B50).

    The one is held and followed, the other canceled; nothing is signed for either.
    """

    aims: ClassVar[tuple[str, ...]] = (
        "over_rpc", "find_spent_rpc", "spent_final_rpc", "executed_elsewhere_commit", "cancel_unsent_commit",
    )  # fmt: skip
    payments: ClassVar[int] = 2

    def turns(self) -> list[Turn]:
        return [Deeds(self), SettleTurn(), LateListener(self), *duty_turns("confirm")]

    def sign(self, made: dict[str, Any], number: int) -> None:
        if self.stranger.exists():
            super().sign(made, number)

    def somebody(self) -> None:
        """The transfer and the cancellation, mined."""
        if self._done:
            return
        self._done = True
        first, second = self.intents()
        signed = first._replace(authorization=self.signed(0, first.ref))
        v, r, s = cancel(self.bank.token, self.bank.chain_id, self.ground.deployment.users[1], second.ref)
        canceling = Call(second.token, DOLLAR.call("cancelAuthorization", second.payer, second.ref, v, r, s))
        self.stranger.write_text(self.bank.as_somebody(self.bank.call_of(signed), canceling)[0])

    def weather(self) -> None:
        super().weather()
        found = self.states()
        if found == {"created": self.payments}:
            self.somebody()
        if found == {"confirming": 1, "canceled": 1}:
            self.listen()
        self.hurry()

    def over(self) -> bool:
        return self.states() == {"settled": 1, "canceled": 1} and not self.jobs()

    def check(self) -> None:
        first, second = self.intents()
        assert (first.state, "0x" + (first.tx_hash or b"").hex()) == ("settled", self.stranger.read_text())
        assert [self.bank.entries(one) for one in (first, second)] == [["hold", "post"], []]
        assert self.ground.value("SELECT count(*) FROM nonce_slot") == 0


class Heeded(Contested):
    """The log shows a payment carried out before its client has brought the signature: what came too early is not forgotten.

    Nobody works on the queue: the duty alone holds the money and follows.
    """

    aims: ClassVar[tuple[str, ...]] = ("heed_commit",)
    constants: ClassVar = {"workers.duties.confirm.WIDE_SECONDS": 0.05}

    def turns(self) -> list[Turn]:
        return [Deeds(self), ListenerTurn(), *duty_turns("confirm")]

    def sign(self, made: dict[str, Any], number: int) -> None:
        if self.ground.value("SELECT count(*) FROM payment_observation"):
            super().sign(made, number)

    def weather(self) -> None:
        super().weather()
        if self.states() == {"created": 1}:
            self.somebody()

    def check(self) -> None:
        super().check()
        (payment,) = self.intents()
        assert self.bank.entries(payment) == ["hold", "post"]


class Lost(Payment):
    """The node evicts what it accepted: after a while the same bytes go out again."""

    aims: ClassVar[tuple[str, ...]] = ("lose_payments_commit", "hidden_receipts_rpc")
    payments: ClassVar[int] = 1
    settings: ClassVar = {"PAYMENT_LOST_SECONDS": 0.3}
    constants: ClassVar = {"workers.duties.confirm.WIDE_SECONDS": 0.05}

    def prepare(self) -> None:
        super().prepare()
        self.ground.gateway.lose_sends = True

    def weather(self) -> None:
        super().weather()
        if not self.left():
            self.ground.gateway.lose_sends = False
        self.ground.end_waits()
