"""Payments whose keys travel over SQS; and clients of payments who are refused first, or change their mind."""

from __future__ import annotations

from contextlib import ExitStack
from time import monotonic
from typing import Any, ClassVar

from django.conf import settings

from requests_app.store.intents import SETTLE
from tests.crash.scene import Deeds
from tests.crash.scenes.paying import PATH, SOON, Payment
from tests.payments.sqs import cloud
from workers.carriers import carrier_of
from workers.drain import DrainTurn
from workers.duties.confirm import Confirmation
from workers.listener import ListenerTurn
from workers.settle import SettleTurn
from workers.shift import ShiftContext, Turn
from workers.sqs_client import sqs_queue
from workers.sweep import DutyTurn

LEASE_SECONDS = 1.0
STRAY_SECONDS = 2.0


class Carried(Payment):
    """Processes end between table and SQS, in either direction: every payment is settled, by one transaction."""

    aims: ClassVar[tuple[str, ...]] = (
        "claim_due_commit", "publish_keys_rpc", "keep_published_commit", "receive_keys_rpc", "lease_keys_commit", "delete_keys_rpc",
        "turn_away_keys_rpc", "extend_payments_commit", "hide_keys_rpc",
    )  # fmt: skip
    constants: ClassVar = {
        "workers.drain.GRACE_SECONDS": 0.5,
        "workers.drain.REPUBLISH_SECONDS": 3.0,
        "workers.carriers.LONGEST_PAUSE": 0.1,
        "workers.carriers.AWAY_PAUSE": 0.2,
    }

    def prepare(self) -> None:
        super().prepare()
        self._stray_at = 0.0
        self._stack = ExitStack()
        settings.QUEUE_URL = self._stack.enter_context(cloud()).url()

    def restore(self) -> None:
        settings.QUEUE_URL = ""
        self._stack.close()

    def turns(self) -> list[Turn]:
        confirm = DutyTurn("confirm", SOON, Confirmation().run)
        return [Deeds(self), DrainTurn(), Slow(self), SettleTurn(), ListenerTurn(), confirm]

    def weather(self) -> None:
        """Messages that lead nowhere come along."""
        super().weather()
        if self.left("turn_away_keys_rpc") and monotonic() >= self._stray_at:
            self._stray_at = monotonic() + STRAY_SECONDS
            sqs_queue(settings.QUEUE_URL).send(["pi_000000000000000000000000/settle"])


class Slow:
    """A consumer that takes a payment, asks for more time, and does nothing with it."""

    name = "slow"

    def __init__(self, scene: Carried) -> None:
        self._scene = scene
        self._carrier: Any = None

    def run(self, context: ShiftContext) -> int:
        if self._scene.left("extend_payments_commit", "hide_keys_rpc"):
            self._carrier = self._carrier or carrier_of(SETTLE)
            taken = [one.receipt for one in self._carrier.lease(context.conn, 1, "slow", LEASE_SECONDS)]
            if taken:
                self._carrier.extend(context.conn, taken, LEASE_SECONDS / 2)
        return 0

    def close(self) -> None:
        """What it holds comes back to others by itself."""


class RefusedFirst(Payment):
    """The client's first try under a key is refused; the key is free for the next."""

    aims: ClassVar[tuple[str, ...]] = ("key_release_commit",)

    def turns(self) -> list[Turn]:
        return [Deeds(self), SettleTurn(), ListenerTurn(), DutyTurn("confirm", SOON, Confirmation().run)]

    def create(self, number: int) -> dict[str, Any] | None:
        refused = self.ground.client().post(
            PATH, {"amount": "0"}, content_type="application/json", headers={"Idempotency-Key": f"refused-{number}"}
        )
        assert refused.status_code in (400, 409, 503), refused.content
        return super().create(number)


class Reconsidered(Payment):
    """The client cancels what it asked for."""

    aims: ClassVar[tuple[str, ...]] = ("cancel_intent_commit",)

    def turns(self) -> list[Turn]:
        return [Deeds(self)]

    def sign(self, made: dict[str, Any], number: int) -> None:
        self.ground.client().post(f"{PATH}/{made['id']}/cancel")

    def over(self) -> bool:
        return self.states() == {"canceled": self.payments}

    def check(self) -> None:
        assert self.states() == {"canceled": self.payments}
        assert self.ground.rows("SELECT 1 FROM ledger_entry") == []
