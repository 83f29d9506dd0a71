"""The send turn against a node that records every raw transaction: exactly one a row, whatever the node and the process do."""

from __future__ import annotations

import psycopg
import pytest

from requests_app.models.signing import AttemptState
from requests_app.states import REQUEST_KINDS, Kind, Status
from requests_app.store import attempts as store
from tests.core.rows import insert_account, read_request
from tests.send.node import Drop, Fault, parse
from tests.send.scenes import add_request, expire_leases
from tests.waiting import wait_until
from workers import broadcast, replace, settle, verdicts
from workers.chain.fees import padded_gas
from workers.chain.hexdata import hex_data
from workers.settle import SettleTurn

pytestmark = pytest.mark.django_db(transaction=True)


class Killed(BaseException):
    """The process ends here."""


def requests(conn, count, **options):
    kinds = list(REQUEST_KINDS)
    return [add_request(conn, kinds[n % 3], Status.PROCESSING, **options) for n in range(count)]


def statuses(conn, subjects):
    return [read_request(conn, s.kind, s.id).status for s in subjects]


def attempts(conn):
    return conn.execute("SELECT nonce, state, send_count, error_class FROM tx_attempt ORDER BY nonce").fetchall()


def jobs(conn):
    return conn.execute("SELECT count(*) FROM queue_job").fetchone()[0]


def age(conn, seconds=20):
    """Let time pass for the attempts."""
    conn.execute(
        "UPDATE tx_attempt SET prepared_at = prepared_at - %(s)s * interval '1 second', "
        "first_sent_at = first_sent_at - %(s)s * interval '1 second', last_sent_at = last_sent_at - %(s)s * interval '1 second'",
        {"s": seconds},
    )


def again(turn):
    """Forget the pauses between two looks of a lane."""
    for lane in turn._pool._lanes.values():
        lane.maintain_at = lane.send_at = lane.sync_at = lane.finalize_at = 0.0
        lane.look_at.clear()


def one_each(node, conn):
    """Every stored attempt reached the node, always with the same bytes, and no nonce carried two."""
    stored = {bytes(raw) for (raw,) in conn.execute("SELECT raw_tx FROM tx_attempt").fetchall()}
    assert set(node.raws) == stored
    assert len({parse(raw).nonce for raw in stored}) == len(stored)


def test_a_batch_is_sent_in_nonce_order_and_acknowledged_last(conn, node, start):
    subjects = requests(conn, 120)
    assert SettleTurn().run(start()) == 120
    assert statuses(conn, subjects) == ["tx_in_flight"] * 120
    assert [parse(raw).nonce for raw in node.raws] == list(range(120))
    assert attempts(conn) == [(n, "accepted", 1, None) for n in range(120)]
    assert jobs(conn) == 0
    sends = [batch for batch in node.batches if "eth_sendRawTransaction" in batch]
    assert [len(batch) for batch in sends] == [50, 50, 20]
    to = {parse(raw).to.hex() for raw in node.raws}
    assert to == {"d0" * 20, "e0" * 20}


def test_nothing_to_do_is_zero(conn, node, start):
    turn = SettleTurn()
    context = start()
    assert turn.run(context) == 0
    assert turn.run(context) == 0
    assert node.raws == []


@pytest.mark.parametrize(
    ("point", "module"),
    [
        ("after_prepare_send_commit", "requests_app.transitions.sending"),
        ("before_broadcast_rpc", "workers.broadcast"),
        ("after_broadcast_rpc", "workers.broadcast"),
        ("before_record_sends_commit", "workers.broadcast"),
    ],
)
def test_a_crash_after_the_commit_is_made_good_by_the_next_holder_with_the_same_bytes(
    conn, node, start, monkeypatch, point, module
):
    subjects = requests(conn, 12)
    with monkeypatch.context() as patch:
        patch.setattr(f"{module}.crash_point", lambda name: _kill_at(point, name))
        first = start()
        with pytest.raises(Killed):
            SettleTurn().run(first)
        first.leases.close()
    assert statuses(conn, subjects) == ["tx_in_flight"] * 12
    assert jobs(conn) == 12
    second = SettleTurn()
    context = start()
    second.run(context)
    assert [row[1] for row in attempts(conn)] == ["accepted"] * 12
    one_each(node, conn)
    conn.execute("UPDATE queue_job SET visible_at = now()")
    again(second)
    second.run(context)
    assert jobs(conn) == 0
    assert len(node.known) == 12


