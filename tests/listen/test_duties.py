"""The duties: no row waits for ever, nothing live is purged, lost jobs come back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from requests_app.config import config
from requests_app.errors import StaleEpoch
from requests_app.states import REQUEST_KINDS, Kind
from tests.listen import world
from tests.listen.stub_chain import CHAIN_ID, NO_ANSWER, StubChain, running
from tests.listen.world import Ours, answered, record, requested, row, sent, share, status, verbs
from workers.chain.clients import Clients
from workers.duties import bands, deadlines, jobs, keys, retention, thresholds
from workers.sweep import DutyTurn, duties

Connection = psycopg.Connection[Any]


class Lease:
    """The duty's lease as the table knows it."""

    resource, instance, epoch, lost = "singleton:deadlines", "test", 7, False

    def release(self) -> None:
        self.lost = True


class Context:
    """What a duty sees of a process."""

    def __init__(self, conn: Connection, clients: Clients) -> None:
        self.conn, self.clients, self.instance, self.leases = conn, clients, "test", self
        self.lease: Lease | None = Lease()

    def try_hold(self, resource: str) -> Lease | None:
        return self.lease

    def stopping(self) -> bool:
        return False


@pytest.fixture
def chain() -> StubChain:
    return StubChain()


@pytest.fixture
def context(log: Connection, chain: StubChain, settings: Any) -> Iterator[Any]:
    log.execute(
        "INSERT INTO exec_lease (resource,instance,epoch,lease_until) VALUES ('singleton:deadlines','test',7,'infinity')"
    )
    settings.DECRYPTION_ADDRESS, settings.INPUT_VERIFICATION_ADDRESS = (
        "0x" + world.DECRYPTION.hex(),
        "0x" + world.INPUTS.hex(),
    )
    settings.GATEWAY_SIGNER_KEYS, settings.HOST_CHAINS, settings.FEE_TOKEN_ADDRESS = [], [], ""
    settings.GATEWAY_CHAIN_ID, settings.USER_DECRYPT_SHARES_THRESHOLD = CHAIN_ID, 9
    with running(chain) as (clients, node):
        settings.GATEWAY_RPC_URLS = [node.url]
        config.cache_clear()
        yield Context(log, clients)
    config.cache_clear()


def overdue(
    conn: Connection, kind: Kind, state: str, *, late: float = 100, attempts: bool = True, spent: float = 100
) -> Ours:
    (one,) = sent(conn, kind, status=state, attempts=attempts)
    conn.execute(
        f"UPDATE {kind.table} SET deadline_at = clock_timestamp() - make_interval(secs => %s), "
        "state_entered_at = clock_timestamp() - make_interval(secs => %s) WHERE id = %s",
        (late, spent, one.id),
    )
    return one


def received(conn: Connection, kind: Kind, block: int = 1, *, spent: float = 100) -> Ours:
    """A row whose request event was applied, past its response deadline."""
    (one,) = sent(conn, kind)
    record(conn, 1, block, [requested(one, (block, 0))])
    world.applier().catch_up(conn)
    conn.execute(
        f"UPDATE {kind.table} SET deadline_at = clock_timestamp() - interval '1 second', "
        "state_entered_at = clock_timestamp() - make_interval(secs => %s) WHERE id = %s",
        (spent, one.id),
    )
    return one


def run(context: Any) -> int:
    return deadlines.run(context, Lease())  # type: ignore[arg-type]


def case(conn: Connection, one: Ours) -> Any:
    return conn.execute(
        "SELECT reason_code, evidence FROM review_case WHERE kind=%s AND subject_id=%s AND status='open'",
        (one.kind.value, one.id),
    ).fetchone()


