"""Ranges that are read a second time: refused ones in halves, replayed ones sealed again, contradicting ones stop the source."""

from __future__ import annotations

from typing import ClassVar

from tests.crash.scene import Scene
from tests.faults.rules import Fault, Rule


class Halved(Scene):
    """The node finds a window too large now and then."""

    aims: ClassVar[tuple[str, ...]] = ("window_commit",)

    def weather(self) -> None:
        if self.left():
            self.ground.mine(4)
            self.ground.gateway.clear()
            self.ground.gateway.add(
                Rule(Fault.ERROR, "eth_getLogs", times=1, options={"code": -32005, "message": "too many results"})
            )
        else:
            self.ground.gateway.clear()
            self.ground.pass_time()


class Replayed(Scene):
    """The seal stands below events that are stored already, as after a restore of an older row: they are found to be the same."""

    aims: ClassVar[tuple[str, ...]] = ("seal_replayed_commit",)
    tampered = False

    def weather(self) -> None:
        super().weather()
        if self.left() and self.ground.statuses() == {"completed": self.count} and not self.tampered:
            self.lower()

    def lower(self) -> None:
        """Put the seal before the last event."""
        block = self.ground.value("SELECT max(position) >> 20 FROM envelope_meta WHERE source_id = 1")
        self.ground.conn.execute(
            "UPDATE chain_cursor SET block = %s, head_hash = NULL WHERE block >= %s", (block - 1, block)
        )

    def over(self) -> bool:
        block = self.ground.value("SELECT max(position) >> 20 FROM envelope_meta WHERE source_id = 1")
        return super().over() and not self.left() and self.ground.value("SELECT block FROM chain_cursor") >= block


class Contradicted(Replayed):
    """The stored event is not the one that the chain shows: both digests are recorded and the source stops."""

    aims: ClassVar[tuple[str, ...]] = ("conflict_commit",)

    def lower(self) -> None:
        self.tampered = True
        self.ground.conn.execute(
            "UPDATE envelope_meta SET digest = %s WHERE position = (SELECT max(position) FROM envelope_meta WHERE source_id = 1)",
            (b"\x01" * 32,),
        )
        super().lower()

    def over(self) -> bool:
        return bool(self.ground.value("SELECT halted FROM envelope_source"))

    def check(self) -> None:
        super().check()
        assert self.ground.value("SELECT count(*) FROM envelope_conflict") == 1
