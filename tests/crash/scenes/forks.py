"""Blocks that give way: requests are taken back and sent again, final rows looked after, a source too deep in trouble stopped."""

from __future__ import annotations

from typing import ClassVar

from tests.crash.scene import Scene
from workers import verdicts
from workers.devnet.control import Behaviour, write
from workers.duties import reorgs
from workers.shift import ShiftContext, Turn
from workers.sweep import DutyTurn
from workers.verdicts import FINALIZE_LIMIT

SILENT = {kind: Behaviour(answer=False) for kind in ("user", "public", "input")}


class Forked(Scene):
    """The blocks of the requests give way, as often as it takes; the same bytes are mined again and answered once."""

    aims: ClassVar[tuple[str, ...]] = ("headers_rpc", "witness_rpc", "reorg_commit")
    _depth_at = 0

    def prepare(self) -> None:
        super().prepare()
        write(self.ground.devnet.layout.control, **SILENT)

    def act(self, context: ShiftContext) -> None:
        # No slot is final while it lasts: the node calls blocks so after half a second, and takes them back all the same, as no chain does.
        lasting = self.ground.devnet.layout.control.exists()
        setattr(verdicts, "FINALIZE_LIMIT", 0 if lasting else FINALIZE_LIMIT)  # noqa: B010 - Final to everybody else
        super().act(context)

    def weather(self) -> None:
        # At the chain's own pace: a reorganisation may reach 64 blocks back.
        undone = self.ground.value("SELECT count(*) FROM chain_reorg") or 0
        if self.ground.statuses() == {"receipt_received": self.count} and undone >= self._depth_at:
            if self.left() or undone == 0:
                first = self.ground.value(f"SELECT min(receipt_block) FROM {self.kind.table}")
                self.ground.fork(first, without_ours=True)
                self._depth_at = undone + 1
            else:
                self.restore()
        self.ground.age_attempts(0.5)

    def restore(self) -> None:
        self.ground.devnet.layout.control.unlink(missing_ok=True)


class Vanished(Scene):
    """Final rows whose blocks gave way to others with the same transactions: judged when the chain is deep enough, once."""

    aims: ClassVar[tuple[str, ...]] = ("judge_evidence_commit",)
    constants: ClassVar = {"workers.duties.reorgs.INTERVAL": 0.1}
    _forked = False

    def turns(self) -> list[Turn]:
        return [*super().turns(), DutyTurn("reorgs", reorgs.INTERVAL, reorgs.run)]

    def weather(self) -> None:
        if self.ground.statuses() == {"completed": self.count}:
            if not self._forked:
                self._forked = True
                first = self.ground.value(f"SELECT min(receipt_block) FROM {self.kind.table}")
                self.ground.fork(first)
            elif self.ground.value("SELECT count(*) FROM reorg_evidence WHERE verdict IS NULL"):
                self.ground.pass_time(blocks=8)

    def over(self) -> bool:
        judged = self.ground.value("SELECT count(*) FROM reorg_evidence WHERE verdict IS NOT NULL")
        waiting = self.ground.value("SELECT count(*) FROM reorg_evidence WHERE verdict IS NULL")
        return bool(judged) and not waiting

    def check(self) -> None:
        super().check()
        assert self.ground.rows("SELECT DISTINCT verdict FROM reorg_evidence") == [("returned",)]
        assert self.ground.value("SELECT count(*) FROM review_case") == 0


class Halted(Scene):
    """A reorganisation that is deeper than allowed stops the source, with its reason, and changes nothing else."""

    aims: ClassVar[tuple[str, ...]] = ("halt_commit",)
    _mined_to = 0
    _forked = False

    def weather(self) -> None:
        if self.ground.statuses() != {"completed": self.count}:
            self.ground.pass_time()
        elif not self._mined_to:
            self.ground.mine(80)
            self._mined_to = self.ground.rpc.head()
        elif not self._forked and self.ground.value("SELECT block FROM chain_cursor") >= self._mined_to:
            self.ground.fork(self._mined_to - 74)
            self._forked = True

    def over(self) -> bool:
        return bool(self.ground.value("SELECT halted FROM envelope_source"))

    def check(self) -> None:
        super().check()
        assert "deeper than" in self.ground.value("SELECT halted FROM envelope_source")
        assert self.ground.rows("SELECT kind, reason_code, status FROM review_case") == [(101, "deep_reorg", "open")]
        assert self.ground.value("SELECT count(*) FROM chain_reorg") == 0
