"""A nonce that somebody else has used with our key: proven dead by two endpoints, decided by two persons, sent anew or attached."""

from __future__ import annotations

from typing import ClassVar
from uuid import uuid4

from requests_app import decisions
from requests_app.models.reviews import ReviewAction
from requests_app.signer_control import SignerDeed, tell_signer
from tests.crash.people import persons
from tests.crash.scene import Scene
from workers.chain.signer import LocalSigner
from workers.shift import ShiftContext


class Foreign(Scene):
    """Buried, blocked, resumed, sent again under a new nonce: one request event."""

    aims: ClassVar[tuple[str, ...]] = (
        "absence_rpc",
        "note_missing_commit",
        "bury_slots_commit",
        "decide_commit",
        "approve_commit",
        "order_commit",
    )
    also: ClassVar[tuple[str, ...]] = ("commands_commit",)
    count = 1
    endpoints = 2
    constants: ClassVar = {
        "workers.verdicts.MISSING_SECONDS": 0.2,
        "workers.receipts.LOOK_AFTER_SECONDS": 0.05,
        "workers.receipts.LONGEST_LOOK_SECONDS": 0.1,
    }
    action = ReviewAction.RESEND
    _used = ""

    def prepare(self) -> None:
        super().prepare()
        self.people = persons("ann", "ben")
        for gate in self.ground.gateways:
            gate.lose_sends = True

    def weather(self) -> None:
        super().weather()
        if not self._used and self.ground.statuses() == {"tx_in_flight": 1}:
            nonce = self.ground.value("SELECT nonce FROM nonce_slot")
            signer = LocalSigner(self.ground.signer_key, int(self.ground.deployment.gateway["chain_id"]))
            to, data, gas = self.elsewhere()
            raw, tx_hash = signer.sign(nonce, to, data, gas, 90 * 10**9, 10**9)
            self.ground.rpc.call("eth_sendRawTransaction", "0x" + raw.hex())
            self._used = "0x" + tx_hash.hex()
            self.ground.note("used").write_text(self._used)
        if self.ground.value("SELECT count(*) FROM nonce_slot WHERE state = 'dead'"):
            for gate in self.ground.gateways:
                gate.lose_sends = False

    def elsewhere(self) -> tuple[bytes, bytes, int]:
        """What the key was used for: contract, calldata, gas."""
        return self.ground.signer, b"", 21_000

    def act(self, context: ShiftContext) -> None:
        super().act(context)
        if not context.conn.execute("SELECT 1 FROM nonce_slot WHERE state = 'dead'").fetchone():
            return
        row = context.conn.execute(
            "SELECT c.id, c.version, d.id, d.state FROM review_case c"
            " LEFT JOIN review_decision d ON d.case_id = c.id AND d.state <> 'withdrawn' WHERE c.status = 'open'"
        ).fetchone()
        if row is not None and row[2] is None:
            self.decide(context, row[0], row[1])
        elif row is not None and row[3] == "awaiting_second":
            self.second(context, row[2])
        blocked = context.conn.execute("SELECT id FROM signer WHERE status = 'blocked'").fetchone()
        if row is None and blocked is not None:
            # A number of its own for each form: the same block may come back while the stranger's count is news to somebody.
            tell_signer(
                context.conn, signer_id=blocked[0], deed=SignerDeed.RESUME, token=uuid4(), reason="looked", reviewer_id=self.people[0]
            )  # fmt: skip

    def decide(self, context: ShiftContext, case: int, version: int) -> None:
        """The first person's word."""
        decisions.decide(
            context.conn,
            case_id=case,
            version=version,
            action=self.action,
            reason="because",
            reviewer_id=self.people[0],
        )

    def second(self, context: ShiftContext, decision: int) -> None:
        """The second person's word."""
        decisions.approve(context.conn, decision_id=decision, reviewer_id=self.people[1])


class TakenBack(Foreign):
    """The proposer takes the proposal back before the second person has seen it, and makes another."""

    aims: ClassVar[tuple[str, ...]] = ("withdraw_commit",)
    also: ClassVar[tuple[str, ...]] = ()

    def second(self, context: ShiftContext, decision: int) -> None:
        taken_back = "SELECT count(*) FROM review_decision WHERE state = 'withdrawn'"
        if context.conn.execute(taken_back).fetchone() != (2,):
            decisions.withdraw(
                context.conn, decision_id=decision, reviewer_id=self.people[0], reason="too early", second=False
            )
        else:
            super().second(context, decision)

    def check(self) -> None:
        super().check()
        states = [row[0] for row in self.ground.rows("SELECT state FROM review_decision ORDER BY seq")]
        assert states == ["withdrawn", "withdrawn", "done"]