@pytest.mark.parametrize("point", ["before_estimate_rpc", "after_estimate_rpc", "before_prepare_send_commit"])
def test_a_crash_before_the_commit_leaves_nothing(conn, node, start, monkeypatch, point):
    subjects = requests(conn, 6)
    with monkeypatch.context() as patch:
        for module in ("requests_app.transitions.sending", "workers.estimate"):
            patch.setattr(f"{module}.crash_point", lambda name: _kill_at(point, name))
        first = start()
        with pytest.raises(Killed):
            SettleTurn().run(first)
        first.leases.close()
    assert statuses(conn, subjects) == ["processing"] * 6
    assert (attempts(conn), node.raws) == ([], [])
    # The dead process's jobs come free without waiting for their lease.
    assert SettleTurn().run(start()) == 6
    assert len(node.known) == 6


def _kill_at(point, name):
    if name == point:
        raise Killed


def test_a_lost_answer_is_unknown_and_the_same_bytes_go_again(conn, node, start):
    subjects = requests(conn, 4)
    node.after_send = lambda tx: _raise(Drop())
    turn, context = SettleTurn(), start()
    turn.run(context)
    # The first element was taken, its answer lost with the connection; nobody knows about the others.
    assert [row[1] for row in attempts(conn)] == ["unknown"] * 4
    assert jobs(conn) == 0
    node.after_send = None
    _let_the_breaker_close(context)
    age(conn)
    again(turn)
    turn.run(context)
    assert [row[1] for row in attempts(conn)] == ["accepted"] * 4
    one_each(node, conn)
    assert statuses(conn, subjects) == ["tx_in_flight"] * 4


def _raise(error):
    raise error


def _let_the_breaker_close(context):
    for endpoint in context.clients.endpoints.all:
        endpoint._closed_until = 0.0


def test_one_error_object_for_the_batch_sends_the_same_bytes_one_by_one(conn, node, start):
    """Some nodes (web3.py 3518) answer a batch with one error object. Nobody knows what they took of it."""
    requests(conn, 5)

    def refuse(methods):
        if methods.count("eth_sendRawTransaction") > 1:
            raise Fault("batch too large")

    node.on_batch = refuse
    SettleTurn().run(start())
    assert [row[1] for row in attempts(conn)] == ["accepted"] * 5
    one_each(node, conn)


def test_a_refused_connection_is_surely_unsent(conn, node, start):
    requests(conn, 2)

    def hang_up(methods):
        if "eth_sendRawTransaction" in methods:
            raise Drop

    node.on_batch = hang_up
    turn, context = SettleTurn(), start()
    turn.run(context)
    assert {row[1] for row in attempts(conn)} <= {"unknown", "prepared"}
    node.on_batch = None
    _let_the_breaker_close(context)
    age(conn)
    again(turn)
    turn.run(context)
    assert [row[1] for row in attempts(conn)] == ["accepted"] * 2


def test_nonce_too_low_is_not_believed_while_the_chain_counts_less(conn, node, start):
    subjects = requests(conn, 2)
    node.on_send = lambda tx: _raise(Fault("nonce too low", -32603))
    turn, context = SettleTurn(), start()
    turn.run(context)
    assert [(row[1], row[3]) for row in attempts(conn)] == [("unknown", "nonce_too_low")] * 2
    node.on_send = None
    age(conn)
    again(turn)
    turn.run(context)
    assert [row[1] for row in attempts(conn)] == ["accepted"] * 2
    one_each(node, conn)
    assert statuses(conn, subjects) == ["tx_in_flight"] * 2


