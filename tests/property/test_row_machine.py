"""I3, I4 and I5 as a machine: requests go through every door that changes them, with owners that come, go and come too late.

Real services, queue, sending, answers, deadlines and commands over the real database. Time is let pass by moving the rows' deadlines
into the past. After every step: no row waits without somebody or something that will move it, final rows are as they were, and
what was written under an old epoch changed nothing.
"""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from requests_app import services
from requests_app.errors import StaleEpoch
from requests_app.models.commands import CommandKind
from requests_app.models.reviews import ReasonCode
from requests_app.models.signing import AttemptState
from requests_app.services import Submission
from requests_app.states import FINAL, REQUEST_KINDS, Kind, Status, Verb
from requests_app.store import attempts, commands
from requests_app.store.commands import SINGLETON, NewCommand
from requests_app.store.queue import READY, SEND, Subject
from requests_app.store.signing import Fence
from requests_app.transitions import answers, sending
from requests_app.transitions.answers import Facts, ProofAnswer, PublicAnswer, RequestSeen, Share
from requests_app.transitions.sending import Held, Refusal
from tests.core.rows import insert_account, read_request
from tests.send.scenes import PRICE, add_signer, body, expire_leases, fake_sign, hold, leased, wanted
from workers import commands as consumer
from workers.chain.rpc_errors import Ok
from workers.duties import deadlines

Connection = psycopg.Connection[Any]
TABLES = (
    "queue_job", "command", "review_decision", "review_case", "req_transition", "tx_attempt", "nonce_slot", "signer",
    "user_decrypt_share", "gateway_ref", "request_client", "request_payload", "exec_lease", *(kind.table for kind in REQUEST_KINDS),
)  # fmt: skip
RESOURCE = "signer:654321:0xaa"


class Silent:
    """A gateway that has mined nothing and answered nothing."""

    def receipts(self, hashes: list[bytes]) -> list[Any]:
        return [Ok(None)] * len(hashes)

    def is_decryption_done(self, refs: list[bytes]) -> list[Any]:
        return [Ok(False)] * len(refs)

    is_proof_verified = is_proof_rejected = is_decryption_done