def test_queued_times_out_after_the_grace_of_readiness(log: Connection, context: Any) -> None:
    late = overdue(log, Kind.USER_DECRYPT, "queued", late=61, attempts=False)
    early = overdue(log, Kind.USER_DECRYPT, "queued", late=5, attempts=False)
    log.execute(
        "INSERT INTO queue_job (queue,job_key,kind,subject_id,tenant_id) VALUES ('ready',%s,1,%s,1)",
        (f"1/{late.id}", late.id),
    )
    assert run(context) == 1
    done = row(log, late)
    assert (done.status, done.fail_label) == ("timed_out", "readiness_check_timed_out")
    assert done.fail_detail == "Ciphertext not ready for decryption on the gateway chain"
    assert status(log, early) == "queued"
    assert log.execute("SELECT count(*) FROM queue_job").fetchone() == (0,)


@pytest.mark.parametrize("kind", list(REQUEST_KINDS))
def test_processing_without_an_attempt_fails(log: Connection, context: Any, kind: Kind) -> None:
    one = overdue(log, kind, "processing", attempts=False)
    run(context)
    assert (status(log, one), row(log, one).fail_label, verbs(log, one)) == (
        "failure",
        "internal_server_error",
        ["abandon"],
    )
    assert log.execute("SELECT actor, epoch FROM req_transition").fetchone() == ("sweep", 7)


def test_processing_with_an_attempt_goes_to_a_person(log: Connection, context: Any) -> None:
    one = overdue(log, Kind.PUBLIC_DECRYPT, "processing")
    run(context)
    assert (status(log, one), case(log, one)[0]) == ("needs_review", "outcome_unknown")


@pytest.mark.parametrize(("spent", "ends"), [(100.0, "receipt_received"), (1e6, "needs_review")])
@pytest.mark.parametrize("doubt", ["halted", "behind"])
def test_silence_is_believed_of_a_chain_that_is_not_in_doubt_only(
    log: Connection, context: Any, chain: StubChain, doubt: str, spent: float, ends: str
) -> None:
    """A halted source: two nodes show two chains. A node far below what is sealed: it cannot know of the answer yet."""
    one = received(log, Kind.PUBLIC_DECRYPT, 50, spent=spent)
    chain.head = 29 if doubt == "behind" else 50
    if doubt == "halted":
        log.execute("UPDATE envelope_source SET halted = 'two chains'")
    run(context)
    assert status(log, one) == ends
    if ends == "receipt_received":
        log.execute("UPDATE envelope_source SET halted = NULL")
        log.execute("UPDATE public_decrypt_req SET deadline_at = clock_timestamp()")
        chain.head = 30
        run(context)
        assert status(log, one) == "timed_out"


@pytest.mark.parametrize("kind", list(REQUEST_KINDS))
def test_in_flight_without_a_receipt_goes_to_a_person_with_the_evidence(
    log: Connection, context: Any, kind: Kind
) -> None:
    one = overdue(log, kind, "tx_in_flight")
    run(context)
    assert status(log, one) == "needs_review"
    assert case(log, one)[1]["attempts"][0]["tx_hash"] == "0x" + one.tx_hash.hex()
    assert row(log, one).deadline_at is None


def test_in_flight_with_a_receipt_is_applied_from_it(log: Connection, chain: StubChain, context: Any) -> None:
    """The node withheld the event when its block was sealed: the receipt brings it, the log is repaired."""
    one = overdue(log, Kind.PUBLIC_DECRYPT, "tx_in_flight")
    record(log, 1, 5, [])
    chain.head = 5
    chain.mine(one.tx_hash, requested(one, (3, 0)))
    run(context)
    assert status(log, one) == "receipt_received"
    assert log.execute("SELECT count(*) FROM gateway_envelope WHERE ref=%s", (one.ref,)).fetchone() == (1,)


def test_in_flight_with_a_receipt_above_the_seal_waits_for_the_listener(
    log: Connection, chain: StubChain, context: Any
) -> None:
    one = overdue(log, Kind.PUBLIC_DECRYPT, "tx_in_flight")
    chain.head = 5
    chain.mine(one.tx_hash, requested(one, (3, 0)))
    run(context)
    assert status(log, one) == "tx_in_flight"
    assert log.execute("SELECT deadline_at > clock_timestamp() FROM public_decrypt_req").fetchone() == (True,)
    assert log.execute("SELECT count(*) FROM envelope_meta").fetchone() == (0,)