def test_nonce_too_low_of_our_own_mined_transaction_is_a_success(conn, node, start):
    (subject,) = requests(conn, 1)
    node.after_send = lambda tx: _raise(Drop())
    turn, context = SettleTurn(), start()
    turn.run(context)
    node.after_send = None
    node.mine()
    _let_the_breaker_close(context)
    age(conn)
    again(turn)
    turn.run(context)
    assert [row[1] for row in attempts(conn)] == ["mined"]
    assert conn.execute("SELECT state FROM nonce_slot").fetchone() == ("mined",)
    # The row waits for its request event: a receipt alone names no reference id.
    assert statuses(conn, [subject]) == ["tx_in_flight"]


def test_a_key_used_elsewhere_blocks_the_signer_and_its_open_rows_go_to_review(conn, node, start):
    subjects = requests(conn, 3)
    turn, context = SettleTurn(), start()
    turn.run(context)
    sender = parse(node.raws[0]).sender
    node.known.clear()
    node.use_elsewhere(sender, 5)
    later = requests(conn, 1)
    again(turn)
    turn.run(context)
    assert conn.execute("SELECT status, status_reason, next_nonce FROM signer").fetchone() == (
        "blocked",
        "foreign_nonce",
        5,
    )
    assert statuses(conn, subjects + later) == ["needs_review"] * 3 + ["processing"]
    cases = conn.execute("SELECT reason_code, evidence ->> 'nonce' FROM review_case ORDER BY 2").fetchall()
    assert cases == [("foreign_nonce", str(n)) for n in range(3)]


def test_no_member_holds_up_the_others(conn, node, start):
    paused, early, broken, good = requests(conn, 3) + requests(conn, 1)
    conn.execute(
        "UPDATE request_payload SET body = '{}' WHERE kind = %s AND request_id = %s", (broken.kind.value, broken.id)
    )
    wanted = {s: conn.execute("SELECT body FROM request_payload WHERE kind=%s AND request_id=%s", (s.kind.value, s.id)).fetchone()[0]
              for s in (paused, early)}  # fmt: skip

    def estimate(call):
        if wanted[paused]["handles"][0]["handle"][2:] in call["data"]:
            raise Fault("execution reverted", 3, "0xd93c0665")
        if wanted[early]["handles"][0][2:] in call["data"]:
            raise Fault("execution reverted", 3, "0x0666cbdf" + "00" * 32)
        return 50_000

    node.on_estimate = estimate
    context, turn = start(), SettleTurn()
    turn.run(context)
    assert statuses(conn, [paused, early, broken, good]) == ["processing", "processing", "failure", "tx_in_flight"]
    expire_leases(conn)
    turn.run(context)
    assert statuses(conn, [paused, early, broken, good]) == ["failure", "processing", "failure", "tx_in_flight"]
    row = read_request(conn, paused.kind, paused.id)
    assert (row.fail_label, row.fail_selector) == ("protocol_paused", bytes.fromhex("d93c0665"))
    assert "EnforcedPause" in row.fail_detail
    assert read_request(conn, broken.kind, broken.id).fail_label == "internal_server_error"
    assert jobs(conn) == 1
    assert conn.execute("SELECT leased_by, visible_at > now() FROM queue_job").fetchone() == (None, True)
    assert conn.execute("SELECT gas_limit FROM tx_attempt").fetchone() == (padded_gas(50_000),)


def test_a_member_that_breaks_the_transaction_is_found_by_halving(conn, node, start, monkeypatch):
    subjects = requests(conn, 9)
    real = settle.sending.prepare_send

    def prepare(conn, fence, signer, wanted, price, sign):
        def picky(item, nonce):
            if item.held.subject == subjects[4]:
                raise OverflowError("no such gas")
            return sign(item, nonce)

        return real(conn, fence, signer, wanted, price, picky)

    monkeypatch.setattr(settle.sending, "prepare_send", prepare)
    SettleTurn().run(start())
    assert statuses(conn, subjects) == ["tx_in_flight"] * 4 + ["processing"] + ["tx_in_flight"] * 4
    assert sorted(parse(raw).nonce for raw in node.raws) == list(range(8))


