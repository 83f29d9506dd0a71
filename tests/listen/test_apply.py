"""What the applier does to requests, in whatever order the chain's words arrive."""

from __future__ import annotations

import psycopg
import pytest

from requests_app.states import REQUEST_KINDS, Kind
from requests_app.store import consumers, envelopes
from tests.listen import world
from tests.listen.world import SOURCE, THRESHOLD, answered, applier, record, requested, row, sent, share, status, verbs

PROOF_DONE = ["record_receipt", "complete"]


def test_whole_life_in_one_page(log: psycopg.Connection) -> None:
    """Request events and answers of all kinds in one page: everything completes in that transaction."""
    (user,), (public,), (proof,), (refused,) = (
        sent(log, Kind.USER_DECRYPT), sent(log, Kind.PUBLIC_DECRYPT), sent(log, Kind.INPUT_PROOF), sent(log, Kind.INPUT_PROOF)
    )  # fmt: skip
    page = [requested(one, (1, n)) for n, one in enumerate((user, public, proof, refused))]
    page += [share(user.ref, n, (2, n)) for n in range(13)]
    page += [answered(public, (2, 20)), answered(proof, (2, 21)), answered(refused, (2, 22), rejected=True)]
    page += [world.consensus(user.ref, (2, 30))]
    record(log, 1, 2, page)
    assert applier().catch_up(log) == len(page)

    done = row(log, user)
    assert (done.status, done.resolved_threshold, done.gw_reference_id, done.receipt_block) == (
        "completed",
        9,
        user.ref,
        1,
    )
    assert done.gw_consensus_tx_hash == page[-1].tx_hash
    assert done.gw_req_tx_hash == user.tx_hash
    assert done.completed_at is not None
    assert done.deadline_at is None
    assert row(log, public).res == {"decrypted_value": "0x2a", "signatures": ["0x" + "73" * 65], "extra_data": "0x00"}
    assert row(log, public).gw_response_tx_hash == page[17].tx_hash
    assert (row(log, proof).accepted, row(log, proof).res["handles"]) == (True, ["0x" + "68" * 32])
    late = row(log, refused)
    assert (late.status, late.accepted, late.res, late.fail_detail) == ("completed", False, None, "Proof Rejected")
    assert [verbs(log, one) for one in (user, public, proof, refused)] == [PROOF_DONE] * 4
    assert log.execute("SELECT DISTINCT state, receipt_status FROM tx_attempt").fetchall() == [("mined", 1)]
    assert log.execute("SELECT DISTINCT state FROM nonce_slot").fetchall() == [("mined",)]
    assert log.execute("SELECT n FROM gateway_ref WHERE kind=1").fetchone() == (13,)


def test_share_by_share_completes_at_the_threshold(log: psycopg.Connection) -> None:
    (one,) = sent(log, Kind.USER_DECRYPT)
    work = applier()
    record(log, 1, 1, [requested(one, (1, 0))])
    work.catch_up(log)
    for n in range(THRESHOLD):
        assert status(log, one) == "receipt_received"
        found = [share(one.ref, n, (2 + n, 0))]
        record(log, 2 + n, 2 + n, found)
        work.offer(log, found, 2 + n, 2 + n)
    assert status(log, one) == "completed"


@pytest.mark.parametrize("kind", list(REQUEST_KINDS))
def test_answers_before_the_request_event(log: psycopg.Connection, kind: Kind) -> None:
    """An answer whose reference nobody has bound waits in the log until it is bound (I2)."""
    (one,) = sent(log, kind)
    early = [share(one.ref, n, (1, n)) for n in range(9)] if kind is Kind.USER_DECRYPT else [answered(one, (1, 0))]
    early += [world.consensus(one.ref, (1, 20))] if kind is Kind.USER_DECRYPT else []
    work = applier()
    record(log, 1, 1, early)
    work.catch_up(log)
    assert status(log, one) == "tx_in_flight"
    late = [requested(one, (2, 0))]
    record(log, 2, 2, late)
    work.offer(log, late, 2, 2)
    assert status(log, one) == "completed"
    if kind is Kind.USER_DECRYPT:
        assert row(log, one).gw_consensus_tx_hash == early[-1].tx_hash


