"""The intent machine over the real database: one order of judgement, one writer, one transaction a decision."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from requests_app.errors import (
    AccountDisabled,
    EvidenceMismatch,
    ForbiddenActor,
    IllegalTransition,
    IntentExpired,
    IntentMissing,
    MissingEvidence,
    RefMismatch,
    RelayerError,
    TerminalState,
    UnknownState,
    VersionConflict,
)
from requests_app.models.reviews import ReasonCode
from requests_app.states import INTENT_FINAL, INTENT_TRANSITIONS, Evidence, IntentActor, IntentState
from requests_app.store import intents as store
from requests_app.store.intents import Intent
from requests_app.transitions import intents
from requests_app.transitions.intents import Change
from tests.payments.terms import TERMS, add_account, add_authorized, add_intent, authorization

S, A = IntentState, IntentActor
HASH, OTHER = b"\xaa" * 32, b"\xbb" * 32


def moved(conn: psycopg.Connection, intent: Intent, target: IntentState, actor: IntentActor, **brought: Any) -> Intent:
    """The intent after a change that must happen."""
    review = ReasonCode.OUTCOME_UNKNOWN if target is S.NEEDS_REVIEW else None
    with conn.transaction():
        (one,) = intents.move(conn, target, [Change.of(intent, **brought)], actor, review=review)
    return one.intent


def brought_to(conn: psycopg.Connection, account: int, state: IntentState) -> Intent:
    """An intent in any state, by the shortest legal way."""
    intent = add_intent(conn, account)
    if state is S.CREATED:
        return intent
    if state is S.CANCELED:
        return intents.cancel(conn, intent.public_id, "no", account_id=account)
    intent = intents.authorize(conn, account, intent.public_id, authorization(intent)).intent
    ways = {
        S.AUTHORIZED: [],
        S.SETTLING: [(S.SETTLING, A.RELAYER)],
        S.CONFIRMING: [(S.SETTLING, A.RELAYER), (S.CONFIRMING, A.RELAYER)],
        S.NEEDS_REVIEW: [(S.SETTLING, A.RELAYER), (S.NEEDS_REVIEW, A.RELAYER)],
        S.FAILED: [(S.SETTLING, A.RELAYER), (S.FAILED, A.RELAYER)],
        S.SETTLED: [(S.SETTLING, A.RELAYER), (S.CONFIRMING, A.RELAYER), (S.SETTLED, A.LISTENER)],
    }
    for target, actor in ways[state]:
        evidence = {} if target is S.SETTLING else {"tx_hash": HASH, "reason": "why"}
        if target in (S.FAILED, S.NEEDS_REVIEW):
            evidence["tx_hash"] = None  # type: ignore[assignment]
        intent = moved(conn, intent, target, actor, **evidence)
    return intent


@pytest.mark.parametrize("state", list(S))
def test_every_pair_and_actor_is_judged_by_the_table(conn: psycopg.Connection, state: IntentState) -> None:
    intent = brought_to(conn, add_account(conn), state)
    for target in S:
        for actor in A:
            edge = INTENT_TRANSITIONS.get((state, target))
            evidence: dict[str, Any] = {"tx_hash": HASH, "reason": "why"}
            if target is state:
                assert intents.judge(intent, target, actor) is False
            elif state in INTENT_FINAL:
                with pytest.raises(TerminalState):
                    intents.judge(intent, target, actor, **evidence)
            elif edge is None:
                with pytest.raises(IllegalTransition):
                    intents.judge(intent, target, actor, **evidence)
            elif actor not in edge.actors:
                with pytest.raises(ForbiddenActor):
                    intents.judge(intent, target, actor)
            else:
                assert intents.judge(intent, target, actor, **evidence) is True
                for kind in edge.evidence:
                    with pytest.raises(MissingEvidence, match=kind.value):
                        intents.judge(intent, target, actor, **{**evidence, kind.value: None})


def test_unknown_state_comes_first_and_guards_last(conn: psycopg.Connection) -> None:
    account = add_account(conn)
    settled = brought_to(conn, account, S.SETTLED)
    with pytest.raises(UnknownState):
        intents.judge(settled, "succeeded", A.API)
    confirming = brought_to(conn, account, S.CONFIRMING)
    with pytest.raises(MissingEvidence):
        intents.judge(confirming, S.SETTLED, A.LISTENER)
    with pytest.raises(EvidenceMismatch):
        intents.judge(confirming, S.SETTLED, A.LISTENER, tx_hash=OTHER)
    late = add_intent(conn, account, expires_at=datetime.now(UTC) - timedelta(seconds=1))
    with pytest.raises(ForbiddenActor):
        intents.judge(late, S.AUTHORIZED, A.OPERATOR)
    with pytest.raises(IntentExpired):
        intents.judge(late, S.AUTHORIZED, A.API)
    with pytest.raises(IntentExpired):
        intents.authorize(conn, account, late.public_id, authorization(late))


def test_a_life_is_written_down(conn: psycopg.Connection) -> None:
    intent = brought_to(conn, add_account(conn), S.CONFIRMING)
    back = moved(conn, intent, S.SETTLING, A.LISTENER, reason="reorg")
    assert (back.version, back.tx_hash, back.state_reason) == (5, None, "reorg")
    again = moved(conn, back, S.CONFIRMING, A.LISTENER, tx_hash=OTHER)
    settled = moved(conn, again, S.SETTLED, A.LISTENER, tx_hash=OTHER)
    rows = store.history(conn, intent.id)
    assert [(row.version, row.from_state, row.to_state, row.actor, row.tx_hash, row.reason) for row in rows] == [
        (1, None, "created", "api", None, None),
        (2, "created", "authorized", "api", None, None),
        (3, "authorized", "settling", "relayer", None, None),
        (4, "settling", "confirming", "relayer", HASH, "why"),
        (5, "confirming", "settling", "listener", None, "reorg"),
        (6, "settling", "confirming", "listener", OTHER, None),
        (7, "confirming", "settled", "listener", OTHER, None),
    ]
    assert rows[-1].at == settled.updated_at == store.read_intents(conn, [intent.id])[0].updated_at
    assert rows[0].at == settled.created_at


def test_a_batch_moves_those_that_stand_as_they_were_read(conn: psycopg.Connection) -> None:
    account = add_account(conn)
    some = [add_authorized(conn, account) for _ in range(4)]
    moved(conn, some[1], S.SETTLING, A.RELAYER)
    with conn.transaction():
        done = intents.move(conn, S.SETTLING, [Change.of(one) for one in reversed(some)], A.RELAYER)
    assert [one.intent.id for one in done] == [some[0].id, some[2].id, some[3].id]
    assert {(one.intent.state, one.intent.version, one.was) for one in done} == {(S.SETTLING, 3, S.AUTHORIZED)}
    stale = store.read_intents(conn, [some[0].id])[0]._replace(version=2)
    with conn.transaction(), pytest.raises(VersionConflict):
        intents.step(conn, stale, S.CONFIRMING, A.RELAYER, tx_hash=HASH)


def test_guards_hold_behind_the_read(conn: psycopg.Connection) -> None:
    """What judge saw may be old: the statement looks again."""
    account = add_account(conn)
    confirming = brought_to(conn, account, S.CONFIRMING)
    late = add_intent(conn, account, expires_at=datetime.now(UTC) - timedelta(seconds=1))
    with conn.transaction():
        assert intents.move(conn, S.SETTLED, [Change.of(confirming, tx_hash=OTHER)], A.LISTENER) == []
        change = Change.of(late, authorization=authorization(late))
        assert intents.move(conn, S.AUTHORIZED, [change], A.API) == []


def test_defects_of_the_caller_write_nothing(conn: psycopg.Connection) -> None:
    intent = brought_to(conn, add_account(conn), S.SETTLING)
    wrong: list[tuple[type[RelayerError], IntentState, IntentActor, dict[str, Any]]] = [
        (IllegalTransition, S.SETTLED, A.LISTENER, {"tx_hash": HASH}),
        (ForbiddenActor, S.FAILED, A.LISTENER, {"reason": "no"}),
        (MissingEvidence, S.CONFIRMING, A.RELAYER, {}),
        (MissingEvidence, S.NEEDS_REVIEW, A.RELAYER, {"reason": "no"}),
    ]
    for error, target, actor, brought in wrong:
        with conn.transaction(), pytest.raises(error):
            intents.move(conn, target, [Change.of(intent, **brought)], actor)
    with pytest.raises(RelayerError, match="transaction"):
        intents.move(conn, S.CONFIRMING, [Change.of(intent, tx_hash=HASH)], A.RELAYER)
    assert store.read_intents(conn, [intent.id])[0].version == intent.version


def test_a_foreign_ref_is_refused_at_every_write(conn: psycopg.Connection) -> None:
    account = add_account(conn)
    intent = add_authorized(conn, account)
    conn.execute("ALTER TABLE payment_intent DISABLE TRIGGER USER")
    conn.execute("UPDATE payment_intent SET amount = amount + 1 WHERE id = %s", (intent.id,))
    conn.execute("ALTER TABLE payment_intent ENABLE TRIGGER USER")
    with pytest.raises(RefMismatch), conn.transaction():
        intents.move(conn, S.SETTLING, [Change.of(intent)], A.RELAYER)
    with pytest.raises(RefMismatch):
        intents.cancel(conn, intent.public_id, "no", account_id=account)
    assert store.read_intents(conn, [intent.id])[0].state is S.AUTHORIZED


def test_review_opens_and_closes_with_the_state(conn: psycopg.Connection) -> None:
    intent = brought_to(conn, add_account(conn), S.SETTLING)
    with conn.transaction():
        change = Change.of(intent, reason="unclear", evidence={"age": 331})
        (one,) = intents.move(conn, S.NEEDS_REVIEW, [change], A.RELAYER, review=ReasonCode.OUTCOME_UNKNOWN)
    case = "SELECT status, reason_code, evidence, outcome FROM review_case WHERE kind = 4 AND subject_id = %s"
    assert conn.execute(case, (intent.id,)).fetchone() == ("open", "outcome_unknown", {"age": 331}, None)
    assert store.cases_open(conn, [intent.id]) == {intent.id: ReasonCode.OUTCOME_UNKNOWN}
    moved(conn, one.intent, S.CONFIRMING, A.OPERATOR, tx_hash=HASH, reason="seen in the explorer", by_user="eva")
    row = conn.execute(case, (intent.id,)).fetchone()
    assert row is not None
    assert (row[0], row[3]) == ("closed", "confirming")
    assert store.history(conn, intent.id)[-1].by_user == "eva"


def test_authorize_and_its_job_are_one(conn: psycopg.Connection) -> None:
    account = add_account(conn)
    intent = add_intent(conn, account)
    job = "SELECT queue, kind, subject_id, tenant_id, attempt FROM queue_job WHERE job_key = %s"
    for wrong in (
        {"nonce": f"0x{'00' * 32}"},
        {"valid_before": 7},
        {"valid_before": "soon"},
        {"valid_after": ""},
        {"valid_before": "9" * 79},
    ):
        with pytest.raises(EvidenceMismatch):
            intents.authorize(conn, account, intent.public_id, authorization(intent, **wrong))
    assert conn.execute(job, (f"{intent.public_id}/settle",)).fetchone() is None
    done = intents.authorize(conn, account, intent.public_id, authorization(intent))
    assert (done.queued, done.intent.state, done.intent.authorization) == (True, S.AUTHORIZED, authorization(intent))
    assert conn.execute(job, (f"{intent.public_id}/settle",)).fetchone() == ("settle", 4, intent.id, account, 0)
    again = intents.authorize(conn, account, intent.public_id, {})
    assert (again.queued, again.intent.version) == (False, 2)


def test_the_owner_decides_what_exists(conn: psycopg.Connection) -> None:
    mine, other = add_account(conn), add_account(conn)
    intent = add_intent(conn, mine)
    with pytest.raises(IntentMissing):
        intents.authorize(conn, other, intent.public_id, authorization(intent))
    with pytest.raises(IntentMissing):
        intents.cancel(conn, intent.public_id, "no", account_id=other)
    with pytest.raises(IntentMissing):
        intents.create(conn, 2**40, TERMS)
    conn.execute("UPDATE client_account SET status = 'disabled' WHERE id = %s", (mine,))
    for act in (
        lambda: intents.authorize(conn, mine, intent.public_id, authorization(intent)),
        lambda: intents.cancel(conn, intent.public_id, "no", account_id=mine),
        lambda: intents.create(conn, mine, TERMS),
    ):
        with pytest.raises(AccountDisabled):
            act()


def test_disabling_waits_for_a_decision_under_way(two_conns: tuple[psycopg.Connection, psycopg.Connection]) -> None:
    """The account is the first lock: who disables it does so before or after, never in between."""
    one, two = two_conns
    account = add_account(one)
    intent = add_intent(one, account)
    two.execute("SET lock_timeout = '50ms'")
    with one.transaction():
        intents.authorize(one, account, intent.public_id, authorization(intent))
        with pytest.raises(psycopg.errors.LockNotAvailable):
            two.execute("UPDATE client_account SET status = 'disabled' WHERE id = %s", (account,))


def test_cancel_takes_the_job_along_until_bytes_are_signed(conn: psycopg.Connection) -> None:
    account = add_account(conn)
    intent = add_authorized(conn, account)
    canceled = intents.cancel(conn, intent.public_id, "changed my mind", account_id=account)
    assert (canceled.state, canceled.state_reason) == (S.CANCELED, "changed my mind")
    assert conn.execute("SELECT count(*) FROM queue_job").fetchone() == (0,)
    assert intents.cancel(conn, intent.public_id, "again", account_id=account).version == canceled.version
    settling = brought_to(conn, account, S.SETTLING)
    with pytest.raises(IllegalTransition):
        intents.cancel(conn, settling.public_id, "too late", account_id=account)


def test_expiry_ends_what_was_not_signed(conn: psycopg.Connection) -> None:
    account = add_account(conn)
    past = datetime.now(UTC) - timedelta(seconds=5)
    late = add_intent(conn, account, expires_at=past)
    fresh = add_intent(conn, account, lifetime_seconds=600.0)
    free = add_intent(conn, account)
    closed, slot = (add_intent(conn, account) for _ in range(2))
    for one in (closed, slot):
        intents.authorize(conn, account, one.public_id, authorization(one, valid_before="1000"))
    conn.execute(
        "INSERT INTO nonce_slot (signer_id, nonce, kind, subject_id, state, opened_epoch) VALUES (1, 1, 4, %s, 'signed', 1)",
        (slot.id,),
    )
    with conn.transaction():
        ended = intents.expire(conn, 10)
    assert [(one.intent.id, one.intent.state_reason) for one in ended] == [(late.id, "expired"), (closed.id, "expired")]
    assert {one.state for one in store.read_intents(conn, [fresh.id, free.id])} == {S.CREATED}
    assert store.history(conn, late.id)[-1].actor == "system"
    assert conn.execute("SELECT subject_id FROM queue_job").fetchall() == [(slot.id,)]


def test_evidence_kinds_are_all_checked() -> None:
    assert {kind for edge in INTENT_TRANSITIONS.values() for kind in edge.evidence} == set(Evidence)


def test_the_sweep_does_not_read_what_has_ended(conn: psycopg.Connection) -> None:
    account = add_account(conn)
    late = add_intent(conn, account, expires_at=datetime.now(UTC) - timedelta(seconds=5))
    conn.execute(
        'INSERT INTO payment_intent (public_id, ref, account_id, chain, token, payer, merchant, amount, state, "authorization", tx_hash)'
        " SELECT 'pi_' || n, sha256(n::text::bytea), %s, 'c', 't', 'p', 'm', 1, 'settled', '{}', '\\xaa' FROM generate_series(1, 5000) n",
        (account,),
    )
    conn.execute("ANALYZE payment_intent")
    read = "SELECT coalesce(sum(seq_tup_read), 0), coalesce(sum(idx_tup_fetch), 0) FROM pg_stat_xact_user_tables WHERE relname = 'payment_intent'"
    with conn.transaction():
        assert [one.intent.id for one in intents.expire(conn, 100)] == [late.id]
        row = conn.execute(read).fetchone()
    assert row is not None
    assert row[0] == 0
    assert row[1] < 50
