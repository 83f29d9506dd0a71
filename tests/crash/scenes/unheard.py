"""What the listener does not hear is found by receipts; a block that is not the chain's any more opens its slots again."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from tests.crash.scene import Scene
from tests.faults.rules import Fault, Rule
from workers.shift import ShiftContext

LOOKS = {"workers.receipts.LOOK_AFTER_SECONDS": 0.05, "workers.receipts.LONGEST_LOOK_SECONDS": 0.1}


class Unheard(Scene):
    """eth_getLogs fails until the receipts have been found."""

    aims: ClassVar[tuple[str, ...]] = (
        "refresh_count_rpc",
        "receipts_rpc",
        "record_lookups_commit",
        "record_receipts_commit",
    )
    constants = LOOKS

    def prepare(self) -> None:
        super().prepare()
        self.ground.gateway.add(Rule(Fault.ERROR, "eth_getLogs"))

    def weather(self) -> None:
        super().weather()
        if not self.left() or self.ground.mined() == self.count:
            self.ground.gateway.clear()


class Reopened(Scene):
    """A receipt's block turns out to be another one when it is to be final."""

    aims: ClassVar[tuple[str, ...]] = (
        "reopen_slots_commit",
        "final_blocks_rpc",
        "finalize_slots_commit",
        "close_slots_commit",
        "finalized_nonce_rpc",
    )
    constants = LOOKS

    @property
    def _believed(self) -> Path:
        """There when blocks are what receipts say."""
        return self.ground.note("believed")

    def weather(self) -> None:
        super().weather()
        if not self.left("reopen_slots_commit"):
            self._believed.touch()

    def act(self, context: ShiftContext) -> None:
        # In the process, whose next turn may make final what its last one has found mined: from outside that may be seen too late.
        super().act(context)
        if not self._believed.exists():
            self.ground.change("tx_attempt", "block_hash = decode(repeat('01', 32), 'hex')", "state = 'mined'")