def test_purged_early_shares_come_back_from_the_log(log: psycopg.Connection) -> None:
    (one,) = sent(log, Kind.USER_DECRYPT)
    work = applier()
    record(log, 1, 1, [share(one.ref, n, (1, n)) for n in range(9)])
    work.catch_up(log)
    log.execute("DELETE FROM user_decrypt_share")
    log.execute("DELETE FROM gateway_ref")
    record(log, 2, 2, [requested(one, (2, 0))])
    work.catch_up(log)
    assert status(log, one) == "completed"


@pytest.mark.parametrize("kind", list(REQUEST_KINDS))
def test_everything_twice_and_backwards(log: psycopg.Connection, kind: Kind) -> None:
    (one,) = sent(log, kind)
    page = [requested(one, (1, 0)), requested(one, (1, 1), handles=True)]
    page += [share(one.ref, n, (2, n)) for n in range(13)] if kind is Kind.USER_DECRYPT else [answered(one, (2, 0))]
    record(log, 1, 2, page[::-1])
    work = applier(page=3)
    work.catch_up(log)
    before = row(log, one)
    assert before.status == "completed"
    work.apply_now(log, page[::-1])
    work.apply_now(log, [one for one in page for _ in range(2)])
    assert row(log, one) == before
    assert verbs(log, one) == PROOF_DONE
    if kind is Kind.USER_DECRYPT:
        assert log.execute("SELECT n, (SELECT count(*) FROM user_decrypt_share) FROM gateway_ref").fetchall() == [
            (13, 13)
        ]


@pytest.mark.parametrize("final", ["failure", "timed_out"])
@pytest.mark.parametrize("kind", list(REQUEST_KINDS))
def test_final_rows_never_change(log: psycopg.Connection, kind: Kind, final: str) -> None:
    """I4: late receipts and answers are stored and change nothing."""
    (one,) = sent(log, kind)
    log.execute(f"UPDATE {kind.table} SET status=%s, completed_at=clock_timestamp() WHERE id=%s", (final, one.id))
    before = row(log, one)
    page = [requested(one, (1, 0))]
    page += [share(one.ref, n, (2, n)) for n in range(13)] if kind is Kind.USER_DECRYPT else [answered(one, (2, 0))]
    record(log, 1, 2, page)
    applier().catch_up(log)
    assert row(log, one) == before
    assert verbs(log, one) == []
    assert log.execute("SELECT count(*) FROM dead_envelope").fetchone() == (0,)


def test_a_row_in_review_is_taken_up_by_its_receipt(log: psycopg.Connection) -> None:
    (one,) = sent(log, Kind.PUBLIC_DECRYPT, status="needs_review")
    log.execute(
        "INSERT INTO review_case (kind,subject_id,reason_code,evidence) VALUES (2,%s,'outcome_unknown','{}')", (one.id,)
    )
    record(log, 1, 2, [requested(one, (1, 0)), answered(one, (2, 0))])
    applier().catch_up(log)
    assert status(log, one) == "completed"
    assert log.execute("SELECT status, outcome FROM review_case").fetchall() == [("closed", "record_receipt")]


def test_the_replaced_attempt_is_told_from_the_mined_one(log: psycopg.Connection) -> None:
    (one,) = sent(log, Kind.PUBLIC_DECRYPT)
    log.execute(
        "INSERT INTO tx_attempt (signer_id,nonce,seq,tx_hash,raw_tx,max_fee_per_gas,max_priority_fee,gas_limit,state,epoch) "
        "SELECT signer_id,nonce,2,%s,'\\x02',2,2,21000,'accepted',1 FROM tx_attempt", (b"\x77" * 32,)
    )  # fmt: skip
    one.tx_hash = b"\x77" * 32
    record(log, 1, 1, [requested(one, (1, 0))])
    applier().catch_up(log)
    assert log.execute("SELECT seq, state FROM tx_attempt ORDER BY seq").fetchall() == [(1, "replaced"), (2, "mined")]
    assert log.execute("SELECT winner_hash FROM nonce_slot").fetchone() == (b"\x77" * 32,)


