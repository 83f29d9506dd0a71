"""The state table, the database and the guards say the same."""

from __future__ import annotations

import json
from itertools import product

import psycopg
import pytest

from requests_app.errors import IllegalTransition
from requests_app.models.reviews import ReasonCode
from requests_app.states import ACTIVE, FINAL, INITIAL, REQUEST_KINDS, TRANSITIONS, Actor, Fence, Kind, Status, Verb
from requests_app.transitions.generic import Change, apply, close_reviews, park
from tests.core.rows import insert_request, read_request

pytestmark = pytest.mark.django_db(transaction=True)

VERBS = [verb for verb in Verb if verb is not Verb.SUBMIT]


def test_every_verb_but_submit_has_a_row_and_no_final_state_is_left():
    assert set(TRANSITIONS) == set(VERBS)
    for row in TRANSITIONS.values():
        assert row.sources
        assert not row.sources & FINAL
        assert row.actors


def test_every_active_state_has_a_way_out_and_every_state_is_reached():
    reached = {row.target for row in TRANSITIONS.values()} | set(INITIAL.values())
    left = {source for row in TRANSITIONS.values() for source in row.sources}
    assert reached == set(Status)
    assert left == ACTIVE


@pytest.mark.parametrize("kind", list(REQUEST_KINDS))
def test_the_whole_matrix_of_states_and_verbs(conn, kind):
    """Every state x every verb: the row changes exactly when the table says so, and history gets exactly one line."""
    for status, verb in product(Status, VERBS):
        row_id = insert_request(conn, kind, status)
        legal = status in TRANSITIONS[verb].sources
        changed = apply(conn, verb, kind, [Change(row_id)], next(iter(TRANSITIONS[verb].actors)))
        row = read_request(conn, kind, row_id)
        lines = conn.execute("SELECT count(*) FROM req_transition WHERE kind = %s AND request_id = %s", (kind, row_id))
        assert (row.status, lines.fetchone()[0]) == ((TRANSITIONS[verb].target, 1) if legal else (status, 0))
        assert [item.was for item in changed] == ([status] if legal else [])
        assert (row.completed_at is not None) == (row.status in FINAL)
        assert (row.deadline_at is None) == (row.status in FINAL | {Status.NEEDS_REVIEW}) or not legal


def test_an_actor_that_the_table_does_not_name_is_refused(conn):
    row_id = insert_request(conn, Kind.PUBLIC_DECRYPT, Status.QUEUED)
    with pytest.raises(IllegalTransition):
        apply(conn, Verb.ADMIT, Kind.PUBLIC_DECRYPT, [Change(row_id)], Actor.API)
    assert read_request(conn, Kind.PUBLIC_DECRYPT, row_id).status == "queued"


def test_the_loser_of_a_race_is_told_that_nothing_happened(two_conns):
    """B5, T1: the second waits for the first's lock, then judges the row as it is now."""
    first, second = two_conns
    row_id = insert_request(first, Kind.USER_DECRYPT, Status.QUEUED)
    with first.transaction():
        assert apply(first, Verb.ADMIT, Kind.USER_DECRYPT, [Change(row_id)], Actor.WORKER)
        second.execute("SET lock_timeout = '50ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            apply(second, Verb.DENY, Kind.USER_DECRYPT, [Change(row_id)], Actor.WORKER)
    assert apply(second, Verb.DENY, Kind.USER_DECRYPT, [Change(row_id)], Actor.WORKER) == []
    assert read_request(first, Kind.USER_DECRYPT, row_id).status == "processing"


@pytest.mark.parametrize("kind", list(REQUEST_KINDS))
@pytest.mark.parametrize("status", sorted(FINAL))
def test_i4_the_database_refuses_to_change_a_final_row(conn, kind, status):
    row_id = insert_request(conn, kind, status)
    for change in (
        "status = 'processing', completed_at = NULL",
        "fail_label = 'other'",
        "updated_at = clock_timestamp() + interval '1 hour'",
    ):
        with pytest.raises(psycopg.errors.IntegrityConstraintViolation):
            conn.execute(f"UPDATE {kind.table} SET {change} WHERE id = %s", (row_id,))


def test_only_a_missing_consensus_hash_may_be_filled_in(conn):
    row_id = insert_request(conn, Kind.USER_DECRYPT, Status.COMPLETED)
    fill = "UPDATE user_decrypt_req SET gw_consensus_tx_hash = %s WHERE id = %s"
    conn.execute(fill, (b"\x01" * 32, row_id))
    with pytest.raises(psycopg.errors.IntegrityConstraintViolation):
        conn.execute(fill, (b"\x02" * 32, row_id))


def test_each_actor_of_a_transition_has_its_fence():
    """A settle shift parks under its signer's lease, the sweep under its duty's: the table named only one of them."""
    assert dict(TRANSITIONS[Verb.PARK].fences) == {Actor.WORKER: Fence.SIGNER, Actor.SWEEP: Fence.DUTY}
    for row in TRANSITIONS.values():
        assert {actor for actor, _ in row.fences} == row.actors


def test_an_unknown_state_cannot_be_stored(conn):
    with pytest.raises(psycopg.errors.CheckViolation):
        insert_request(conn, Kind.INPUT_PROOF, "lost")  # type: ignore[arg-type]


def test_history_cannot_be_rewritten(conn):
    row_id = insert_request(conn, Kind.PUBLIC_DECRYPT, Status.QUEUED)
    apply(conn, Verb.ADMIT, Kind.PUBLIC_DECRYPT, [Change(row_id)], Actor.WORKER)
    with pytest.raises(psycopg.errors.IntegrityConstraintViolation):
        conn.execute("UPDATE req_transition SET reason = 'never happened'")


def test_parking_opens_one_case_with_its_evidence_and_none_for_rows_that_moved_on(conn):
    waiting = insert_request(conn, Kind.PUBLIC_DECRYPT, Status.TX_IN_FLIGHT)
    done = insert_request(conn, Kind.PUBLIC_DECRYPT, Status.COMPLETED)
    found = {waiting: {"nonce": 7}, done: {"nonce": 8}}
    for _ in range(2):
        parked = park(
            conn, Kind.PUBLIC_DECRYPT, found, ReasonCode.OUTCOME_UNKNOWN, Actor.SWEEP, detail="no receipt in time"
        )
    assert parked == []
    cases = conn.execute("SELECT subject_id, reason_code, evidence, status FROM review_case").fetchall()
    assert [(row[0], row[1], json.dumps(row[2]), row[3]) for row in cases] == [
        (waiting, "outcome_unknown", '{"nonce": 7}', "open")
    ]
    assert close_reviews(conn, Kind.PUBLIC_DECRYPT, [waiting], "resumed") == 1


def test_signed_bytes_and_nonces_are_evidence(conn):
    conn.execute(
        "INSERT INTO signer (chain_id, address, next_nonce, max_inflight) VALUES (1, '\\x01', 5, 16);"
        "INSERT INTO tx_attempt (signer_id, nonce, seq, tx_hash, raw_tx, max_fee_per_gas, max_priority_fee, gas_limit,"
        " state, epoch, send_count) SELECT id, 4, 1, '\\x0a', '\\x0b', 1, 1, 21000, 'prepared', 1, 0 FROM signer"
    )
    with pytest.raises(psycopg.errors.IntegrityConstraintViolation):
        conn.execute("UPDATE tx_attempt SET raw_tx = '\\x0c'")
    with pytest.raises(psycopg.errors.IntegrityConstraintViolation):
        conn.execute("UPDATE signer SET next_nonce = 4")
