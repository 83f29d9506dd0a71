"""Payments whose end is not the plain one: carried out by somebody else, in no block for long."""

from __future__ import annotations

from typing import ClassVar

from requests_app.store import intents
from tests.crash.scenes.paying import Payment
from tests.payments.settling.chain import Bank

LOOKS = {"workers.receipts.LOOK_AFTER_SECONDS": 0.05, "workers.receipts.LONGEST_LOOK_SECONDS": 0.1}


class Contested(Payment):
    """Somebody else carries the signed authorization out, once; what scenes with a stranger share."""

    payments: ClassVar[int] = 1
    _done = False

    def somebody(self) -> None:
        """The transfer by a stranger, mined; its hash is kept where the processes find it."""
        if self._done:
            return
        self._done = True
        bank = Bank(self.ground.conn, self.ground.deployment, self.ground.account)
        (intent_id,) = [row[0] for row in self.ground.rows("SELECT id FROM payment_intent")]
        (intent,) = intents.read_intents(self.ground.conn, [intent_id])
        (tx_hash,) = bank.as_somebody(bank.call_of(intent))
        (self.ground.home / "stranger").write_text(tx_hash)

    def hurry(self) -> None:
        """No job waits for its time, and nothing was sent a moment ago."""
        self.ground.conn.execute("UPDATE queue_job SET visible_at = clock_timestamp() WHERE leased_by IS NULL")
        self.ground.age_attempts(1.0)


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
        self.ground.conn.execute("UPDATE queue_job SET visible_at = clock_timestamp() WHERE leased_by IS NULL")
