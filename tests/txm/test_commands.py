"""The command box, line by line of design 5.5.5, and what reviewers decide through it."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest
from django.contrib.auth import get_user_model

from requests_app import decisions
from requests_app.config import config
from requests_app.decisions import Decided, Held
from requests_app.models.commands import CommandKind, Target
from requests_app.models.reviews import ReasonCode, ReviewAction
from requests_app.models.signing import AttemptKind, SlotState
from requests_app.reviewers import lock_reviewer
from requests_app.states import Actor, Kind, Status
from requests_app.store import commands as store
from requests_app.store.commands import SINGLETON, CommandConflict, NewCommand, Outcome
from requests_app.store.queue import Subject
from requests_app.store.session import connect
from requests_app.store.signing import Fence
from requests_app.transitions import generic
from tests.core.rows import read_request
from tests.send.conftest import KEYS
from tests.send.node import Fault, parse
from tests.send.scenes import add_request, hold
from workers import commands, keyless, replace
from workers.chain.fees import Fees
from workers.commands import CommandTurn
from workers.settle import SettleTurn

FENCE = Fence(SINGLETON, "one", 1)


class Context:
    """What a consumer sees of a process when no chain is involved."""

    def __init__(self, conn: Any) -> None:
        self.conn = conn

    def stopping(self) -> bool:
        return False


def serve(conn: Any, fence: Fence = FENCE) -> int:
    return commands.serve(Context(conn), fence, None)  # type: ignore[arg-type]


def closing(name: str, subject: Subject, **options: Any) -> NewCommand:
    """That a request in review be closed as failed: the effect stays in the database."""
    payload = {"action": ReviewAction.FAIL.value, **options.pop("payload", {})}
    kind = subject.kind.value
    return NewCommand(name, CommandKind.HITL, kind, subject.id, SINGLETON, "operator", payload, **options)


def ended(conn: Any, name: str) -> tuple[Any, ...]:
    return conn.execute("SELECT state, outcome, result FROM command WHERE command_id = %s", (name,)).fetchone()


@pytest.fixture
def box(conn: Any) -> Any:
    hold(conn, SINGLETON)
    return conn


def test_the_same_command_twice_is_one(box: Any) -> None:
    subject = add_request(box, Kind.INPUT_PROOF, Status.NEEDS_REVIEW)
    assert store.enqueue(box, closing("a", subject))
    assert not store.enqueue(box, closing("a", subject))
    assert box.execute("SELECT count(*) FROM command").fetchone() == (1,)
    with pytest.raises(CommandConflict):
        store.enqueue(box, closing("a", subject, payload={"other": 1}))
    with pytest.raises(CommandConflict):
        store.enqueue(box, closing("a", Subject(subject.kind, subject.id + 1)))
    assert serve(box) == 1
    assert not store.enqueue(box, closing("a", subject))  # also after it was consumed
    assert serve(box) == 0


def test_a_consumed_command_cannot_be_changed(box: Any) -> None:
    subject = add_request(box, Kind.INPUT_PROOF, Status.NEEDS_REVIEW)
    store.enqueue(box, closing("a", subject))
    serve(box)
    for statement in ("UPDATE command SET outcome = 'failed'", "DELETE FROM command"):
        with pytest.raises(psycopg.errors.IntegrityConstraintViolation):
            box.execute(statement)


def test_only_the_holder_of_the_resource_sees_its_commands(box: Any) -> None:
    subject = add_request(box, Kind.INPUT_PROOF, Status.NEEDS_REVIEW)
    store.enqueue(box, closing("a", subject))
    assert serve(box, FENCE._replace(epoch=2)) == 0
    assert serve(box, FENCE._replace(instance="other")) == 0
    assert serve(box, Fence("signer:1:0xaa", "one", 1)) == 0
    box.execute("DELETE FROM exec_lease")
    assert serve(box) == 0
    hold(box, SINGLETON)
    assert serve(box) == 1


def test_what_is_no_longer_as_decided_is_superseded(box: Any) -> None:
    subject = add_request(box, Kind.INPUT_PROOF, Status.PROCESSING)
    store.enqueue(box, closing("a", subject, expected_status=Status.NEEDS_REVIEW))
    assert serve(box) == 1
    assert ended(box, "a") == ("consumed", "superseded", {"status": "processing", "expected": "needs_review"})


def test_a_missing_target_and_a_foreign_one_look_alike(box: Any) -> None:
    subject = add_request(box, Kind.INPUT_PROOF, Status.NEEDS_REVIEW)
    store.enqueue(box, closing("missing", Subject(Kind.INPUT_PROOF, subject.id + 999)))
    signer = box.execute(
        "INSERT INTO signer (chain_id, address) VALUES (1, %s) RETURNING id", (b"\x05" * 20,)
    ).fetchone()[0]
    foreign = NewCommand("foreign", CommandKind.PAUSE_SIGNER, Target.SIGNER, signer, SINGLETON, "operator")
    absent = NewCommand("absent", CommandKind.PAUSE_SIGNER, Target.SIGNER, signer + 999, SINGLETON, "operator")
    for command in (foreign, absent):
        store.enqueue(box, command)
    assert serve(box) == 3
    assert ended(box, "foreign") == ended(box, "absent") == ended(box, "missing")
    assert ended(box, "foreign") == ("consumed", "rejected", {"reason": "not found"})
    assert box.execute("SELECT status FROM signer").fetchone() == ("active",)


def test_one_broken_command_holds_nobody_up(box: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    subjects = [add_request(box, Kind.INPUT_PROOF, Status.NEEDS_REVIEW) for _ in range(5)]
    whole = commands.effects.apply

    def breaking(conn: Any, command: Any, epoch: int) -> Any:
        verdict = whole(conn, command, epoch)
        if command.target_id == subjects[2].id:
            raise RuntimeError("boom")
        return verdict

    monkeypatch.setattr(commands.effects, "apply", breaking)
    for subject in subjects:
        store.enqueue(box, closing(str(subject.id), subject))
    assert serve(box) == 5
    outcomes = [ended(box, str(subject.id))[1] for subject in subjects]
    assert outcomes == ["applied", "applied", "failed", "applied", "applied"]
    found = [read_request(box, subject.kind, subject.id).status for subject in subjects]
    assert found == ["failure", "failure", "needs_review", "failure", "failure"]  # nothing of the broken one


def test_two_consumers_apply_a_thousand_commands_once_each(box: Any) -> None:
    """One effect a command: the row of its own that it ends. Both consumers pass the fence, as after a hand-over."""
    count = 1000
    ids = [row[0] for row in box.execute(
        "INSERT INTO public_decrypt_req (ext_job_id, int_job_id, status) "
        "SELECT gen_random_uuid(), decode(md5(g::text) || md5(g::text), 'hex'), 'needs_review' FROM generate_series(1, %s) g RETURNING id",
        (count,),
    )]  # fmt: skip
    with box.transaction():
        for row_id in ids:
            subject = Subject(Kind.PUBLIC_DECRYPT, row_id)
            store.enqueue(box, closing(f"c{row_id}", subject, expected_status=Status.NEEDS_REVIEW))
    handled: list[int] = []

    def consume() -> None:
        with connect("worker") as conn:
            total, idle = 0, 0
            while idle < 3:
                done = serve(conn)
                total, idle = total + done, 0 if done else idle + 1
            handled.append(total)

    threads = [threading.Thread(target=consume) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert sum(handled) == count
    assert box.execute("SELECT outcome, count(*) FROM command GROUP BY 1").fetchall() == [("applied", count)]
    assert box.execute("SELECT count(*), count(DISTINCT request_id) FROM req_transition").fetchone() == (count, count)


def test_kinds_that_are_for_other_targets_change_no_request(box: Any) -> None:
    subject = add_request(box, Kind.INPUT_PROOF, Status.PROCESSING)
    for kind in (CommandKind.CANCEL, CommandKind.REDRIVE, CommandKind.PAUSE_SIGNER):
        store.enqueue(box, NewCommand(kind.value, kind, subject.kind.value, subject.id, SINGLETON, "operator"))
    assert serve(box) == 3
    assert {ended(box, kind)[1] for kind in ("cancel", "redrive", "pause_signer")} == {"rejected"}
    assert read_request(box, subject.kind, subject.id).status == "processing"


@pytest.fixture
def reviewers(conn: Any) -> list[int]:
    return [get_user_model().objects.create_user(name).pk for name in ("ann", "ben")]


def case(conn: Any, subject: Subject) -> tuple[int, int]:
    """The subject in review: its open case's id and version."""
    generic.park(conn, subject.kind, {subject.id: {}}, ReasonCode.OUTCOME_UNKNOWN, Actor.WORKER, detail="?")
    return conn.execute("SELECT id, version FROM review_case WHERE status = 'open' ORDER BY id DESC").fetchone()


