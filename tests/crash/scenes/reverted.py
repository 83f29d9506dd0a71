"""Transactions that are mined with status 0: the contract is paused after the estimate."""

from __future__ import annotations

from typing import ClassVar

from requests_app.states import Kind
from tests.crash.scene import Scene


class Reverted(Scene):
    """The bytes reach the node only when the contract is paused; each request fails once, with the contract's reason."""

    aims: ClassVar[tuple[str, ...]] = ("depth_rpc", "replay_rpc", "revert_commit")
    constants: ClassVar = {"workers.receipts.LOOK_AFTER_SECONDS": 0.05, "workers.receipts.LONGEST_LOOK_SECONDS": 0.1}
    _paused = False

    @property
    def _contract(self) -> tuple[str, str]:
        proofs = self.kind is Kind.INPUT_PROOF
        return ("InputVerification", "input_verification") if proofs else ("Decryption", "decryption")

    def prepare(self) -> None:
        super().prepare()
        self.ground.gateway.lose_sends = True

    def weather(self) -> None:
        super().weather()
        if not self._paused:
            if self.ground.statuses().get("tx_in_flight") == self.count:
                self.ground.devnet.as_owner(*self._contract, "pause")
                self._paused = True
                self.ground.gateway.lose_sends = False
        elif self.ground.statuses().get("tx_in_flight"):
            self.ground.age_attempts(1.0)

    def check(self) -> None:
        assert self.ground.statuses() == {"failure": self.count}
        assert self.ground.rows(f"SELECT DISTINCT fail_label FROM {self.kind.table}") == [("protocol_paused",)]

    def restore(self) -> None:
        if self._paused:
            self.ground.devnet.as_owner(*self._contract, "unpause")