def test_a_silent_chain_costs_nothing_but_time(conn, node, start):
    subjects = requests(conn, 3)
    turn, context = SettleTurn(), start()
    turn.run(context)
    more = requests(conn, 3)
    node.on_estimate = lambda call: _raise(Drop())
    again(turn)
    turn.run(context)
    assert statuses(conn, subjects + more) == ["tx_in_flight"] * 3 + ["processing"] * 3
    assert jobs(conn) == 3
    assert conn.execute("SELECT count(*) FROM queue_job WHERE leased_by IS NULL").fetchone() == (3,)
    # It rests instead of leasing and putting off the whole queue again and again.
    requests(conn, 1)
    assert turn.run(context) == 0


def test_no_gas_pauses_the_signer_and_arriving_gas_lifts_it_with_the_same_bytes(conn, node, start):
    requests(conn, 2)

    def spent(tx):  # the money went between the comparison and the broadcast
        node.balance = 0
        raise Fault("insufficient funds for gas * price + value")

    node.on_send = spent
    turn, context = SettleTurn(), start()
    turn.run(context)
    assert conn.execute("SELECT status, status_reason FROM signer").fetchone() == ("paused", "insufficient_funds")
    assert [(row[1], row[3]) for row in attempts(conn)] == [("prepared", "insufficient_funds")] * 2
    requests(conn, 1)
    again(turn)
    turn.run(context)
    assert len(attempts(conn)) == 2
    node.on_send, node.balance = None, 10**18
    again(turn)
    turn.run(context)
    assert conn.execute("SELECT status, status_reason FROM signer").fetchone() == ("active", None)
    again(turn)
    turn.run(context)
    assert [row[1] for row in attempts(conn)] == ["accepted"] * 3
    one_each(node, conn)


def test_bytes_refused_for_good_go_to_a_person_and_never_to_failure(conn, node, start):
    subjects = requests(conn, 3)
    node.on_send = lambda tx: _raise(Fault("intrinsic gas too low")) if tx.nonce == 1 else None
    turn, context = SettleTurn(), start()
    turn.run(context)
    assert statuses(conn, subjects) == ["tx_in_flight", "needs_review", "tx_in_flight"]
    assert [row[1] for row in attempts(conn)] == ["accepted", "refused", "accepted"]
    assert conn.execute("SELECT status FROM signer").fetchone() == ("active",)
    assert conn.execute("SELECT reason_code, evidence ->> 'nonce' FROM review_case").fetchall() == [
        ("refused_after_signing", "1")
    ]
    assert jobs(conn) == 0


def test_a_late_refusal_says_nothing_about_bytes_that_may_be_out(conn, node, start):
    (subject,) = requests(conn, 1)
    node.after_send = lambda tx: _raise(Drop())
    turn, context = SettleTurn(), start()
    turn.run(context)
    node.after_send, node.on_send = None, lambda tx: _raise(Fault("intrinsic gas too low"))
    _let_the_breaker_close(context)
    age(conn)
    again(turn)
    turn.run(context)
    assert statuses(conn, [subject]) == ["tx_in_flight"]
    assert attempts(conn)[0][1] == "unknown"


def test_another_transaction_at_our_nonce_blocks_the_signer(conn, node, start):
    requests(conn, 1)
    node.on_send = lambda tx: _raise(Fault("replacement transaction underpriced"))
    SettleTurn().run(start())
    assert conn.execute("SELECT status, status_reason FROM signer").fetchone() == ("blocked", "foreign_nonce")
    assert attempts(conn)[0][1] == "unknown"


def test_the_window_bounds_what_is_under_way(conn, node, start):
    requests(conn, 12)
    turn, context = SettleTurn(), start()
    turn.run(context)
    assert len(node.raws) == 12
    conn.execute("UPDATE signer SET max_inflight = 15")
    requests(conn, 12)
    again(turn)
    turn.run(context)
    assert len(node.raws) == 15
    node.mine(limit=10)
    again(turn)
    turn.run(context)
    assert len(set(node.raws)) == 24
    assert [parse(raw).nonce for raw in sorted(set(node.raws), key=lambda raw: parse(raw).nonce)] == list(range(24))