def decide(conn: Any, where: tuple[int, int], action: ReviewAction, reviewer: int, **options: Any) -> Any:
    return decisions.decide(
        conn, case_id=where[0], version=where[1], action=action, reason="because", reviewer_id=reviewer, **options
    )


def test_decision_and_command_exist_together_or_not_at_all(box: Any, reviewers: list[int]) -> None:
    subject = add_request(box, Kind.INPUT_PROOF, Status.PROCESSING)
    where = case(box, subject)
    with box.transaction() as transaction:
        assert decide(box, where, ReviewAction.FAIL, reviewers[0]).outcome is Decided.COMMANDED
        transaction.force_rollback = True
    counts = "SELECT (SELECT count(*) FROM review_decision), (SELECT count(*) FROM command), (SELECT max(version) FROM review_case)"
    assert box.execute(counts).fetchone() == (0, 0, 1)
    made = decide(box, where, ReviewAction.FAIL, reviewers[0])
    assert made.command_id == f"review:{where[0]}:1"
    assert box.execute(counts).fetchone() == (1, 1, 2)
    again = decide(box, where, ReviewAction.FAIL, reviewers[1])
    assert (again.outcome, again.by) == (Decided.ALREADY_DECIDED, "ann")
    assert serve(box) == 1
    row = read_request(box, subject.kind, subject.id)
    assert (row.status, row.fail_detail) == ("failure", "because")
    assert box.execute("SELECT status, outcome FROM review_case").fetchone() == ("closed", "reject")
    assert box.execute("SELECT state FROM review_decision").fetchone() == ("done",)