def test_foreign_traffic_changes_no_request(log: psycopg.Connection) -> None:
    (ours,) = sent(log, Kind.USER_DECRYPT)
    stranger = world.Ours(Kind.USER_DECRYPT, 0, b"\x66" * 32, world.new_ref(Kind.USER_DECRYPT))
    record(log, 1, 2, [requested(stranger, (1, 0)), *[share(stranger.ref, n, (2, n)) for n in range(13)]])
    applier().catch_up(log)
    assert status(log, ours) == "tx_in_flight"
    assert log.execute("SELECT request_id FROM gateway_ref").fetchall() == [(None,)]


def test_threshold_look_up_that_fails_first(log: psycopg.Connection) -> None:
    """The shares are stored and counted meanwhile; the retry completes the row without another share."""
    from requests_app.transitions.answers import resolve_thresholds
    from workers.chain.rpc_errors import RpcUnavailable

    def fails(context: int) -> int:
        raise RpcUnavailable("down", sent=False)

    (one,) = sent(log, Kind.USER_DECRYPT)
    extra = b"\x01" + (7).to_bytes(32, "big")
    record(log, 1, 2, [requested(one, (1, 0)), *[share(one.ref, n, (2, n), extra=extra) for n in range(5)]])
    applier(fails).catch_up(log)
    assert status(log, one) == "receipt_received"
    assert log.execute("SELECT n, threshold FROM gateway_ref").fetchone() == (5, None)
    assert resolve_thresholds(log, {one.ref: 5}) == 1
    assert (status(log, one), row(log, one).resolved_threshold) == ("completed", 5)


def test_threshold_of_the_context_is_used(log: psycopg.Connection) -> None:
    asked: list[int] = []
    (one,) = sent(log, Kind.USER_DECRYPT)
    extra = b"\x02" + (7).to_bytes(32, "big") + (1).to_bytes(32, "big")
    record(log, 1, 2, [requested(one, (1, 0)), *[share(one.ref, n, (2, n), extra=extra) for n in range(4)]])
    applier(lambda context: asked.append(context) or 4).catch_up(log)
    assert (status(log, one), row(log, one).resolved_threshold) == ("completed", 4)
    assert asked == [7]


def test_share_beyond_a_threshold_that_was_stepped_over(log: psycopg.Connection) -> None:
    """`>=`, not `==`: the count may jump over the threshold."""
    from requests_app.transitions.answers import resolve_thresholds

    (one,) = sent(log, Kind.USER_DECRYPT)
    extra = b"\x01" + (9).to_bytes(32, "big")
    record(log, 1, 2, [requested(one, (1, 0)), *[share(one.ref, n, (2, n), extra=extra) for n in range(12)]])
    applier(None).catch_up(log)
    assert resolve_thresholds(log, {one.ref: 9}) == 1


def test_poison_is_parked_alone(log: psycopg.Connection) -> None:
    """An envelope that cannot be read, one from the wrong contract, and one that the database refuses; 27 good ones go on."""
    ours = sent(log, Kind.USER_DECRYPT, 3)
    page = [requested(one, (1, n)) for n, one in enumerate(ours)]
    page += [share(one.ref, n, (2, 20 * m + n)) for m, one in enumerate(ours) for n in range(9)]
    signature = "UserDecryptionResponse(uint256,uint256,bytes,bytes,bytes)"
    values = (0, b"x", b"s", b"")
    wrong = world.event(signature, (2, 90), ours[0].ref, b"\x01" * 32, values, contract=b"\xee" * 20)
    record(log, 1, 2, [*page, wrong])
    torn = page[3].position
    log.execute("UPDATE envelope_blob SET payload = substr(payload, 1, 70) WHERE position=%s", (torn,))
    log.execute(
        "ALTER TABLE user_decrypt_share ADD CONSTRAINT poison CHECK (position <> %d)" % page[12].position  # noqa: UP031
    )
    try:
        applier().catch_up(log)
    finally:
        log.execute("ALTER TABLE user_decrypt_share DROP CONSTRAINT poison")
    parked = log.execute("SELECT position, error_class, retryable FROM dead_envelope ORDER BY position").fetchall()
    assert parked == [
        (torn, "BadLog", False),
        (page[12].position, "CheckViolation", True),
        (wrong.position, "WrongContract", False),
    ]
    assert [status(log, one) for one in ours] == ["receipt_received", "receipt_received", "completed"]
    assert consumers.read_consumer(log, SOURCE).position == envelopes.last_position(2)


