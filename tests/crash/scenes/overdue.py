"""Deadlines: what never went anywhere ends; what the chain knows more about is read again from the chain."""

from __future__ import annotations

from typing import ClassVar

from tests.crash.scene import Deeds, Scene
from workers.duties import deadlines
from workers.shift import Turn
from workers.sweep import DutyTurn


class Overdue(Scene):
    """Nobody works on the requests: they end at their deadline, once."""

    aims: ClassVar[tuple[str, ...]] = ("overdue_commit",)
    constants: ClassVar = {"workers.duties.deadlines.INTERVAL": 0.1}

    def turns(self) -> list[Turn]:
        return [Deeds(self), DutyTurn("deadlines", deadlines.INTERVAL, deadlines.run)]

    def weather(self) -> None:
        early = "status IN ('queued', 'processing') AND deadline_at > clock_timestamp()"
        self.ground.make_overdue(self.kind, early, late="2 minutes")

    def check(self) -> None:
        found = self.ground.statuses()
        assert found in ({"timed_out": self.count}, {"failure": self.count})
        assert (
            self.ground.value("SELECT count(*) FROM req_transition WHERE verb IN ('expire_readiness', 'abandon')")
            == self.count
        )


class Withheld(Scene):
    """The node withholds every event from the listener; the deadline duty finds them by receipt and by reference."""

    aims: ClassVar[tuple[str, ...]] = (
        "overdue_receipts_rpc", "overdue_answers_rpc", "read_again_rpc", "range_rpc", "insert_below_seal_commit", "apply_now_commit",
        "extend_deadlines_commit",
    )  # fmt: skip
    constants: ClassVar = {"workers.duties.deadlines.INTERVAL": 0.1}

    def prepare(self) -> None:
        super().prepare()
        self.ground.gateway.withhold_logs = True

    def turns(self) -> list[Turn]:
        return [*super().turns(), DutyTurn("deadlines", deadlines.INTERVAL, deadlines.run)]

    def weather(self) -> None:
        super().weather()
        # Only what the chain shows already: before that the duty would rightly give the row to a person.
        head = self.ground.value("SELECT block FROM chain_cursor")
        for one in self.mined(head or 0):
            self.ground.make_overdue(self.kind, "status = 'tx_in_flight' AND gw_req_tx_hash = %s", (one,))
        if self.answered():
            self.ground.make_overdue(self.kind, "status = 'receipt_received'")

    def mined(self, sealed: int) -> list[bytes]:
        """The transactions of ours in blocks that the listener has passed."""
        hashes = [row[0] for row in self.ground.rows("SELECT tx_hash FROM tx_attempt")]
        found = self.ground.rpc.batch([("eth_getTransactionReceipt", ["0x" + bytes(one).hex()]) for one in hashes])
        return [
            one
            for one, receipt in zip(hashes, found, strict=True)
            if receipt and int(receipt["blockNumber"], 16) <= sealed
        ]

    def answered(self) -> bool:
        """Whether the gateway has answered every request, in blocks that the listener has passed."""
        refs = [
            row[0]
            for row in self.ground.rows(
                f"SELECT gw_reference_id FROM {self.kind.table} WHERE gw_reference_id IS NOT NULL"
            )
        ]
        sealed = self.ground.value("SELECT block FROM chain_cursor")
        return bool(refs) and all(self.ground.answered(self.kind, bytes(ref), sealed or 0) for ref in refs)
