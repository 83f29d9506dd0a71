"""What is ours although a node, or the settings, say otherwise: bytes that were refused and mined all the same, orders to a signer without a key."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar
from uuid import uuid4

from requests_app.signer_control import SignerDeed, tell_signer
from requests_app.states import Kind
from tests.crash.people import persons
from tests.crash.scene import Deeds, Scene
from tests.faults.rules import Fault, Rule
from workers.commands import CommandTurn
from workers.listener import ListenerTurn
from workers.shift import ShiftContext, Turn

NOBODYS = b"\x5a" * 20


class Later(ListenerTurn):
    """A listener that begins when the file is there: before that, nobody but the signer's owner tells what was mined."""

    def __init__(self, begin: Path) -> None:
        super().__init__()
        self._begin = begin

    def run(self, context: ShiftContext) -> int:
        return super().run(context) if self._begin.exists() else 0


class RefusedButMined(Scene):
    """The node takes the bytes and says that it refuses them for good. Nothing else gets their nonce, and nobody calls it a stranger's."""

    aims: ClassVar[tuple[str, ...]] = ("take_up_again_commit",)
    count = 1
    constants: ClassVar = {
        "workers.receipts.LOOK_AFTER_SECONDS": 0.05,
        "workers.receipts.LONGEST_LOOK_SECONDS": 0.1,
    }

    def prepare(self) -> None:
        super().prepare()
        said = {"message": "intrinsic gas too low", "executed": True}
        self.ground.gateway.add(Rule(Fault.ERROR, "eth_sendRawTransaction", times=1, options=said))
        self.ground.gateway.add(Rule(Fault.DROP_REQUEST, "eth_sendRawTransaction", skip=1))  # nothing takes its place

    @property
    def _heard(self) -> Path:
        return self.ground.note("heard")

    def turns(self) -> list[Turn]:
        return [Later(self._heard) if isinstance(turn, ListenerTurn) else turn for turn in super().turns()]

    def weather(self) -> None:
        super().weather()
        if not self.left() or self.ground.mined():  # a former holder may have taken it up
            self._heard.touch()

    def check(self) -> None:
        super().check()
        assert self.ground.rows("SELECT kind FROM tx_attempt WHERE state = 'final'") == [("pay",)]
        assert self.ground.value("SELECT count(*) FROM signer WHERE status <> 'active'") == 0


class Keyless(Scene):
    """An order to a signer whose key is gone ends as rejected."""

    aims: ClassVar[tuple[str, ...]] = ("reject_keyless_commit",)
    kinds: ClassVar[tuple[Kind, ...]] = (Kind.INPUT_PROOF,)
    count = 0
    constants: ClassVar = {"workers.keyless.INTERVAL_SECONDS": 0.05, "workers.keyless.PATIENCE_SECONDS": 0.2}

    def prepare(self) -> None:
        super().prepare()
        (self.person,) = persons("ann")
        chain = int(self.ground.deployment.gateway["chain_id"])
        self.ground.conn.execute("INSERT INTO signer (chain_id, address) VALUES (%s, %s)", (chain, NOBODYS))

    def turns(self) -> list[Turn]:
        return [Deeds(self), CommandTurn()]

    def act(self, context: ShiftContext) -> None:
        if not context.conn.execute("SELECT 1 FROM command").fetchone():
            found = context.conn.execute("SELECT id FROM signer WHERE address = %s", (NOBODYS,)).fetchone()
            assert found is not None
            tell_signer(
                context.conn, signer_id=found[0], deed=SignerDeed.PAUSE, token=uuid4(), reason="old", reviewer_id=self.person
            )  # fmt: skip

    def over(self) -> bool:
        return bool(self.ground.value("SELECT count(*) FROM command WHERE state = 'consumed'"))

    def check(self) -> None:
        assert self.ground.rows("SELECT state, outcome FROM command") == [("consumed", "rejected")]
        assert self.ground.rows("SELECT status FROM signer WHERE address = %s", (NOBODYS,)) == [("active",)]
