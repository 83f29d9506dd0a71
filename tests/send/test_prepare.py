"""TX1: nonces, slots and signed bytes for exactly the rows that may be sent, or nothing."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from requests_app import sql
from requests_app.errors import StaleEpoch
from requests_app.models.reviews import ReasonCode
from requests_app.models.signing import AttemptState, SignerStatus
from requests_app.states import REQUEST_KINDS, Kind, Status, Verb
from requests_app.store import attempts as store
from requests_app.store import nonces, queue, signing
from requests_app.store.queue import READY, SEND
from requests_app.store.session import connect
from requests_app.transitions import sending
from tests.core.rows import insert_account, read_request
from tests.send.scenes import (
    PRICE,
    add_request,
    add_signer,
    change,
    expire_leases,
    fail,
    fake_sign,
    hold,
    leased,
    next_nonce,
    wanted,
)

pytestmark = pytest.mark.django_db(transaction=True)
RESOURCE = "signer:654321:0xaa"
FILL = SQL(
    "INSERT INTO {table} (ext_job_id, int_job_id, status, completed_at{column}) SELECT gen_random_uuid(), "
    "sha256(n::text::bytea), 'completed', now(){value} FROM generate_series(1, 20000) n"
)
FILLERS = {
    Kind.USER_DECRYPT: (", req_type", ", 'user_decrypt'"),
    Kind.PUBLIC_DECRYPT: ("", ""),
    Kind.INPUT_PROOF: (", int_request_id", ", gen_random_uuid()"),
}


@pytest.fixture
def fence(conn):
    return hold(conn, RESOURCE)


@pytest.fixture
def signer(conn, fence):
    return add_signer(conn, fence, nonce=7)


def mixed(conn, count):
    kinds = list(REQUEST_KINDS)
    return [add_request(conn, kinds[n % 3], Status.PROCESSING) for n in range(count)]


def statuses(conn, subjects):
    return [read_request(conn, s.kind, s.id).status for s in subjects]


def slots(conn):
    return conn.execute("SELECT nonce, kind, subject_id, state FROM nonce_slot ORDER BY nonce").fetchall()


def test_every_row_gets_a_nonce_a_slot_bytes_a_deadline_and_a_transition(conn, fence, signer):
    subjects = mixed(conn, 6)
    prepared = sending.prepare_send(conn, fence, signer.id, wanted(leased(conn, SEND)), PRICE, fake_sign)
    assert [item.nonce for item in prepared] == list(range(7, 13))
    assert [item.held.subject for item in prepared] == subjects
    assert slots(conn) == [(7 + n, s.kind.value, s.id, "signed") for n, s in enumerate(subjects)]
    attempts = conn.execute(
        "SELECT nonce, seq, tx_hash, raw_tx, state, epoch, max_fee_per_gas, gas_limit FROM tx_attempt ORDER BY nonce"
    ).fetchall()
    assert attempts == [(p.nonce, 1, p.tx_hash, p.raw, "prepared", 1, PRICE.max_fee, 100_000) for p in prepared]
    for item in prepared:
        row = read_request(conn, item.held.subject.kind, item.held.subject.id)
        assert (row.status, row.gw_req_tx_hash) == ("tx_in_flight", item.tx_hash)
        assert row.deadline_at > row.updated_at
    log = conn.execute(
        "SELECT verb, from_status, to_status, epoch, count(*) FROM req_transition GROUP BY 1,2,3,4"
    ).fetchall()
    assert log == [("prepare_send", "processing", "tx_in_flight", 1, 6)]
    assert next_nonce(conn, signer.id) == 13


def test_rows_canceled_between_lease_and_claim_leave_no_hole(conn, fence, signer):
    subjects = mixed(conn, 10)
    batch = wanted(leased(conn, SEND))
    for subject in (subjects[0], subjects[4], subjects[9]):
        fail(conn, subject)
    prepared = sending.prepare_send(conn, fence, signer.id, batch, PRICE, fake_sign)
    assert [item.nonce for item in prepared] == list(range(7, 14))
    assert [item.held.subject for item in prepared] == [s for n, s in enumerate(subjects) if n not in (0, 4, 9)]
    assert next_nonce(conn, signer.id) == 14


@pytest.mark.parametrize("case", ["epoch", "instance", "paused", "never synced"])
def test_nothing_is_written_without_fence_or_active_signer(conn, fence, signer, case):
    subjects = mixed(conn, 3)
    if case == "epoch":
        hold(conn, RESOURCE, "two", 2)
    if case == "instance":
        fence = fence._replace(instance="impostor")
    if case == "paused":
        conn.execute("UPDATE signer SET status = 'paused'")
    if case == "never synced":
        signing.ensure_signers(conn, 654321, [b"n" * 20])
        signer = signer._replace(id=conn.execute("SELECT id FROM signer WHERE next_nonce IS NULL").fetchone()[0])
    assert sending.prepare_send(conn, fence, signer.id, wanted(leased(conn, SEND)), PRICE, fake_sign) == []
    assert statuses(conn, subjects) == ["processing"] * 3
    assert slots(conn) == []


def test_a_failing_signature_rolls_everything_back(conn, fence, signer):
    subjects = mixed(conn, 3)

    def failing(item, nonce):
        if nonce == 8:
            raise OverflowError("gas")
        return fake_sign(item, nonce)

    with pytest.raises(OverflowError):
        sending.prepare_send(conn, fence, signer.id, wanted(leased(conn, SEND)), PRICE, failing)
    assert statuses(conn, subjects) == ["processing"] * 3
    assert (slots(conn), next_nonce(conn, signer.id)) == ([], 7)


def test_a_row_with_a_slot_that_is_not_dead_never_gets_another(conn, fence, signer):
    (subject,) = mixed(conn, 1)
    sending.prepare_send(conn, fence, signer.id, wanted(leased(conn, SEND)), PRICE, fake_sign)
    change(conn, subject, "status = 'processing'")
    expire_leases(conn)
    (delivery,) = leased(conn, SEND)
    assert delivery.has_slot
    assert sending.prepare_send(conn, fence, signer.id, wanted([delivery]), PRICE, fake_sign) == []
    conn.execute("UPDATE nonce_slot SET state = 'dead'")
    (again,) = sending.prepare_send(conn, fence, signer.id, wanted([delivery]), PRICE, fake_sign)
    assert again.nonce == 8


@pytest.mark.parametrize("same", [True, False])
def test_overlapping_concurrent_claims_take_each_row_once(conn, fence, signer, same):
    subjects = mixed(conn, 60)
    batch = wanted(leased(conn, SEND))
    barrier = threading.Barrier(8)

    def claim(part):
        with connect("worker") as own:
            mine = batch if same else batch[part * 6 : part * 6 + 18]
            barrier.wait()
            return sending.prepare_send(own, fence, signer.id, mine, PRICE, fake_sign)

    with ThreadPoolExecutor(8) as pool:
        prepared = [item for part in pool.map(claim, range(8)) for item in part]
    assert sorted(item.nonce for item in prepared) == list(range(7, 67))
    assert sorted(item.held.subject for item in prepared) == sorted(subjects)


def test_a_client_disabled_before_the_claim_is_not_sent_for(conn, fence, signer):
    """I11: the check stands inside TX1, so that no lease read earlier can get around it."""
    account = insert_account(conn)
    subject = add_request(conn, Kind.INPUT_PROOF, Status.PROCESSING, account=account)
    (delivery,) = leased(conn, SEND)
    assert delivery.effective
    conn.execute("UPDATE client_account SET status = 'disabled' WHERE id = %s", (account,))
    assert sending.prepare_send(conn, fence, signer.id, wanted([delivery]), PRICE, fake_sign) == []
    assert statuses(conn, [subject]) == ["processing"]


def test_disabling_waits_for_a_send_under_way(two_conns):
    first, second = two_conns
    fence = hold(first, RESOURCE)
    signer = add_signer(first, fence, nonce=7)
    account = insert_account(first)
    add_request(first, Kind.INPUT_PROOF, Status.PROCESSING, account=account)

    def sign(item, nonce):
        second.execute("SET lock_timeout = '50ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            second.execute("UPDATE client_account SET status = 'disabled' WHERE id = %s", (account,))
        return fake_sign(item, nonce)

    assert len(sending.prepare_send(first, fence, signer.id, wanted(leased(first, SEND)), PRICE, sign)) == 1


def test_take_over_waits_for_a_send_under_way(two_conns):
    first, second = two_conns
    fence = hold(first, RESOURCE)
    signer = add_signer(first, fence, nonce=7)
    add_request(first, Kind.INPUT_PROOF, Status.PROCESSING)

    def sign(item, nonce):
        second.execute("SET lock_timeout = '50ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            second.execute("UPDATE exec_lease SET epoch = epoch + 1 WHERE resource = %s", (RESOURCE,))
        return fake_sign(item, nonce)

    assert len(sending.prepare_send(first, fence, signer.id, wanted(leased(first, SEND)), PRICE, sign)) == 1


def test_refuse_ends_row_and_job_and_needs_receipt_and_lease(conn, fence):
    subjects = mixed(conn, 4)
    old = leased(conn, SEND)
    expire_leases(conn)
    new = leased(conn, SEND)
    batch = [old[0], *new[1:]]
    refusals = [
        sending.Refusal(sending.Held(d.subject, d.receipt), "protocol_paused", "EnforcedPause()", b"\xd9\x3c\x06\x65")
        for d in batch
    ]
    stale = fence._replace(epoch=0)
    assert sending.end_unsent(conn, Verb.REFUSE, refusals, stale) == []
    assert sorted(sending.end_unsent(conn, Verb.REFUSE, refusals, fence)) == sorted(subjects[1:])
    assert statuses(conn, subjects) == ["processing", "failure", "failure", "failure"]
    row = read_request(conn, subjects[1].kind, subjects[1].id)
    assert (row.fail_label, row.fail_selector, row.deadline_at) == ("protocol_paused", b"\xd9\x3c\x06\x65", None)
    assert conn.execute("SELECT count(*) FROM queue_job").fetchone() == (1,)
    assert conn.execute("SELECT DISTINCT verb, reason, epoch FROM req_transition").fetchall() == [
        ("refuse", "protocol_paused", 1)
    ]


def test_refuse_never_ends_a_row_that_has_signed_bytes(conn, fence, signer):
    (subject,) = mixed(conn, 1)
    (delivery,) = leased(conn, SEND)
    sending.prepare_send(conn, fence, signer.id, wanted([delivery]), PRICE, fake_sign)
    change(conn, subject, "status = 'processing'")
    refusal = sending.Refusal(sending.Held(delivery.subject, delivery.receipt), "internal_server_error", "no")
    assert sending.end_unsent(conn, Verb.REFUSE, [refusal], fence) == []
    assert statuses(conn, [subject]) == ["processing"]


def test_admit_moves_rows_and_jobs_together_and_only_with_a_current_receipt(conn):
    subjects = [add_request(conn, kind, Status.QUEUED) for kind in (Kind.USER_DECRYPT, Kind.PUBLIC_DECRYPT) * 2]
    old = leased(conn, READY)
    expire_leases(conn)
    new = leased(conn, READY)
    held = [sending.Held(d.subject, d.receipt) for d in [old[0], *new[1:]]]
    fail(conn, subjects[2])
    assert sorted(one.subject for one in sending.admit(conn, held)) == sorted([subjects[1], subjects[3]])
    assert statuses(conn, subjects) == ["queued", "processing", "failure", "processing"]
    jobs = conn.execute("SELECT queue, count(*), max(attempt) FROM queue_job GROUP BY 1 ORDER BY 1").fetchall()
    assert jobs == [("ready", 2, 2), ("send", 2, 0)]
    assert sending.admit(conn, held) == []


def test_admitted_jobs_may_stay_leased_by_new_receipts(conn):
    """What was leased in the ready queue says nothing any more; until the lease ends nobody else gets them."""
    subjects = [add_request(conn, kind, Status.QUEUED) for kind in (Kind.USER_DECRYPT, Kind.PUBLIC_DECRYPT)]
    held = [sending.Held(one.subject, one.receipt) for one in leased(conn, READY)]
    admitted = sending.admit(conn, held, "shift", 30.0)
    assert [one.subject for one in admitted] == subjects
    assert leased(conn, SEND) == []
    row = "SELECT queue, leased_by, attempt, extract(epoch FROM visible_at - clock_timestamp())::float8 FROM queue_job"
    for queue_name, owner, attempt, seconds in conn.execute(row).fetchall():
        assert (queue_name, owner, attempt) == ("send", "shift", 1)
        assert 20 < seconds <= 30
    assert queue.ack_jobs(conn, [one.receipt for one in held]) == [queue.Verdict.NOT_FOUND] * 2
    assert queue.ack_jobs(conn, [one.receipt for one in admitted]) == [queue.Verdict.OK] * 2


def test_deny_needs_no_lease_and_expire_times_out(conn):
    denied, expired = (add_request(conn, Kind.PUBLIC_DECRYPT, Status.QUEUED) for _ in range(2))
    first, second = leased(conn, READY)
    held = [sending.Held(d.subject, d.receipt) for d in (first, second)]
    refusal = sending.Refusal(held[0], "not_allowed_on_host_acl", "Not allowed on host ACL: x")
    assert sending.end_unsent(conn, Verb.DENY, [refusal]) == [denied]
    refusal = sending.Refusal(held[1], "readiness_check_timed_out", "not ready")
    assert sending.end_unsent(conn, Verb.EXPIRE_READINESS, [refusal]) == [expired]
    assert statuses(conn, [denied, expired]) == ["failure", "timed_out"]
    assert conn.execute("SELECT count(*) FROM queue_job").fetchone() == (0,)


def outcome(nonce, state, live=True, cls=None):
    return store.SendOutcome(nonce, 1, state, live, cls, cls and "text")


def test_tx2_records_every_outcome_and_acknowledges_by_receipt(conn, fence, signer):
    mixed(conn, 4)
    prepared = sending.prepare_send(conn, fence, signer.id, wanted(leased(conn, SEND)), PRICE, fake_sign)
    again = prepared[3].held.receipt.job_id  # by the job's own id: rows of two kinds may have the same number
    conn.execute("UPDATE queue_job SET attempt = 2 WHERE id = %s", (again,))
    conn.execute("UPDATE tx_attempt SET state = 'mined' WHERE nonce = 9")
    states = [AttemptState.ACCEPTED, AttemptState.UNKNOWN, AttemptState.UNKNOWN, AttemptState.PREPARED]
    outcomes = [outcome(7 + n, state, live=n < 3, cls=None if n == 0 else "unknown") for n, state in enumerate(states)]
    assert store.record_sends(conn, signer.id, outcomes, [p.held.receipt for p in prepared]) == 3
    found = conn.execute("SELECT state, send_count, error_class FROM tx_attempt ORDER BY nonce").fetchall()
    assert found == [("accepted", 1, None), ("unknown", 1, "unknown"), ("mined", 0, None), ("prepared", 1, "unknown")]
    assert [slot[3] for slot in slots(conn)] == ["live", "live", "live", "signed"]
    assert conn.execute("SELECT count(*) FROM queue_job WHERE id = %s", (again,)).fetchone() == (1,)
    # A later time-out says nothing about bytes that a node has taken.
    store.record_sends(conn, signer.id, [outcome(7, AttemptState.UNKNOWN, cls="unknown")])
    assert conn.execute("SELECT state, send_count FROM tx_attempt WHERE nonce = 7").fetchone() == ("accepted", 2)


def test_what_is_due_for_broadcast(conn, fence, signer):
    mixed(conn, 4)
    sending.prepare_send(conn, fence, signer.id, wanted(leased(conn, SEND)), PRICE, fake_sign)

    def due(**options):
        found = store.attempts_to_broadcast(
            conn, signer.id, **{"from_nonce": 0, "everything": False, "limit": 100, **options}
        )
        return [item.nonce for item in found]

    assert due() == []
    assert due(everything=True) == [7, 8, 9, 10]
    assert due(everything=True, from_nonce=9) == [9, 10]
    assert due(everything=True, limit=2) == [7, 8]
    conn.execute("UPDATE tx_attempt SET prepared_at = prepared_at - interval '2 seconds'")
    assert due() == [7, 8, 9, 10]
    store.record_sends(
        conn,
        signer.id,
        [outcome(7, AttemptState.ACCEPTED), outcome(8, AttemptState.UNKNOWN), outcome(9, AttemptState.PREPARED)],
    )
    assert due() == [10]
    conn.execute("UPDATE tx_attempt SET last_sent_at = last_sent_at - interval '3 seconds'")
    assert due() == [8, 9, 10]
    conn.execute("UPDATE tx_attempt SET last_sent_at = last_sent_at - interval '8 seconds'")
    assert due() == [7, 8, 9, 10]
    # The third fruitless send waits 4 s.
    conn.execute(
        "UPDATE tx_attempt SET send_count = 3, last_sent_at = clock_timestamp() - interval '3 seconds' WHERE nonce = 8"
    )
    assert due() == [7, 9, 10]


def test_the_first_sync_sets_the_counter_and_later_ones_never_lower_it(conn, fence):
    address = b"s" * 20
    signing.ensure_signers(conn, 1, [address])
    assert signing.ensure_signers(conn, 1, [address]) == 0

    def sync(latest, pending):
        return signing.sync_signer(conn, fence, 1, address, latest=latest, pending=pending, balance=5)

    assert sync(3, 5).signer.next_nonce == 5
    assert sync(4, 9).signer.next_nonce == 5
    assert sync(1, 1).signer == sync(4, 4).signer
    foreign = sync(6, 6)
    assert foreign.foreign_use
    assert (foreign.signer.status, foreign.signer.reason, foreign.signer.next_nonce) == ("blocked", "foreign_nonce", 6)
    assert not sync(6, 6).foreign_use


def test_only_the_worker_s_own_pause_is_lifted_by_the_worker(conn, fence, signer):
    def change(status, reason, **was):
        return signing.set_signer_status(conn, fence, signer.id, status, reason, **was)

    funds = signing.SignerReason.INSUFFICIENT_FUNDS
    assert change(SignerStatus.PAUSED, funds, was=SignerStatus.ACTIVE)
    assert not change(SignerStatus.PAUSED, funds, was=SignerStatus.ACTIVE)
    assert change(SignerStatus.ACTIVE, None, was=SignerStatus.PAUSED, was_reason=funds)
    conn.execute("UPDATE signer SET status = 'paused', status_reason = 'operator'")
    assert not change(SignerStatus.ACTIVE, None, was=SignerStatus.PAUSED, was_reason=funds)


def test_park_opens_a_case_under_the_lease_only(conn, fence, signer):
    subjects = mixed(conn, 3)
    sending.prepare_send(conn, fence, signer.id, wanted(leased(conn, SEND)), PRICE, fake_sign)
    evidence = {subject: {"nonce": n} for n, subject in enumerate(subjects)}
    with pytest.raises(StaleEpoch):
        sending.park(conn, fence._replace(epoch=9), ReasonCode.FOREIGN_NONCE, evidence, "x")
    assert statuses(conn, subjects) == ["tx_in_flight"] * 3
    assert sorted(sending.park(conn, fence, ReasonCode.FOREIGN_NONCE, evidence, "x")) == sorted(subjects)
    assert statuses(conn, subjects) == ["needs_review"] * 3
    cases = conn.execute("SELECT reason_code, evidence, status FROM review_case ORDER BY subject_id, kind").fetchall()
    assert {case[0] for case in cases} == {"foreign_nonce"}
    assert sorted(case[1]["nonce"] for case in cases) == [0, 1, 2]


def test_revert_ends_rows_attempts_and_cases(conn, fence, signer):
    subjects = mixed(conn, 3)
    sending.prepare_send(conn, fence, signer.id, wanted(leased(conn, SEND)), PRICE, fake_sign)
    sending.park(conn, fence, ReasonCode.OUTCOME_UNKNOWN, {subjects[1]: {}}, "x")
    found = [store.Found(7 + n, 1, 0, 50, b"h" * 32, True) for n in range(2)]
    items = [
        sending.Reverted(subject, item, "validation_failed", "InvalidUserSignature", b"\x2a\x87\x3d\x27")
        for subject, item in zip(subjects, found, strict=False)
    ]
    assert sorted(sending.revert(conn, signer.id, items)) == sorted(subjects[:2])
    assert statuses(conn, subjects) == ["failure", "failure", "tx_in_flight"]
    assert conn.execute("SELECT status, outcome FROM review_case").fetchall() == [("closed", "revert")]
    assert [slot[3] for slot in slots(conn)] == ["mined", "mined", "signed"]
    assert sending.revert(conn, signer.id, items) == []


def test_receipts_settle_slots_and_vanish_again_with_their_block(conn, fence, signer):
    mixed(conn, 3)
    prepared = sending.prepare_send(conn, fence, signer.id, wanted(leased(conn, SEND)), PRICE, fake_sign)
    store.record_sends(conn, signer.id, [outcome(7 + n, AttemptState.ACCEPTED) for n in range(3)])
    looked = store.open_attempts(conn, signer.id, 10)
    assert [(item.nonce, item.subject, item.tx_hash) for item in looked] == [
        (p.nonce, p.held.subject, p.tx_hash) for p in prepared
    ]
    assert all(0 < item.age_seconds < 60 for item in looked)
    assert len(store.open_attempts(conn, signer.id, 2)) == 2
    good, failed, none = (store.Found(n, 1, s, b, h, d) for n, s, b, h, d in (
        (7, 1, 90, b"a" * 32, True), (8, 0, 90, b"a" * 32, False), (9, None, None, None, False)))  # fmt: skip
    assert store.record_lookups(conn, signer.id, [good, failed, none]) == 2
    rows = "SELECT state, block_number, receipt_status FROM tx_attempt ORDER BY nonce"
    assert conn.execute(rows).fetchall() == [("mined", 90, 1), ("accepted", 90, 0), ("accepted", None, None)]
    assert [slot[3] for slot in slots(conn)] == ["mined", "live", "live"]
    assert store.record_lookups(conn, signer.id, [store.Found(8, 1, None, None, None, False)]) == 1
    assert conn.execute(rows).fetchall()[1] == ("accepted", None, None)
    due = nonces.slots_to_finalize(conn, signer.id, 9, 10)
    assert [one.nonce for one in due] == [7]
    assert len(nonces.finalize_slots(conn, signer.id, [7, 8])) == 1
    assert nonces.finalize_slots(conn, signer.id, [7, 8]) == []
    assert conn.execute("SELECT state FROM tx_attempt WHERE nonce = 7").fetchone() == ("final",)
    bodies = store.request_bodies(conn, [p.held.subject for p in prepared])
    assert set(bodies) == {p.held.subject for p in prepared}


def test_transient_guards_do_not_turn_the_plan_quadratic(conn, fence, signer):
    """T4: with fresh statistics and no row in the transient state, the rows must still be found by key."""
    for kind, (column, value) in FILLERS.items():
        table = Identifier(kind.table)
        conn.execute(FILL.format(table=table, column=SQL(column), value=SQL(value)))
        conn.execute(SQL("ANALYZE {}").format(table))
    ids = list(range(1, 501))
    for name in ("claim_sends", "store_sends", "admit_requests", "end_unsent"):
        plan = _explain(conn, name, {
            **fence._asdict(), "signer": signer.id, "sources": ["queued"], "kind": [1 + n % 3 for n in ids], "subject": ids,
            "nonce": ids, "hash": [b"h"] * 500, "raw": [b"r"] * 500, "gas": ids, "target": "processing", "deadline": 5,
            "verb": "v", "source": "s", "actor": "a", "max_fee": 1, "max_priority": 1, "job": ids, "attempt": ids,
            "queue": "send", "owner": "o", "seconds": 30.0, "label": ["l"] * 500, "detail": ["d"] * 500, "selector": [None] * 500,
        })  # fmt: skip
        scans = [node for node in _nodes(plan) if str(node.get("Relation Name", "")).endswith("_req")]
        assert scans
        for node in scans:
            assert "_status" not in node.get("Index Name", ""), node
            inner_scan = node["Node Type"] == "Seq Scan" and node.get("Parent Relationship") == "Inner"
            assert not (inner_scan and node.get("Parent Node") == "Nested Loop"), node


def _explain(conn, name, parameters):
    with psycopg.Cursor(conn) as cursor:
        text = "EXPLAIN (FORMAT JSON) " + sql.statement("sending", name)
        return cursor.execute(text, parameters).fetchone()[0][0]["Plan"]


def _nodes(plan, parent=None):
    yield {**plan, "Parent Node": parent}
    for child in plan.get("Plans", []):
        yield from _nodes(child, plan["Node Type"])


def test_a_connection_that_broke_before_the_commit_prepares_nothing(conn, fence, signer, monkeypatch):
    """psycopg leaves a transaction block silently when it knows that its connection is broken: no bytes may come of that (R2)."""
    mixed(conn, 3)
    with connect("worker") as own:
        deliveries = leased(own, SEND)
        monkeypatch.setattr(sending, "crash_point", lambda name: own.close() if name.startswith("before_") else None)
        with pytest.raises(psycopg.OperationalError):
            sending.prepare_send(own, fence, signer.id, wanted(deliveries), PRICE, fake_sign)
    assert slots(conn) == []
