"""Payments: asked for over the API, signed by their payers, sent once, settled when their block is final."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

from tests.crash.scene import PAYMENTS, Deeds, Scene, duty_turns
from tests.payments.settling.chain import MERCHANT
from workers.commands import CommandTurn
from workers.devnet.authorization import authorize
from workers.listener import ListenerTurn
from workers.settle import SettleTurn
from workers.shift import ShiftContext, Turn

PATH = "/v1/payment-intents"
LATER = 4_000_000_000
SOON = 0.05


class Payment(Scene):
    """What scenes of payments share: a client who asks until it is answered, and the duties beside the settle turn."""

    kinds = PAYMENTS
    count = 0
    payments: ClassVar[int] = 2

    def turns(self) -> list[Turn]:
        return [
            Deeds(self),
            SettleTurn(),
            CommandTurn(),
            ListenerTurn(),
            *duty_turns("confirm", "payment_jobs", "recon"),
        ]

    def act(self, context: ShiftContext) -> None:
        for number in range(self.payments):
            made = self.create(number)
            if made is not None and made["state"] == "created":
                self.sign(made, number)

    def create(self, number: int) -> dict[str, Any] | None:
        """The payment of this number as it stands, asked for under a key of its own."""
        token, gateway = self.ground.deployment.gateway["payment_tokens"][0], self.ground.deployment.gateway
        terms = {
            "chain": f"evm:{gateway['chain_id']}",
            "token": token["address"],
            "payer": self.ground.deployment.users[number].address,
            "merchant": MERCHANT,
            "amount": str(1_000 + number),
        }
        key = {"Idempotency-Key": f"crash-{number}"}
        answer = self.ground.client().post(PATH, terms, content_type="application/json", headers=key)
        if answer.status_code != 201:
            return None
        found = self.ground.client().get(f"{PATH}/{answer.json()['id']}")
        return found.json() if found.status_code == 200 else None

    def sign(self, made: dict[str, Any], number: int) -> None:
        """The client brings what its payer's wallet has signed."""
        signed = self.signed(number, bytes.fromhex(made["typed_data"]["message"]["nonce"][2:]))
        self.ground.client().post(f"{PATH}/{made['id']}/authorize", signed, content_type="application/json")

    def signed(self, number: int, ref: bytes) -> dict[str, str]:
        """What the payer of this number signs for a ref."""
        gateway, payer = self.ground.deployment.gateway, self.ground.deployment.users[number]
        token, chain = gateway["payment_tokens"][0], int(gateway["chain_id"])
        return authorize(token, chain, payer, MERCHANT, 1_000 + number, ref, LATER)

    def set_window(self, **bounds: str) -> None:
        """Let the database, and whoever asks the token from there, believe that a payer has signed these bounds."""
        change = (
            'UPDATE payment_intent SET "authorization" = "authorization" || %s::jsonb WHERE "authorization" IS NOT NULL'
        )
        self.ground.conn.execute(change, (json.dumps(bounds),))

    def hurry(self) -> None:
        """No job waits for its time, and nothing was sent a moment ago."""
        self.ground.end_waits()
        self.ground.age_attempts(1.0)

    # --- a listener that hears only what it is to hear

    @property
    def _ears(self) -> Path:
        return self.ground.note("listening")

    def listen(self, hears: bool = True) -> None:
        """What the `LateListener` of every process does from now on."""
        self._ears.touch() if hears else self._ears.unlink(missing_ok=True)

    def listens(self) -> bool:
        """Whether it hears."""
        return self._ears.exists()

    def states(self) -> dict[str, int]:
        """How many payments are in each state."""
        return dict(self.ground.rows("SELECT state, count(*) FROM payment_intent GROUP BY 1"))

    def jobs(self) -> int:
        """How many deliveries are still to come. One whose payment was ended by somebody else is dropped by whoever gets it next."""
        return int(self.ground.value("SELECT count(*) FROM queue_job"))

    def over(self) -> bool:
        open_slots = self.ground.value("SELECT count(*) FROM nonce_slot WHERE state NOT IN ('final', 'dead')")
        return self.states() == {"settled": self.payments} and not open_slots

    def check(self) -> None:
        assert self.states() == {"settled": self.payments}


class LateListener(ListenerTurn):
    """The listener of a scene that needs the log not to show something yet."""

    def __init__(self, scene: Payment) -> None:
        super().__init__()
        self._scene = scene

    def run(self, context: ShiftContext) -> int:
        return super().run(context) if self._scene.listens() else 0


class Paid(Payment):
    """Nothing goes wrong but the processes."""

    aims: ClassVar[tuple[str, ...]] = (
        "key_claim_commit", "keyed_work_commit", "create_payment_commit", "create_intent_commit", "authorize_commit",
        "lease_payments_commit", "estimate_payments_rpc", "prepare_settle_commit", "record_payments_commit", "confirm_head_rpc",
        "confirm_blocks_rpc", "settle_payments_commit", "enqueue_payments_commit", "expire_payments_commit", "open_recon_commit",
        "recon_window_rpc", "reconcile_commit", "ack_payments_commit",
    )  # fmt: skip
