"""A transaction that carries the request although we never stored it: a reviewer names it, and its answer is taken from the log."""

from __future__ import annotations

from typing import ClassVar

from requests_app import decisions
from requests_app.models.reviews import ReviewAction
from tests.crash.scenes.foreign import Foreign
from workers.shift import ShiftContext


class Attached(Foreign):
    """Our key, our nonce, our calldata, other fees: one request event, and the row is bound to it."""

    aims: ClassVar[tuple[str, ...]] = ("attach_rpc", "attach_commit")
    also: ClassVar[tuple[str, ...]] = ("decide_commit",)
    action = ReviewAction.ATTACH

    def elsewhere(self) -> tuple[bytes, bytes, int]:
        call = self.ground.devnet.call_of(self.submissions[0])
        assert call.to is not None
        return bytes.fromhex(call.to[2:]), call.data, call.gas

    def decide(self, context: ShiftContext, case: int, version: int) -> None:
        decisions.decide(
            context.conn, case_id=case, version=version, action=self.action, reason="it is there", reviewer_id=self.people[0],
            parameters={"tx_hash": self.ground.note("used").read_text()},
        )  # fmt: skip

    def over(self) -> bool:
        blocked = self.ground.value("SELECT count(*) FROM signer WHERE status = 'blocked'")  # it is resumed in any case
        return self.ground.statuses() == {"completed": 1} and not blocked and not self.left("order_commit")