def test_jobs_that_need_no_send_are_dropped_moved_or_put_off(conn, node, start):
    disabled = insert_account(conn, status="disabled")
    off = add_request(conn, Kind.INPUT_PROOF, Status.PROCESSING, account=disabled)
    early = add_request(conn, Kind.PUBLIC_DECRYPT, Status.QUEUED, queue="send")
    ended = add_request(conn, Kind.PUBLIC_DECRYPT, Status.FAILURE, queue="send")
    SettleTurn().run(start())
    assert node.raws == []
    assert statuses(conn, [off, early, ended]) == ["processing", "queued", "failure"]
    rows = conn.execute(
        "SELECT subject_id, kind, queue, extract(epoch FROM visible_at - clock_timestamp())::int FROM queue_job ORDER BY kind"
    ).fetchall()
    assert [row[:3] for row in rows] == [(early.id, 2, "ready"), (off.id, 3, "send")]
    assert 110 <= rows[1][3] <= 120


def test_two_processes_and_one_signer_send_each_row_once(conn, node, start):
    subjects = requests(conn, 30)
    turns = [(SettleTurn(), start()), (SettleTurn(), start())]
    assert [turn.run(context) for turn, context in turns] == [30, 0]
    for turn, _ in turns:
        turn.close()
    requests(conn, 5)
    wait_until(lambda: turns[1][0].run(turns[1][1]) >= 5, 60, "the other process takes the signer")
    assert len(node.known) == 35
    one_each(node, conn)
    assert statuses(conn, subjects) == ["tx_in_flight"] * 30


def test_a_holder_whose_lease_was_taken_writes_nothing_more(conn, node, start):
    turn, context = SettleTurn(), start()
    turn.run(context)
    conn.execute("UPDATE exec_lease SET epoch = epoch + 1, instance = 'usurper'")
    subjects = requests(conn, 3)
    turn.run(context)
    assert statuses(conn, subjects) == ["processing"] * 3
    assert node.raws == []


def test_receipts_end_reverted_rows_only_once_the_block_holds(conn, node, start):
    subjects = requests(conn, 2)
    turn, context = SettleTurn(), start()
    turn.run(context)
    node.mine(status=0)
    node.on_call = lambda call, tag: _raise(Fault("execution reverted", 3, "0xfb8f41b2" + "00" * 96))
    age(conn)
    again(turn)
    turn.run(context)
    assert statuses(conn, subjects) == ["tx_in_flight"] * 2
    assert conn.execute("SELECT DISTINCT state, receipt_status FROM tx_attempt").fetchall() == [("accepted", 0)]
    node.finalize()
    again(turn)
    turn.run(context)
    assert statuses(conn, subjects) == ["failure"] * 2
    row = read_request(conn, subjects[0].kind, subjects[0].id)
    assert (row.fail_label, row.fail_selector.hex()) == ("insufficient_allowance", "fb8f41b2")
    assert conn.execute("SELECT DISTINCT state FROM nonce_slot").fetchall() == [("mined",)]
    again(turn)
    turn.run(context)


def test_a_revert_that_used_all_its_gas_says_so(conn, node, start):
    """A replay has gas enough, so that it shows nothing."""
    subjects = requests(conn, 1)
    turn, context = SettleTurn(), start()
    turn.run(context)
    node.mine(status=0)
    node.finalize()
    node.on_call = lambda call, tag: "0x"
    conn.execute("UPDATE tx_attempt SET gas_limit = 21000")  # what the node says was used
    age(conn)
    again(turn)
    turn.run(context)
    row = read_request(conn, subjects[0].kind, subjects[0].id)
    assert (row.fail_label, row.fail_detail.partition("; ")[2]) == (
        "internal_server_error", "all its gas was used"
    )  # fmt: skip


def test_accepted_without_a_trace_is_broadcast_again_and_stays_in_flight(conn, node, start):
    """B44, B45: a node that dropped the transaction answers null, which is no verdict."""
    subjects = requests(conn, 2)
    turn, context = SettleTurn(), start()
    turn.run(context)
    node.known.clear()
    age(conn)
    again(turn)
    turn.run(context)
    assert len(node.known) == 2
    assert statuses(conn, subjects) == ["tx_in_flight"] * 2
    one_each(node, conn)