def test_a_nonce_that_was_spent_on_nothing_is_no_receipt(log: Connection, chain: StubChain, context: Any) -> None:
    """Found by the crash matrix: who dies between a refusal and the review leaves the filled nonce to the deadline."""
    one = overdue(log, Kind.PUBLIC_DECRYPT, "tx_in_flight")
    log.execute(
        "INSERT INTO tx_attempt (signer_id,nonce,seq,tx_hash,raw_tx,max_fee_per_gas,max_priority_fee,gas_limit,state,epoch,kind) "
        "SELECT signer_id,nonce,2,%s,raw_tx,2,2,21000,'mined',1,'fill' FROM tx_attempt",
        (b"\x77" * 32,),
    )
    chain.mine(b"\x77" * 32)
    assert run(context) == 1
    assert (status(log, one), case(log, one)[0]) == ("needs_review", "outcome_unknown")
    assert len(case(log, one)[1]["attempts"]) == 2


def test_in_flight_reverted_is_left_to_the_sender(log: Connection, chain: StubChain, context: Any) -> None:
    one = overdue(log, Kind.PUBLIC_DECRYPT, "tx_in_flight")
    chain.mine(one.tx_hash, status=0)
    run(context)
    assert (status(log, one), case(log, one)) == ("tx_in_flight", None)


def test_in_flight_is_not_judged_while_the_chain_does_not_answer(
    log: Connection, chain: StubChain, context: Any
) -> None:
    one = overdue(log, Kind.PUBLIC_DECRYPT, "tx_in_flight")
    chain.faults["eth_getTransactionReceipt"] = NO_ANSWER
    run(context)
    assert status(log, one) == "tx_in_flight"


def test_but_not_for_ever(log: Connection, chain: StubChain, context: Any) -> None:
    one = overdue(log, Kind.PUBLIC_DECRYPT, "tx_in_flight", spent=10_000)
    chain.faults["eth_getTransactionReceipt"] = NO_ANSWER
    run(context)
    assert status(log, one) == "needs_review"


@pytest.mark.parametrize("kind", list(REQUEST_KINDS))
def test_no_answer_times_out_after_the_chain_was_asked(
    log: Connection, chain: StubChain, context: Any, kind: Kind
) -> None:
    one = received(log, kind)
    run(context)
    done = row(log, one)
    assert (done.status, done.fail_label) == ("timed_out", "response_timed_out")
    assert done.fail_detail == "Gateway chain did not respond within the expected timeframe"
    assert {method for method, _ in chain.asked} - {"eth_chainId"} == {"eth_call", "eth_getBlockByNumber"}


@pytest.mark.parametrize("kind", list(REQUEST_KINDS))
def test_an_answer_that_the_log_lacks_is_read_again(
    log: Connection, chain: StubChain, context: Any, kind: Kind
) -> None:
    one = received(log, kind)
    record(log, 2, 9, [])
    world.applier().catch_up(log)
    missing = [share(one.ref, n, (4, n)) for n in range(9)] if kind is Kind.USER_DECRYPT else [answered(one, (4, 0))]
    chain.put(requested(one, (1, 0)), *missing, head=9)
    chain.done.add(one.ref)
    run(context)
    assert (status(log, one), verbs(log, one)) == ("completed", ["record_receipt", "complete"])
    assert log.execute("SELECT count(*) FROM envelope_meta").fetchone() == (len(missing) + 1,)


def test_a_rejected_proof_that_the_log_lacks_is_read_again(log: Connection, chain: StubChain, context: Any) -> None:
    one = received(log, Kind.INPUT_PROOF)
    record(log, 2, 9, [])
    chain.put(answered(one, (4, 0), rejected=True), head=9)
    chain.rejected.add(one.ref)
    run(context)
    assert (status(log, one), row(log, one).accepted) == ("completed", False)


