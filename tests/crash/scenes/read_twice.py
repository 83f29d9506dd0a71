"""Ranges that are read a second time: refused ones in halves, replayed ones sealed again, contradicting ones stop the source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar
from uuid import uuid4

from requests_app.source_control import lift_halt, take_chain
from tests.crash.people import persons
from tests.crash.scene import Scene, duty_turns
from tests.faults.rules import Fault, Rule
from workers.shift import ShiftContext, Turn


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
        return not self.left() and self.read_to_the_end()

    def read_to_the_end(self) -> bool:
        """Whether every request has ended and the seal is back above the last event."""
        block = self.ground.value("SELECT max(position) >> 20 FROM envelope_meta WHERE source_id = 1")
        return Scene.over(self) and self.ground.value("SELECT block FROM chain_cursor") >= block


class Contradicted(Replayed):
    """The stored event is not the one that the chain shows: both digests are recorded, the source stops, a person is told."""

    aims: ClassVar[tuple[str, ...]] = ("conflict_commit", "review_conflicts_commit")

    def lower(self) -> None:
        self.tampered = True
        self.ground.conn.execute(
            "UPDATE envelope_meta SET digest = %s WHERE position = (SELECT max(position) FROM envelope_meta WHERE source_id = 1)",
            (b"\x01" * 32,),
        )
        super().lower()

    def turns(self) -> Sequence[Turn]:
        return [*super().turns(), *duty_turns("conflicts")]

    def over(self) -> bool:
        reviewed = self.ground.value("SELECT count(*) FROM envelope_conflict WHERE reviewed_at IS NOT NULL")
        return bool(reviewed) and bool(self.ground.value("SELECT halted FROM envelope_source"))

    def check(self) -> None:
        super().check()
        assert self.ground.value("SELECT count(*) FROM envelope_conflict") == 1
        assert self.ground.rows("SELECT DISTINCT reason_code FROM review_case") == [("envelope_conflict",)]


class Lifted(Contradicted):
    """A person finds out which event is true and lifts the halt: the log goes on where it stood."""

    aims: ClassVar[tuple[str, ...]] = ("order_commit",)

    def prepare(self) -> None:
        super().prepare()
        self.people = persons("ann")

    def act(self, context: ShiftContext) -> None:
        super().act(context)
        if context.conn.execute("SELECT 1 FROM envelope_conflict WHERE reviewed_at IS NOT NULL").fetchone() is None:
            return
        context.conn.execute(
            "UPDATE envelope_meta m SET digest = sha256(m.block_hash || m.tx_hash || b.payload) FROM envelope_blob b"
            " WHERE b.source_id = m.source_id AND b.position = m.position AND m.digest = %s",
            (b"\x01" * 32,),
        )
        lift_halt(context.conn, source_id=1, token=uuid4(), reason="looked", reviewer_id=self.people[0])

    def over(self) -> bool:
        return Replayed.over(self) and not self.ground.value("SELECT halted FROM envelope_source")


class TakenFromTheChain(Contradicted):
    """The stored event is the false one: a person takes the chain's version, which is read anew; what has ended stays."""

    aims: ClassVar[tuple[str, ...]] = ("take_chain_commit",)

    def prepare(self) -> None:
        super().prepare()
        self.people = persons("ann")

    def act(self, context: ShiftContext) -> None:
        super().act(context)
        case = context.conn.execute("SELECT evidence FROM review_case WHERE kind = 101 AND status = 'open'").fetchone()
        commanded = context.conn.execute("SELECT 1 FROM command WHERE state <> 'consumed'").fetchone()
        if case is not None and commanded is None:
            take_chain(
                context.conn,
                source_id=1,
                block=case[0]["block"],
                token=uuid4(),
                reason="looked",
                reviewer_id=self.people[0],
            )

    def over(self) -> bool:
        # Without asking what is left: a former holder may have carried the order out, and there is one a play.
        return self.tampered and self.read_to_the_end() and not self.ground.value("SELECT halted FROM envelope_source")

    def check(self) -> None:
        super().check()
        assert self.ground.rows("SELECT outcome FROM command") == [("applied",)]
        assert self.ground.rows("SELECT outcome FROM review_case WHERE kind = 101") == [("take_chain",)]
        assert self.ground.value("SELECT count(*) FROM envelope_orphan WHERE digest = %s", (b"\x01" * 32,)) == 1
        assert self.ground.value("SELECT count(*) FROM envelope_meta WHERE digest = %s", (b"\x01" * 32,)) == 0