def test_a_consumed_nonce_without_our_hash_waits_a_minute_and_for_finality(conn, node, start, monkeypatch):
    subjects = requests(conn, 1)
    turn, context = SettleTurn(), start()
    turn.run(context)
    node.known.clear()
    node.use_elsewhere(parse(node.raws[0]).sender, 1)
    for finalized, seconds, status in (
        (False, 0.0, "tx_in_flight"),
        (True, 60.0, "tx_in_flight"),
        (True, 0.0, "needs_review"),
    ):
        monkeypatch.setattr(verdicts, "MISSING_SECONDS", seconds)
        if finalized:
            node.finalize()
        age(conn)
        again(turn)
        turn.run(context)
        assert statuses(conn, subjects) == [status], (finalized, seconds)
    assert conn.execute("SELECT reason_code FROM review_case").fetchall() == [("foreign_nonce",)]


def test_the_minute_of_a_foreign_nonce_is_longer_than_a_shift(conn, node, start):
    """Chaos found it: a lane lives for a shift of 50 s at most, and its minute began anew with every holder."""
    subjects = requests(conn, 1)
    turn, context = SettleTurn(), start()
    turn.run(context)
    node.known.clear()
    node.use_elsewhere(parse(node.raws[0]).sender, 1)
    node.finalize()
    for seconds, status in ((0, "tx_in_flight"), (40, "tx_in_flight"), (40, "needs_review")):
        conn.execute(
            "UPDATE nonce_slot SET missing = jsonb_set(missing, '{at}', to_jsonb((missing ->> 'at')::float8 - %s))",
            (seconds,),
        )
        age(conn)
        turn.run(context)  # a new holder looks at everything at once
        again(turn)
        turn.run(context)
        assert statuses(conn, subjects) == [status], seconds
        turn.close()
        context.leases.close()
        turn, context = SettleTurn(), start()  # the next shift, in another process
    assert conn.execute("SELECT reason_code FROM review_case").fetchall() == [("foreign_nonce",)]


def test_what_was_noted_long_ago_is_another_story(conn, node, start):
    subjects = requests(conn, 1)
    turn, context = SettleTurn(), start()
    turn.run(context)
    node.known.clear()
    node.use_elsewhere(parse(node.raws[0]).sender, 1)
    node.finalize()
    conn.execute("""UPDATE nonce_slot SET missing = '{"age": 500, "absent": {}, "at": 1000}'""")
    age(conn)
    again(turn)
    turn.run(context)
    assert statuses(conn, subjects) == ["tx_in_flight"]


def test_mined_slots_become_final(conn, node, start):
    requests(conn, 3)
    turn, context = SettleTurn(), start()
    turn.run(context)
    node.mine()
    node.finalize()
    age(conn)
    for _ in range(2):
        again(turn)
        turn.run(context)
        requests(conn, 1)
    states = conn.execute("SELECT state, count(*) FROM nonce_slot GROUP BY 1 ORDER BY 1").fetchall()
    assert ("final", 3) in states


def test_every_class_of_answer_has_an_effect():
    assert set(broadcast.EFFECTS) == set(broadcast.SendClass)


def test_statements_of_a_batch_are_counted(conn, node, start):
    """Design 3.5: one statement a step, whatever the size of the batch."""
    requests(conn, 100)
    context = start()
    turn = SettleTurn()
    turn.run(context)
    requests(conn, 100)
    again_counts = _statements(context.conn, lambda: turn.run(context))
    assert again_counts <= 12, again_counts


def _statements(conn, work):
    seen = []
    original = psycopg.Cursor.execute

    def counting(self, query, *args, **options):
        if self.connection is conn:
            seen.append(str(query)[:60])
        return original(self, query, *args, **options)

    psycopg.Cursor.execute = counting
    try:
        work()
    finally:
        psycopg.Cursor.execute = original
    return len(seen)