def test_an_answer_that_cannot_be_read_gets_time_and_then_a_person(
    log: Connection, chain: StubChain, context: Any
) -> None:
    one = received(log, Kind.PUBLIC_DECRYPT)
    chain.done.add(one.ref)
    run(context)
    assert status(log, one) == "receipt_received"
    assert run(context) == 0
    old = received(log, Kind.PUBLIC_DECRYPT, 2, spent=10_000)
    chain.done.add(old.ref)
    run(context)
    assert (status(log, old), status(log, one)) == ("needs_review", "receipt_received")


def test_unanswered_is_not_judged_while_the_chain_does_not_answer(
    log: Connection, chain: StubChain, context: Any
) -> None:
    one = received(log, Kind.PUBLIC_DECRYPT)
    chain.faults["eth_call"] = NO_ANSWER
    run(context)
    assert status(log, one) == "receipt_received"
    log.execute("UPDATE public_decrypt_req SET state_entered_at = clock_timestamp() - interval '1 day'")
    run(context)  # but not for ever: a contract may have lost the view
    assert (status(log, one), case(log, one)[0]) == ("needs_review", "outcome_unknown")


def test_a_row_that_moves_while_the_chain_is_asked_is_left_alone(
    log: Connection, chain: StubChain, context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The receipt is applied between the question and the decision: the decision must not hit the row's next state."""
    one = overdue(log, Kind.PUBLIC_DECRYPT, "tx_in_flight")
    ask = deadlines.chain_evidence.receipts

    def meanwhile(*args: Any) -> Any:
        found = ask(*args)
        record(log, 1, 1, [requested(one, (1, 0))])
        world.applier().catch_up(log)
        return found

    monkeypatch.setattr(deadlines.chain_evidence, "receipts", meanwhile)
    run(context)
    assert (status(log, one), case(log, one)) == ("receipt_received", None)


def test_a_stale_duty_decides_nothing(log: Connection, context: Any) -> None:
    one = overdue(log, Kind.PUBLIC_DECRYPT, "processing", attempts=False)
    log.execute("UPDATE exec_lease SET epoch = 8 WHERE resource = 'singleton:deadlines'")
    with pytest.raises(StaleEpoch):
        run(context)
    assert (status(log, one), verbs(log, one)) == ("processing", [])


def test_rows_in_time_in_review_or_final_are_not_looked_at(log: Connection, context: Any) -> None:
    sent(log, Kind.PUBLIC_DECRYPT)
    sent(log, Kind.PUBLIC_DECRYPT, status="needs_review")
    (done,) = sent(log, Kind.PUBLIC_DECRYPT)
    log.execute(
        "UPDATE public_decrypt_req SET status='failure', completed_at=clock_timestamp(), deadline_at=now()-interval '1 day' WHERE id=%s",
        (done.id,),
    )
    assert run(context) == 0


def test_lost_jobs_come_back_once(log: Connection, context: Any) -> None:
    lost = overdue(log, Kind.USER_DECRYPT, "queued", late=-1000, spent=61, attempts=False)
    ready = overdue(log, Kind.INPUT_PROOF, "processing", late=-1000, spent=61, attempts=False)
    overdue(log, Kind.PUBLIC_DECRYPT, "processing", late=-1000, spent=61)  # signed: the sender has it
    overdue(log, Kind.PUBLIC_DECRYPT, "queued", late=-1000, spent=5, attempts=False)  # its job may be on the way
    assert jobs.run(context, Lease()) == 2  # type: ignore[arg-type]
    assert jobs.run(context, Lease()) == 0  # type: ignore[arg-type]
    assert log.execute("SELECT queue, job_key, priority FROM queue_job ORDER BY job_key").fetchall() == [
        ("ready", f"1/{lost.id}", 0),
        ("send", f"3/{ready.id}", 0),
    ]


def test_unresolved_thresholds_are_asked_again(log: Connection, context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = sent(log, Kind.USER_DECRYPT)
    extra = b"\x01" + (3).to_bytes(32, "big")
    record(log, 1, 2, [requested(one, (1, 0)), *[share(one.ref, n, (2, n), extra=extra) for n in range(6)]])
    world.applier().catch_up(log)
    assert thresholds.run(context, Lease()) == 0  # type: ignore[arg-type]
    assert status(log, one) == "receipt_received"
    from workers.thresholds import Thresholds

    monkeypatch.setattr(thresholds, "thresholds_of", lambda settled, clients: Thresholds(9, lambda context: 6))
    assert thresholds.run(context, Lease()) == 1  # type: ignore[arg-type]
    assert status(log, one) == "completed"


def old(conn: Connection, kind: Kind, one: Ours, days: float) -> None:
    conn.execute("SET session_replication_role = replica")  # final rows never change; this test makes one older
    for column in ("completed_at", "updated_at", "created_at"):
        conn.execute(
            f"UPDATE {kind.table} SET {column} = now() - make_interval(secs => %s) WHERE id=%s", (days * 86_400, one.id)
        )
    conn.execute("SET session_replication_role = origin")


def finished(conn: Connection, kind: Kind, block: int) -> Ours:
    (one,) = sent(conn, kind)
    found = [requested(one, (block, 0))]
    found += (
        [share(one.ref, n, (block, n + 1)) for n in range(9)]
        if kind is Kind.USER_DECRYPT
        else [answered(one, (block, 1))]
    )
    record(conn, block, block, found)
    world.applier().catch_up(conn)
    assert status(conn, one) == "completed"
    return one


def left(conn: Connection, one: Ours) -> list[int]:
    tables = ("request_payload", "request_client", "req_transition")
    counts = [f"SELECT count(*) FROM {name} WHERE kind={one.kind.value} AND request_id={one.id}" for name in tables]
    counts += [f"SELECT count(*) FROM {one.kind.table} WHERE id={one.id}"]
    found = [conn.execute(query).fetchone()[0] for query in counts]
    by_ref = [f"SELECT count(*) FROM {name} WHERE gw_reference_id=%s" for name in ("gateway_ref", "user_decrypt_share")]
    return found + [conn.execute(query, (one.ref,)).fetchone()[0] for query in by_ref]


def test_retention_takes_old_final_rows_whole_and_nothing_else(log: Connection, context: Any, settings: Any) -> None:
    settings.RETENTION_ENABLED = True
    user, young, public = (
        finished(log, kind, n) for n, kind in enumerate((Kind.USER_DECRYPT, Kind.USER_DECRYPT, Kind.PUBLIC_DECRYPT), 1)
    )
    old(log, Kind.USER_DECRYPT, user, 8)
    old(log, Kind.USER_DECRYPT, young, 6)
    old(log, Kind.PUBLIC_DECRYPT, public, 8)
    live = [
        sent(log, kind, status=state)[0]
        for kind in REQUEST_KINDS
        for state in ("queued", "processing", "tx_in_flight", "needs_review")
    ]
    for one in live:
        log.execute(
            f"UPDATE {one.kind.table} SET updated_at = now() - interval '2 years', created_at = now() - interval '2 years' WHERE id=%s",
            (one.id,),
        )
    assert retention.run(context, Lease()) == 1  # type: ignore[arg-type]
    assert left(log, user) == [0, 0, 0, 0, 0, 0]
    assert left(log, young) == [1, 1, 2, 1, 1, 9]
    assert left(log, public) == [1, 1, 2, 1, 1, 0]
    assert all(left(log, one)[3] == 1 for one in live)


def test_retention_takes_signed_bytes_that_the_chain_cannot_take_back(
    log: Connection, context: Any, settings: Any
) -> None:
    """They stayed for ever, an input proof's with its whole ciphertext. A nonce that may still be open stays with the sender."""
    settings.RETENTION_ENABLED = True
    done, dead, still = (finished(log, Kind.USER_DECRYPT, n) for n in (1, 2, 3))
    for one, state in ((done, "final"), (dead, "dead"), (still, "mined")):
        old(log, Kind.USER_DECRYPT, one, 8)
        log.execute("UPDATE nonce_slot SET state = %s WHERE kind = 1 AND subject_id = %s", (state, one.id))
    assert retention.run(context, Lease()) == 3  # type: ignore[arg-type]
    assert log.execute("SELECT subject_id, state FROM nonce_slot").fetchall() == [(still.id, "mined")]
    assert log.execute(
        "SELECT count(*), count(*) FILTER (WHERE n.subject_id = %s) FROM tx_attempt t LEFT JOIN nonce_slot n USING (signer_id, nonce)",
        (still.id,),
    ).fetchone() == (1, 1)


def test_signs_of_life_end_a_day_after_the_last(log: Connection, context: Any, settings: Any) -> None:
    settings.RETENTION_ENABLED = False
    for name, hours in (("shift:settle-gone:0", 25), ("shift:settle-here:0", 23)):
        log.execute(
            "INSERT INTO worker_beat (resource, instance, at, turn_at, pid, host)"
            " SELECT %s, 'x', t, t, 1, 'h' FROM (SELECT clock_timestamp() - make_interval(hours => %s) AS t) q",
            (name, hours),
        )
    retention.run(context, Lease())  # type: ignore[arg-type]
    assert log.execute("SELECT resource FROM worker_beat").fetchall() == [("shift:settle-here:0",)]


def test_retention_is_off_by_default(log: Connection, context: Any, settings: Any) -> None:
    settings.RETENTION_ENABLED = False
    one = finished(log, Kind.USER_DECRYPT, 1)
    old(log, Kind.USER_DECRYPT, one, 800)
    assert retention.run(context, Lease()) == 0  # type: ignore[arg-type]
    assert left(log, one)[3] == 1


def test_foreign_references_leave_after_an_hour_and_early_ones_stay(log: Connection, context: Any) -> None:
    (ours,) = sent(log, Kind.USER_DECRYPT)
    stranger, early = world.new_ref(Kind.USER_DECRYPT), world.new_ref(Kind.USER_DECRYPT)
    record(
        log,
        1,
        1,
        [share(ref, n, (1, 10 * m + n)) for m, ref in enumerate((stranger, early, ours.ref)) for n in range(2)],
    )
    world.applier().catch_up(log)
    log.execute("UPDATE gateway_ref SET first_at = now() - interval '61 minutes' WHERE gw_reference_id <> %s", (early,))
    log.execute("UPDATE gateway_ref SET kind = 1, request_id = %s WHERE gw_reference_id = %s", (ours.id, ours.ref))
    assert retention.run(context, Lease()) == 1  # type: ignore[arg-type]
    kept = {one[0] for one in log.execute("SELECT gw_reference_id FROM gateway_ref")}
    assert kept == {early, ours.ref}
    assert {one[0] for one in log.execute("SELECT DISTINCT gw_reference_id FROM user_decrypt_share")} == kept


def test_bands_are_made_ahead(log: Connection, context: Any) -> None:
    world.clean_bands(log)
    record(log, 1, 900, [])
    assert bands.run(context, Lease()) == 2  # type: ignore[arg-type]
    assert [one[0] for one in log.execute("SELECT band_no FROM envelope_band ORDER BY 1")] == [0, 1]
    assert bands.run(context, Lease()) == 0  # type: ignore[arg-type]


def test_keys_without_a_protocol_contract_are_left_alone(context: Any) -> None:
    assert keys.run(context, Lease()) == 0  # type: ignore[arg-type]


def test_a_duty_turn_runs_by_interval_and_only_under_its_lease(context: Any) -> None:
    ran: list[int] = []

    def duty(given: Any, lease: Any) -> int:
        ran.append(lease.epoch)
        return 0

    turn = DutyTurn("deadlines", 3600, duty)
    assert (turn.run(context), turn.run(context)) == (0, 0)
    assert ran == [7]
    turn.close()
    context.lease = None
    other = DutyTurn("deadlines", 0.0, duty)
    assert other.run(context) == 0
    assert ran == [7]


def test_every_duty_is_registered_once() -> None:
    assert sorted(turn.name for turn in duties()) == [
        "bands", "bands_retire", "books", "confirm", "conflicts", "deadlines", "figures", "jobs", "keys", "payment_jobs", "recon", "reorgs",
        "retention", "thresholds", "webhooks",
    ]  # fmt: skip