class RowMachine(RuleBasedStateMachine):
    """Steps of clients, workers, the chain, the sweep and operators."""

    conn: Connection

    @initialize()
    def begin(self) -> None:
        for table in TABLES:
            self.conn.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
            self.conn.execute(f"DELETE FROM {table}")
            self.conn.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")
        self.account = insert_account(self.conn)
        self.epoch = 1
        self.fence = hold(self.conn, RESOURCE, epoch=1)
        hold(self.conn, SINGLETON)
        hold(self.conn, "singleton:deadlines")
        self.signer = add_signer(self.conn, self.fence)
        self.rows: list[tuple[Kind, int]] = []
        self.views: list[Any] = []
        self.final: dict[tuple[Kind, int], Any] = {}
        self.serial = 0

    @rule(kind=st.sampled_from(list(REQUEST_KINDS)))
    def submit(self, kind: Kind) -> None:
        form = "user_decrypt" if kind is Kind.USER_DECRYPT else None
        done = services.submit(
            self.conn,
            Submission(kind, form, os.urandom(32), body(kind)),
            client_id=self.account,  # type: ignore[arg-type]
        )
        assert done.request_id is not None
        self.rows.append((kind, done.request_id))
        self.views.append(done.ext_job_id)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if self.views:
            services.cancel(self.conn, client_id=self.account, ext_job_id=data.draw(st.sampled_from(self.views)))

    @rule(crash=st.booleans(), deny=st.booleans())
    def readiness(self, crash: bool, deny: bool) -> None:
        expire_leases(self.conn)
        held = [Held(one.subject, one.receipt) for one in leased(self.conn, READY, 3)]
        if crash:
            return
        if deny:
            sending.end_unsent(self.conn, Verb.DENY, [Refusal(one, "not_allowed_on_host_acl", "no") for one in held])
        else:
            sending.admit(self.conn, held)

    @rule(crash=st.booleans(), stale=st.booleans(), outcome=st.sampled_from(["accepted", "unknown", "refused"]))
    def send(self, crash: bool, stale: bool, outcome: str) -> None:
        expire_leases(self.conn)
        fence = self.fence._replace(epoch=self.epoch - 1) if stale else self.fence
        before = self._everything() if stale else None
        deliveries = [one for one in leased(self.conn, SEND, 3) if one.status is Status.PROCESSING and not one.has_slot]
        prepared = sending.prepare_send(self.conn, fence, self.signer.id, wanted(deliveries), PRICE, fake_sign)
        if stale:
            assert prepared == []
            assert self._everything() == before  # I5
            return
        if crash:
            return
        told = [
            attempts.SendOutcome(one.nonce, 1, AttemptState(outcome), outcome != "refused", None, None)
            for one in prepared
        ]
        attempts.record_sends(self.conn, self.signer.id, told, [one.held.receipt for one in prepared])
        if outcome == "refused":
            evidence: dict[Any, Any] = {one.held.subject: {} for one in prepared}
            sending.park(self.conn, fence, ReasonCode.REFUSED_AFTER_SIGNING, evidence, "refused")

    @rule()
    def take_over(self) -> None:
        self.epoch += 1
        self.fence = hold(self.conn, RESOURCE, instance=f"holder {self.epoch}", epoch=self.epoch)

    @rule(data=st.data())
    def park_too_late(self, data: st.DataObject) -> None:
        """I5: a former holder decides."""
        if self.rows:
            kind, row_id = data.draw(st.sampled_from(self.rows))
            before = self._everything()
            old = Fence(RESOURCE, "former", self.epoch - 1)
            with pytest.raises(StaleEpoch):
                sending.park(self.conn, old, ReasonCode.OUTCOME_UNKNOWN, {Subject(kind, row_id): {}}, "late")
            assert self._everything() == before

    @rule(data=st.data(), answer=st.booleans(), twice=st.booleans())
    def chain_shows(self, data: st.DataObject, answer: bool, twice: bool) -> None:
        """The request event of an attempt, perhaps with its answer, perhaps delivered again."""
        found = self.conn.execute(
            "SELECT n.kind, n.subject_id, t.tx_hash FROM tx_attempt t JOIN nonce_slot n USING (signer_id, nonce) ORDER BY t.id"
        ).fetchall()
        if not found:
            return
        number, row_id, tx_hash = data.draw(st.sampled_from(found))
        kind, ref = Kind(number), bytes([number]) + bytes(23) + row_id.to_bytes(8, "big")
        facts = Facts(requests=[RequestSeen(ref, kind, bytes(tx_hash), 5, b"b" * 32)])
        if answer and kind is Kind.USER_DECRYPT:
            facts.shares = [Share(ref, n, b"s", b"s", b"", b"t" * 32, 6 << 20 | n, 2) for n in range(2)]
        elif answer and kind is Kind.PUBLIC_DECRYPT:
            facts.public = [PublicAnswer(ref, "{}", b"t" * 32)]
        elif answer:
            facts.proofs = [ProofAnswer(ref, None, b"t" * 32, "Proof Rejected")]
        for _ in range(2 if twice else 1):
            with self.conn.transaction():
                answers.advance(self.conn, facts, answers.absorb(self.conn, facts))

    @rule()
    def deadlines_pass(self) -> None:
        """I3: everything that waits on a clock is late; the sweep comes round (twice, as a second late round changes nothing)."""
        for kind in REQUEST_KINDS:
            self.conn.execute(
                f"UPDATE {kind.table} SET deadline_at = clock_timestamp() - interval '1 hour', "
                "state_entered_at = state_entered_at - interval '2 days' "
                "WHERE deadline_at IS NOT NULL AND status IN ('queued', 'processing', 'tx_in_flight', 'receipt_received')"
            )
        clients = SimpleNamespace(gateway=Silent())
        context: Any = SimpleNamespace(conn=self.conn, clients=clients, stopping=lambda: False)
        lease: Any = SimpleNamespace(resource="singleton:deadlines", instance="one", epoch=1)
        deadlines.run(context, lease)
        late = [self._row(*one).status for one in self.rows if self._row(*one).deadline_at is not None]
        assert late == []

    @rule(data=st.data(), action=st.sampled_from(["fail", "resume", "resend"]), expected=st.booleans())
    def operator(self, data: st.DataObject, action: str, expected: bool) -> None:
        if not self.rows:
            return
        kind, row_id = data.draw(st.sampled_from(self.rows))
        self.serial += 1
        status = Status.NEEDS_REVIEW if expected else Status(self._row(kind, row_id).status)
        command = NewCommand(
            f"c{self.serial}", CommandKind.HITL, kind, row_id, SINGLETON, "ann", {"action": action}, status
        )
        commands.enqueue(self.conn, command)
        context: Any = SimpleNamespace(conn=self.conn, stopping=lambda: False)
        assert consumer.serve(context, Fence(SINGLETON, "one", 1), None) == 1

    @invariant()
    def everything_has_an_owner_and_final_rows_rest(self) -> None:
        if not hasattr(self, "rows"):
            return
        for kind, row_id in self.rows:
            row = self._row(kind, row_id)
            if Status(row.status) in FINAL:
                assert self.final.setdefault((kind, row_id), row) == row  # I4
                assert self._count("review_case", kind, row_id, "AND status = 'open'") == 0
                continue
            assert (kind, row_id) not in self.final
            jobs = self.conn.execute(
                "SELECT count(*) FROM queue_job WHERE kind = %s AND subject_id = %s", (kind, row_id)
            )
            job = jobs.fetchone()[0]
            slot = self._count("nonce_slot", kind, row_id, "AND state <> 'dead'")
            case = self._count("review_case", kind, row_id, "AND status = 'open'")
            owned = {
                Status.QUEUED: job, Status.PROCESSING: job, Status.TX_IN_FLIGHT: slot,
                Status.RECEIPT_RECEIVED: 1, Status.NEEDS_REVIEW: case,
            }[Status(row.status)]  # fmt: skip
            assert owned >= 1, (kind, row.status)
            assert (row.deadline_at is None) == (row.status == Status.NEEDS_REVIEW)
            assert slot <= 1

    def _count(self, table: str, kind: Kind, row_id: int, more: str) -> int:
        statement = f"SELECT count(*) FROM {table} WHERE kind = %s AND subject_id = %s {more}"
        return int(self.conn.execute(statement, (kind.value, row_id)).fetchone()[0])

    def _row(self, kind: Kind, row_id: int) -> Any:
        return read_request(self.conn, kind, row_id)

    def _everything(self) -> list[Any]:
        rows = [self._row(*one) for one in self.rows]
        slots = self.conn.execute("SELECT * FROM nonce_slot ORDER BY signer_id, nonce").fetchall()
        signer = self.conn.execute("SELECT next_nonce FROM signer ORDER BY id").fetchall()
        return [rows, slots, signer, self.conn.execute("SELECT count(*) FROM tx_attempt").fetchall()]


def live(conn: Connection, examples: int, steps: int) -> None:
    machine = type("Machine", (RowMachine,), {"conn": conn})
    limits = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=limits)


def test_rows_always_have_an_owner_and_rest_when_they_are_final(conn: Connection) -> None:
    live(conn, 12, 25)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_rows_always_have_an_owner_for_long(conn: Connection) -> None:
    live(conn, 150, 60)