def test_attempt_states_cover_what_is_stored():
    stored = {effect.state for effect in broadcast.EFFECTS.values()}
    assert stored == {AttemptState.ACCEPTED, AttemptState.UNKNOWN, AttemptState.PREPARED, AttemptState.REFUSED}
    assert store.MAX_TEXT >= 100
    assert hex_data(b"\x01") == "0x01"


def offers(conn):
    return conn.execute(
        "SELECT nonce, seq, state, max_fee_per_gas::bigint, max_priority_fee::bigint FROM tx_attempt ORDER BY nonce, seq"
    ).fetchall()


def test_underpriced_bytes_are_offered_again_at_the_same_nonce_for_more(conn, node, start):
    """B43: both fee fields of a replacement beat every earlier offer by an eighth."""
    (subject,) = requests(conn, 1)
    node.on_send = lambda tx: _raise(Fault("transaction underpriced"))
    turn, context = SettleTurn(), start()
    turn.run(context)
    node.on_send = None
    turn._pool._lanes[next(iter(turn._pool._lanes))].replace_at = 0.0
    again(turn)
    turn.run(context)
    (first, second) = offers(conn)
    assert (first[:3], second[:3]) == ((0, 1, "prepared"), (0, 2, "accepted"))
    assert second[3] * 8 >= first[3] * 9
    assert second[4] * 8 >= first[4] * 9
    assert [parse(raw).nonce for raw in node.raws] == [0, 0]
    assert len({parse(raw).data for raw in node.raws}) == 1
    node.mine()
    age(conn)
    again(turn)
    turn.run(context)
    assert [row[2] for row in offers(conn)] == ["replaced", "mined"]
    assert statuses(conn, [subject]) == ["tx_in_flight"]
    assert conn.execute("SELECT state, winner_hash FROM nonce_slot").fetchone() == ("mined", parse(node.raws[1]).hash)


def test_only_the_lowest_stuck_nonce_is_replaced_and_only_when_the_market_moved(conn, node, start, settings):
    requests(conn, 3)
    turn, context = SettleTurn(), start()
    turn.run(context)
    settings.STUCK_SECONDS = 0.0
    (lane,) = turn._pool._lanes.values()

    def look():
        lane.replace_at = 0.0
        context.clients.gateway._fees._until = 0.0
        return replace.replace(context, lane)

    assert look() == 0
    node.base_fee = 10 * 10**9
    # The stub refuses a second transaction at a nonce as underpriced: the first offer stays the current one.
    assert look() == 1
    assert [row[:3] for row in offers(conn)] == [
        (0, 1, "accepted"),
        (0, 2, "refused"),
        (1, 1, "accepted"),
        (2, 1, "accepted"),
    ]
    node.known.clear()
    assert look() == 1
    assert offers(conn)[2][:3] == (0, 3, "accepted")
    assert conn.execute("SELECT status FROM signer").fetchone() == ("active",)


def test_used_up_offers_go_to_a_person(conn, node, start, monkeypatch):
    (subject,) = requests(conn, 1)
    monkeypatch.setattr(replace, "MOST_ATTEMPTS", 1)
    node.on_send = lambda tx: _raise(Fault("transaction underpriced"))
    turn, context = SettleTurn(), start()
    turn.run(context)
    (lane,) = turn._pool._lanes.values()
    lane.replace_at = 0.0
    assert replace.replace(context, lane) == 0
    assert statuses(conn, [subject]) == ["needs_review"]
    assert conn.execute("SELECT reason_code FROM review_case").fetchone() == ("fee_ceiling",)
    assert len(offers(conn)) == 1


def test_a_replacement_needs_the_lease(conn, node, start):
    requests(conn, 1)
    turn, context = SettleTurn(), start()
    turn.run(context)
    (lane,) = turn._pool._lanes.values()
    new = store.Replacement(0, 2, b"h" * 32, b"raw", 1, 1, 1)
    assert store.store_replacements(conn, lane.fence._replace(epoch=99), lane.id, [new]) == set()
    assert store.store_replacements(conn, lane.fence, lane.id, [new]) == {0}
    conn.execute("UPDATE nonce_slot SET state = 'mined'")
    assert store.store_replacements(conn, lane.fence, lane.id, [new._replace(seq=3)]) == set()