def test_double_clicks_of_two_reviewers_make_one_command(box: Any, reviewers: list[int]) -> None:
    where = case(box, add_request(box, Kind.INPUT_PROOF, Status.PROCESSING))
    outcomes: list[Decided] = []

    def click(reviewer: int) -> None:
        with connect("worker") as conn:
            outcomes.append(decide(conn, where, ReviewAction.FAIL, reviewer).outcome)

    threads = [threading.Thread(target=click, args=(reviewers[n % 2],)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert sorted(outcomes) == [Decided.ALREADY_DECIDED] * 5 + [Decided.COMMANDED]
    assert box.execute("SELECT count(*) FROM command").fetchone() == (1,)


def test_a_reviewer_who_saw_something_else_decides_nothing(box: Any, reviewers: list[int]) -> None:
    subject = add_request(box, Kind.INPUT_PROOF, Status.PROCESSING)
    number, version = case(box, subject)
    assert decide(box, (number, version + 1), ReviewAction.FAIL, reviewers[0]).outcome is Decided.STALE
    assert decide(box, (number + 9, version), ReviewAction.FAIL, reviewers[0]).outcome is Decided.NOT_FOUND
    assert decide(box, (number, version), ReviewAction.ACKNOWLEDGE, reviewers[0]).outcome is Decided.STALE
    with pytest.raises(decisions.ReasonMissing):
        decisions.decide(
            box, case_id=number, version=version, action=ReviewAction.FAIL, reason=" ", reviewer_id=reviewers[0]
        )


def test_a_disabled_reviewer_completes_nothing(box: Any, reviewers: list[int]) -> None:
    """I11: disabled between check and write. The decision that locked the account first goes through, the next one does not."""
    where = case(box, add_request(box, Kind.INPUT_PROOF, Status.PROCESSING))
    box.execute("UPDATE auth_user SET is_active = false WHERE username = 'ann'")
    assert decide(box, where, ReviewAction.FAIL, reviewers[0]).outcome is Decided.FORBIDDEN
    with connect("worker") as other, other.transaction():
        assert lock_reviewer(other, reviewers[1]) == "ben"
        box.execute("SET lock_timeout = '50ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            box.execute("UPDATE auth_user SET is_active = false WHERE username = 'ben'")


def test_a_decision_carries_the_hold_on_its_case(box: Any, reviewers: list[int]) -> None:
    where = case(box, add_request(box, Kind.INPUT_PROOF, Status.PROCESSING))
    hold(box, f"review:{where[0]}", "ann's page", 4)
    lost = decide(box, where, ReviewAction.FAIL, reviewers[0], held=Held("ann's page", 3))
    assert lost.outcome is Decided.LEASE_LOST
    made = decide(box, where, ReviewAction.FAIL, reviewers[0], held=Held("ann's page", 4))
    assert made.outcome is Decided.COMMANDED
    assert box.execute("SELECT epoch FROM command").fetchone() == (4,)


class Sent:
    """A request that was sent by a real settle turn and then parked."""

    def __init__(self, conn: Any, node: Any, context: Any) -> None:
        self.conn, self.node, self.context, self.turn = conn, node, context, SettleTurn()
        self.turn.run(context)
        self.subject = add_request(conn, Kind.INPUT_PROOF, Status.PROCESSING)
        self.run()
        self.case = case(conn, self.subject)

    def run(self) -> int:
        for lane in self.turn._pool._lanes.values():
            lane.maintain_at = lane.send_at = lane.sync_at = lane.commands_at = lane.finalize_at = 0.0
            lane.look_at.clear()
        return self.turn.run(self.context)

    def age(self) -> None:
        self.conn.execute(
            "UPDATE tx_attempt SET first_sent_at = first_sent_at - interval '20 seconds', "
            "last_sent_at = last_sent_at - interval '20 seconds'"
        )

    @property
    def status(self) -> str:
        return str(read_request(self.conn, self.subject.kind, self.subject.id).status)

    def outcome(self) -> tuple[Any, ...]:
        return self.conn.execute("SELECT outcome, result ->> 'reason' FROM command ORDER BY created_at DESC").fetchone()

    def slot(self) -> str:
        return str(self.conn.execute("SELECT state FROM nonce_slot ORDER BY opened_at, nonce").fetchone()[0])


@pytest.fixture
def parked(conn: Any, node: Any, start: Any) -> Sent:
    return Sent(conn, node, start())


def test_resume_broadcasts_the_same_bytes(parked: Sent, reviewers: list[int]) -> None:
    before = set(parked.node.raws)
    parked.node.known.clear()
    made = decide(parked.conn, parked.case, ReviewAction.RESUME, reviewers[0])
    assert made.outcome is Decided.COMMANDED  # one person is enough
    parked.run()
    assert (parked.status, parked.outcome()) == ("tx_in_flight", ("applied", None))
    assert set(parked.node.raws) == before
    assert len(parked.node.known) == 1
    assert parked.conn.execute("SELECT status FROM review_case").fetchone() == ("closed",)


def test_replace_keeps_the_nonce_and_the_reviewers_ceiling(parked: Sent, reviewers: list[int]) -> None:
    decide(parked.conn, parked.case, ReviewAction.REPLACE, reviewers[0], parameters={"ceiling_wei": 5})
    parked.run()
    assert parked.outcome()[0] == "rejected"
    assert parked.status == "needs_review"
    parked.node.known.clear()
    again = parked.case[0], parked.case[1] + 1
    decide(parked.conn, again, ReviewAction.REPLACE, reviewers[0], parameters={"ceiling_wei": 10**12})
    parked.run()
    assert (parked.status, parked.outcome()[0]) == ("tx_in_flight", "applied")
    assert [parse(raw).nonce for raw in set(parked.node.raws)] == [0, 0]
    assert parked.conn.execute("SELECT kind, command_id FROM tx_attempt ORDER BY seq").fetchall() == [
        ("pay", None),
        ("replace", f"review:{parked.case[0]}:2"),
    ]


def test_a_reviewers_ceiling_may_be_above_the_relayers(parked: Sent, reviewers: list[int]) -> None:
    """What the case of a reached ceiling is there for: the chain asks more than the settings allow."""
    parked.node.known.clear()
    ceiling = parked.context.clients.gateway.config.fee_ceiling
    parked.node.base_fee = 2 * ceiling
    parked.context.clients.gateway._fees._until = 0.0
    decide(parked.conn, parked.case, ReviewAction.CANCEL_NONCE, reviewers[0])
    parked.run()
    asked = 2 * ceiling + 10**9
    assert parked.outcome() == ("rejected", f"the chain asks {asked} wei per gas, the ceiling is {ceiling}")
    again = parked.case[0], parked.case[1] + 1
    decide(parked.conn, again, ReviewAction.REPLACE, reviewers[0], parameters={"ceiling_wei": str(3 * ceiling)})
    parked.run()
    assert (parked.status, parked.outcome()[0]) == ("tx_in_flight", "applied")
    (offer,) = parked.conn.execute("SELECT max_fee_per_gas FROM tx_attempt WHERE kind = 'replace'").fetchall()
    assert asked < offer[0] <= 3 * ceiling


def test_a_replacement_that_broke_off_resumes_nothing_when_its_nonce_died_meanwhile(
    parked: Sent, reviewers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signed and sent, then the process ended: before the next one came, a no-op of the ladder took the nonce for ever."""
    conn = parked.conn
    decide(conn, parked.case, ReviewAction.REPLACE, reviewers[0], parameters={"ceiling_wei": 10**12})
    with monkeypatch.context() as patch:
        patch.setattr(commands.effects, "move", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            parked.run()
    assert conn.execute("SELECT count(*) FROM tx_attempt WHERE command_id IS NOT NULL").fetchone() == (1,)
    conn.execute("UPDATE nonce_slot SET state = 'dead'")
    conn.execute("UPDATE tx_attempt SET state = 'replaced'")
    conn.execute("UPDATE command SET claim_until = now()")
    parked.run()
    assert (parked.status, parked.outcome()) == ("needs_review", ("rejected", "its nonce is dead"))


def test_cancel_nonce_ends_the_row_only_when_the_nothing_is_final(parked: Sent, reviewers: list[int]) -> None:
    parked.node.known.clear()
    decide(parked.conn, parked.case, ReviewAction.CANCEL_NONCE, reviewers[0])
    parked.run()
    assert (parked.status, parked.outcome()[0]) == ("needs_review", "applied")
    assert parked.conn.execute("SELECT kind FROM tx_attempt ORDER BY seq").fetchall() == [("pay",), ("cancel",)]
    parked.node.known = {h: tx for h, tx in parked.node.known.items() if not tx.data}
    parked.node.mine()
    parked.age()
    parked.run()
    assert parked.status == "needs_review"
    parked.node.finalize()
    for _ in range(2):
        parked.run()
    assert (parked.status, parked.slot()) == ("failure", "dead")
    assert parked.conn.execute("SELECT status, outcome FROM review_case").fetchone() == ("closed", "reject")


def test_a_cancel_ends_the_row_also_when_another_nothing_is_mined(parked: Sent, reviewers: list[int]) -> None:
    """The system had spent the nonce on nothing already, and its no-op was first: what the person asked for has happened."""
    parked.node.known.clear()
    (lane,) = parked.turn._pool._lanes.values()  # type: ignore[union-attr]
    fees = Fees(3 * 10**9, 2 * 10**9)
    made = replace.noop(lane, 0, 2, fees, 50_000, AttemptKind.CANCEL)
    assert replace.send(parked.context, lane, [made], [parked.subject]) == 1
    decide(parked.conn, parked.case, ReviewAction.CANCEL_NONCE, reviewers[0])
    parked.run()
    kinds = parked.conn.execute("SELECT kind, command_id IS NOT NULL FROM tx_attempt ORDER BY seq").fetchall()
    assert kinds == [("pay", False), ("cancel", False), ("cancel", True)]
    assert list(parked.node.known) == [made.tx_hash]
    parked.node.mine()
    parked.age()
    parked.node.finalize()
    for _ in range(3):
        parked.run()
    assert (parked.status, parked.slot()) == ("failure", "dead")


def test_a_cancel_that_loses_to_the_request_ends_nothing(parked: Sent, reviewers: list[int]) -> None:
    parked.node.on_send = lambda tx: None if tx.data else _raise(Fault("replacement transaction underpriced"))
    decide(parked.conn, parked.case, ReviewAction.CANCEL_NONCE, reviewers[0])
    parked.run()
    parked.node.mine()
    parked.node.finalize()
    parked.age()
    for _ in range(2):
        parked.run()
    assert (parked.status, parked.slot()) == ("needs_review", "final")


def test_a_new_nonce_needs_two_persons_and_a_dead_one(parked: Sent, box: Any, reviewers: list[int]) -> None:
    """G-RESEND. The signer of the dead nonce does not have to be there for it."""
    conn = parked.conn
    first = decide(conn, parked.case, ReviewAction.RESEND, reviewers[0])
    assert (first.outcome, first.command_id) == (Decided.AWAITING_SECOND, None)
    assert conn.execute("SELECT count(*) FROM command").fetchone() == (0,)
    same = decisions.approve(conn, decision_id=first.decision_id, reviewer_id=reviewers[0])
    assert same.outcome is Decided.FORBIDDEN
    with pytest.raises(psycopg.errors.CheckViolation):
        conn.execute("UPDATE review_decision SET second_by = decided_by")
    second = decisions.approve(conn, decision_id=first.decision_id, reviewer_id=reviewers[1])
    assert second.outcome is Decided.COMMANDED
    assert serve(box) == 1
    why = "nonce 0 is live, not proven dead: two transactions for one thing could both be mined"
    assert parked.outcome() == ("rejected", why)
    assert parked.status == "needs_review"
    conn.execute("UPDATE nonce_slot SET state = 'dead'")
    conn.execute("UPDATE tx_attempt SET state = 'dropped'")
    version = conn.execute("SELECT version FROM review_case").fetchone()[0]
    first = decide(conn, (parked.case[0], version), ReviewAction.RESEND, reviewers[1])
    decisions.approve(conn, decision_id=first.decision_id, reviewer_id=reviewers[0])
    assert serve(box) == 1
    parked.node.known.clear()
    parked.node.use_elsewhere(parse(parked.node.raws[0]).sender)
    parked.run()
    parked.run()
    assert (parked.status, parked.outcome()[0]) == ("tx_in_flight", "applied")
    slots = conn.execute("SELECT nonce, state FROM nonce_slot ORDER BY nonce").fetchall()
    assert slots == [(0, "dead"), (1, "live")]


def test_the_second_person_may_refuse(parked: Sent, reviewers: list[int]) -> None:
    first = decide(parked.conn, parked.case, ReviewAction.RESEND, reviewers[0])
    made = decisions.withdraw(
        parked.conn, decision_id=first.decision_id, reviewer_id=reviewers[1], reason="the nonce is live", second=True
    )
    assert made.outcome is Decided.WITHDRAWN
    assert parked.conn.execute(
        "SELECT state, second_by, withdrawn_by, withdrawn_reason FROM review_decision"
    ).fetchone() == ("withdrawn", "ben", "ben", "the nonce is live")
    version = parked.conn.execute("SELECT version FROM review_case").fetchone()[0]
    assert (
        decide(parked.conn, (parked.case[0], version), ReviewAction.RESUME, reviewers[0]).outcome is Decided.COMMANDED
    )


@pytest.mark.parametrize(
    ("state", "outcome"), [("live", "rejected"), ("mined", "rejected"), ("final", "applied"), ("dead", "applied")]
)
def test_fail_is_refused_while_its_nonce_may_bring_something_new(
    parked: Sent, box: Any, reviewers: list[int], state: str, outcome: str
) -> None:
    """A mined transaction may lose its block and be mined again: before it is final the page says so, and the command says the same."""
    parked.conn.execute("UPDATE nonce_slot SET state = %s", (state,))
    first = decide(parked.conn, parked.case, ReviewAction.FAIL, reviewers[0])
    assert first.outcome is Decided.AWAITING_SECOND  # something was signed
    decisions.approve(parked.conn, decision_id=first.decision_id, reviewer_id=reviewers[1])
    assert serve(box) == 1
    assert parked.outcome()[0] == outcome
    assert parked.status == ("failure" if outcome == "applied" else "needs_review")


def test_a_kill_between_claim_and_effect_and_between_effect_and_end(
    parked: Sent, start: Any, reviewers: list[int]
) -> None:
    """The next holder finds the claim expired, and the attempt under the command's id: it broadcasts the same bytes."""
    conn = parked.conn
    parked.node.known.clear()
    decide(conn, parked.case, ReviewAction.CANCEL_NONCE, reviewers[0])
    lane = next(iter(parked.turn._pool._lanes.values()))
    commands._first_step(conn, lane.fence)
    assert ended(conn, f"review:{parked.case[0]}:1")[0] == "claimed"
    parked.run()  # the claim still stands
    assert conn.execute("SELECT count(*) FROM tx_attempt").fetchone() == (1,)
    conn.execute("UPDATE command SET claim_until = clock_timestamp() - interval '1 second'")
    command = commands._first_step(conn, lane.fence)[1][0]
    commands._send(parked.context, lane, command)  # and dies before the end is written
    conn.execute("UPDATE command SET claim_until = clock_timestamp() - interval '1 second'")
    parked.run()
    assert parked.outcome()[0] == "applied"
    attempts = conn.execute("SELECT kind FROM tx_attempt ORDER BY seq").fetchall()
    assert attempts == [("pay",), ("cancel",)]
    cancels = [raw for raw in parked.node.raws if not parse(raw).data]
    assert len(set(cancels)) == 1


def test_pause_and_resume_a_signer(parked: Sent) -> None:
    conn = parked.conn
    lane = next(iter(parked.turn._pool._lanes.values()))
    pause = NewCommand("p", CommandKind.PAUSE_SIGNER, Target.SIGNER, lane.id, lane.held.resource, "ann")
    store.enqueue(conn, pause)
    parked.run()
    assert conn.execute("SELECT status, status_reason FROM signer").fetchone() == ("paused", "operator")
    late = add_request(conn, Kind.INPUT_PROOF, Status.PROCESSING)
    parked.run()
    assert read_request(conn, late.kind, late.id).status == "processing"  # gas that arrives does not lift it
    store.enqueue(conn, NewCommand("r", CommandKind.RESUME_SIGNER, Target.SIGNER, lane.id, lane.held.resource, "ann"))
    parked.run()
    parked.run()
    assert read_request(conn, late.kind, late.id).status == "tx_in_flight"


def test_a_halted_source_goes_on(box: Any) -> None:
    from tests.listen import world

    world.clean(box)
    box.execute("UPDATE envelope_source SET halted = 'deeper'")
    store.enqueue(box, NewCommand("s", CommandKind.REDRIVE, Target.SOURCE, 1, SINGLETON, "ann"))
    assert serve(box) == 1
    assert box.execute("SELECT halted FROM envelope_source").fetchone() == (None,)


def take(name: str, block: Any = 3, action: str = "take_chain") -> NewCommand:
    payload = {"action": action, "block": block, "reason": "false"}
    return NewCommand(name, CommandKind.HITL, Target.SOURCE, 1, SINGLETON, "ann", payload)


def test_the_chain_s_version_is_taken_beside_other_commands(box: Any) -> None:
    """What is not halted, has no such block or names no such deed ends with its reason; nobody waits for it."""
    from tests.listen import world

    world.clean(box)
    world.record(box, 1, 5, [])
    store.enqueue(box, take("early"))
    assert serve(box) == 1
    assert ended(box, "early")[1] == "superseded"
    box.execute("UPDATE envelope_source SET halted = 'deeper'")
    subject = add_request(box, Kind.INPUT_PROOF, Status.NEEDS_REVIEW)
    for command in (take("what", action="burn"), take("where", "3"), closing("other", subject), take("good")):
        store.enqueue(box, command)
    assert serve(box) == 4
    assert [ended(box, name)[1] for name in ("what", "where", "other", "good")] == [
        "rejected",
        "rejected",
        "applied",
        "applied",
    ]
    assert ended(box, "good")[2]["envelopes"] == 0
    assert box.execute("SELECT block FROM chain_cursor").fetchone() == (2,)
    box.execute("UPDATE envelope_source SET halted = 'again', chain_id = 0")
    store.enqueue(box, take("published"))
    assert serve(box) == 1
    assert ended(box, "published")[2] == {"reason": "it is not read from a chain"}


def test_the_turn_holds_its_lease_and_gives_it_up(conn: Any, start: Any) -> None:
    subject = add_request(conn, Kind.INPUT_PROOF, Status.NEEDS_REVIEW)
    first, second = CommandTurn(), CommandTurn()
    one, two = start(), start()
    assert first.run(one) == 0
    store.enqueue(conn, closing("a", subject))
    assert second.run(two) == 0
    first._due_at = 0.0
    assert first.run(one) == 1
    assert ended(conn, "a")[1] == Outcome.APPLIED
    first.close()
    second._due_at = 0.0
    second.run(two)
    assert second._lease is not None
    second.close()


def test_commands_of_a_signer_without_a_key_end_as_rejected(
    parked: Sent, reviewers: list[int], start: Any, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key was taken out of the settings: nobody would ever hold the signer again, and the case would wait with its command for ever."""
    conn, turn, context = parked.conn, CommandTurn(), start()
    signer = conn.execute("SELECT id FROM signer").fetchone()[0]
    assert decide(conn, parked.case, ReviewAction.RESUME, reviewers[0]).outcome is Decided.COMMANDED
    resource = conn.execute("SELECT resource FROM command").fetchone()[0]
    pause = NewCommand("pause", CommandKind.PAUSE_SIGNER, Target.SIGNER, signer, resource, "ann")
    store.enqueue(conn, pause)

    def run() -> int:
        turn._due_at = turn._keyless_at = 0.0
        return turn.run(context)

    monkeypatch.setattr(keyless, "PATIENCE_SECONDS", 0.0)
    parked.turn.close()
    assert run() == 0  # whoever has the key will come again
    settings.GATEWAY_SIGNER_KEYS = KEYS[1:]
    config.cache_clear()
    turn._own = None
    monkeypatch.setattr(keyless, "PATIENCE_SECONDS", 60.0)
    assert run() == 0  # another process may have it still
    monkeypatch.setattr(keyless, "PATIENCE_SECONDS", 0.0)
    conn.execute(
        "UPDATE exec_lease SET instance = 'other', lease_until = now() + interval '1 hour' WHERE resource = %s",
        (resource,),
    )
    assert run() == 0  # another process has it
    conn.execute("UPDATE exec_lease SET lease_until = now() WHERE resource = %s", (resource,))
    assert run() == 2
    address = resource.rpartition(":")[2]
    reason = f"no worker has the key of {address}: give it back to the settings, or decide otherwise"
    assert parked.outcome() == ("rejected", reason)
    assert ended(conn, "pause")[:2] == ("consumed", "rejected")
    assert (parked.status, conn.execute("SELECT status FROM signer").fetchone()) == ("needs_review", ("active",))
    assert conn.execute("SELECT state FROM review_decision").fetchone() == ("done",)
    assert conn.execute("SELECT lease_until < now() FROM exec_lease WHERE resource = %s", (resource,)).fetchone() == (
        True,
    )
    again = parked.case[0], parked.case[1] + 1
    made = decide(conn, again, ReviewAction.ATTACH, reviewers[0], parameters={"tx_hash": "0x" + "ab" * 32})
    assert made.outcome is not Decided.ALREADY_DECIDED
    turn.close()


def test_a_slot_says_whether_it_is_open(parked: Sent) -> None:
    slot = store.slot_of(parked.conn, parked.subject)
    assert slot is not None
    assert (slot.open, slot.attempts, slot.sent, slot.state) == (True, 1, True, SlotState.LIVE)


def _raise(error: Exception) -> Any:
    raise error