def test_two_appliers_take_turns(two_conns: tuple[psycopg.Connection, psycopg.Connection]) -> None:
    first, second = two_conns
    world.clean(first)
    (one,) = sent(first, Kind.PUBLIC_DECRYPT)
    left, right = applier(), applier()
    left.catch_up(first)
    right.catch_up(second)
    page = [requested(one, (1, 0)), answered(one, (1, 1))]
    record(first, 1, 1, page)
    left.offer(first, page, 1, 1)
    right.offer(second, page, 1, 1)
    assert verbs(first, one) == PROOF_DONE
    assert right.catch_up(second) == 0


def test_nothing_is_applied_above_the_seal(log: psycopg.Connection) -> None:
    (one,) = sent(log, Kind.PUBLIC_DECRYPT)
    record(log, 1, 3, [])
    log.execute("INSERT INTO envelope_meta SELECT 1, %s, 1, %s, %s, %s, %s, %s", (
        envelopes.position_of(4), one.ref, world.DECRYPTION, world.block_hash(4), one.tx_hash, b"d",
    ))  # fmt: skip
    assert applier().catch_up(log) == 0
    assert status(log, one) == "tx_in_flight"


def test_a_long_backlog_is_taken_in_pieces(log: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop comes round in between, so that the lease of a listener with hours to catch up lives on."""
    import workers.apply

    ours = sent(log, Kind.PUBLIC_DECRYPT, 4)
    record(
        log,
        1,
        4,
        [event for n, one in enumerate(ours) for event in (requested(one, (n + 1, 0)), answered(one, (n + 1, 1)))],
    )
    monkeypatch.setattr(workers.apply, "CATCH_UP_SECONDS", 0.0)
    work = applier(page=2)
    assert (work.catch_up(log), work.behind) == (0, True)
    monkeypatch.setattr(workers.apply, "CATCH_UP_SECONDS", 30.0)
    assert (work.catch_up(log), work.behind) == (8, False)
    assert {status(log, one) for one in ours} == {"completed"}


@pytest.mark.parametrize("kind", list(REQUEST_KINDS))
def test_an_answer_decides_a_row_that_waits_in_review(log: psycopg.Connection, kind: Kind) -> None:
    """Parked after its receipt (say, the answer could not be read): the answer itself ends the review (I2)."""
    (one,) = sent(log, kind)
    work = applier()
    record(log, 1, 1, [requested(one, (1, 0))])
    work.catch_up(log)
    log.execute(f"UPDATE {kind.table} SET status='needs_review', deadline_at=NULL WHERE id=%s", (one.id,))
    log.execute(
        "INSERT INTO review_case (kind,subject_id,reason_code,evidence) VALUES (%s,%s,'outcome_unknown','{}')",
        (kind.value, one.id),
    )
    before = row(log, one)
    found = [share(one.ref, n, (2, n)) for n in range(9)] if kind is Kind.USER_DECRYPT else [answered(one, (2, 0))]
    record(log, 2, 2, found)
    work.offer(log, found, 2, 2)
    done = row(log, one)
    assert done.status == "completed"
    assert (done.gw_reference_id, done.gw_req_tx_hash, done.receipt_block) == (
        before.gw_reference_id,
        before.gw_req_tx_hash,
        1,
    )
    assert verbs(log, one) == ["record_receipt", "record_receipt", "complete"]
    assert log.execute("SELECT status FROM review_case").fetchall() == [("closed",)]
