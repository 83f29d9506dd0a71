"""Public bug reports about double sends, nonces and stuck transactions (queue_settle 5.3), each test named after its report.

B50 (somebody else executes the authorization first) is a payment's: tests/payments/test_confirm.py, test_confirm_anvil.py, settling/test_ends.py.
"""

from __future__ import annotations

import pytest

from requests_app.decisions import Decided
from requests_app.models.reviews import ReviewAction
from requests_app.states import Kind, Status
from requests_app.store.queue import SEND
from requests_app.transitions import sending
from tests.core.rows import insert_account, read_request
from tests.send.node import Drop, Fault, parse
from tests.send.scenes import PRICE, add_request, add_signer, expire_leases, fake_sign, hold, leased, next_nonce, wanted
from tests.send.test_settle import again, age, requests, statuses
from tests.txm.test_commands import decide
from workers.chain.fees import Fees, bumped
from workers.settle import SettleTurn

pytestmark = pytest.mark.django_db(transaction=True)


def drop_first_batch(node):
    """The node takes the first batch of sends and its answer is lost."""
    left = [1]

    def after(tx):
        if left:
            left.pop()
            raise Drop

    node.after_send = after


def round_again(conn, turn, context):
    age(conn)
    again(turn)
    turn.run(context)


def test_b28_outcome_unknown_keeps_its_hash_and_is_never_a_failure(conn, node, start):
    """qntx 73: a time-out after the broadcast was told as "failed" without a hash, and the payer paid twice."""
    (subject,) = requests(conn, 1)
    drop_first_batch(node)
    SettleTurn().run(start())
    row = read_request(conn, subject.kind, subject.id)
    assert row.status == "tx_in_flight"
    assert bytes(row.gw_req_tx_hash) == parse(node.raws[0]).hash
    assert conn.execute("SELECT state FROM tx_attempt").fetchone() == ("unknown",)


def test_b29_nonce_consumed_by_our_own_transaction_is_success(conn, node, start):
    """key0 115: the retry of a settled payment got "nonce consumed" and was reported as failed."""
    (subject,) = requests(conn, 1)
    drop_first_batch(node)
    turn, context = SettleTurn(), start()
    turn.run(context)
    node.mine()
    for _ in range(2):
        round_again(conn, turn, context)
    assert statuses(conn, [subject]) == ["tx_in_flight"]
    assert conn.execute("SELECT state FROM tx_attempt").fetchone() in (("mined",), ("final",))
    assert len(set(node.raws)) == 1


def test_b30_the_same_content_is_one_row_for_every_retry(conn):
    """x402 786, 3438: retries settled twice, because the server had no key of its own."""
    from requests_app.services import Submission, submit

    account, other = insert_account(conn), insert_account(conn)
    one = Submission(Kind.INPUT_PROOF, None, b"\x07" * 32, {"a": "b"})
    found = [submit(conn, one, client_id=client) for client in (account, account, other)]
    assert len({done.request_id for done in found}) == 1
    assert conn.execute("SELECT count(*) FROM queue_job").fetchone() == (1,)


def test_b32_counter_and_attempt_are_stored_together_or_not_at_all(conn):
    """OpenZeppelin 683, 818, 843: a counter in a side store ran hundreds ahead of the chain."""
    add_request(conn, Kind.INPUT_PROOF, Status.PROCESSING)
    fence = hold(conn, "signer:1:0xaa")
    signer = add_signer(conn, fence, nonce=7)

    def broken(item, nonce):
        raise ValueError("no signature")

    with pytest.raises(ValueError):
        sending.prepare_send(conn, fence, signer.id, wanted(leased(conn, SEND)), PRICE, broken)
    assert next_nonce(conn, signer.id) == 7
    expire_leases(conn)
    sending.prepare_send(conn, fence, signer.id, wanted(leased(conn, SEND)), PRICE, fake_sign)
    assert next_nonce(conn, signer.id) == 8
    assert conn.execute("SELECT nonce FROM tx_attempt").fetchall() == [(7,)]


@pytest.mark.parametrize("report", ["b33 OpenZeppelin 817", "b45 aztec 25018, foundry 14684, parity 7205"])
def test_b33_b45_no_receipt_is_no_verdict(conn, node, start, report):
    """26 mined transactions were marked failed on one empty receipt; healthy ones were recorded as dropped."""
    subjects = requests(conn, 3)
    turn, context = SettleTurn(), start()
    turn.run(context)
    node.mine()
    known = dict(node.known)
    node.known.clear()  # this node has forgotten all
    for _ in range(3):
        round_again(conn, turn, context)
    assert statuses(conn, subjects) == ["tx_in_flight"] * 3, report
    assert conn.execute("SELECT DISTINCT state FROM nonce_slot").fetchall() == [("live",)]
    node.known.update(known)
    round_again(conn, turn, context)
    assert conn.execute("SELECT DISTINCT state FROM tx_attempt").fetchall() == [("mined",)]


def test_b35_already_known_is_the_same_attempt_and_moves_no_counter(conn, node, start):
    """chainlink 12451: a resend answered "already known" was taken for a fresh success and a nonce was skipped."""
    requests(conn, 2)
    first = start()
    turn = SettleTurn()
    turn.run(first)
    turn.close()
    first.leases.close()
    second = start()
    SettleTurn().run(second)  # everything is offered again at the take-over
    assert len(node.raws) == 4
    assert len(set(node.raws)) == 2
    assert conn.execute("SELECT next_nonce FROM signer").fetchone() == (2,)
    assert conn.execute("SELECT count(*) FROM tx_attempt WHERE state = 'accepted'").fetchone() == (2,)


def test_b37_a_failed_send_leaves_no_gap(conn, node, start):
    """viem 4364, aztec 20819, ethers 972: the manager in memory had already used the number."""
    requests(conn, 2)
    refuse = [True]

    def on_send(tx):
        if refuse:
            raise Fault("txpool is full")

    node.on_send = on_send
    turn, context = SettleTurn(), start()
    turn.run(context)
    refuse.clear()
    round_again(conn, turn, context)
    requests(conn, 1)
    turn.run(context)
    assert sorted(tx.nonce for tx in node.known.values()) == [0, 1, 2]


def test_b38_no_nonce_is_taken_before_the_simulation(conn, node, start):
    """viem 3142: a gap remained when gas estimation failed."""
    requests(conn, 1)

    def estimate(call):
        raise Fault("execution reverted", 3, "0xd93c0665")

    node.on_estimate = estimate
    turn, context = SettleTurn(), start()
    turn.run(context)
    expire_leases(conn)
    turn.run(context)
    assert conn.execute("SELECT next_nonce FROM signer").fetchone() == (0,)
    assert conn.execute("SELECT count(*) FROM nonce_slot").fetchone() == (0,)


def calldata_by_nonce(node):
    """What was offered to the node at each nonce, fillers apart."""
    found = {}
    for raw in node.raws:
        tx = parse(raw)
        if tx.data:
            found.setdefault(tx.nonce, set()).add(tx.data)
    return found


def test_b39_a_refused_nonce_is_filled_in_place_and_the_lost_broadcast_is_asked_for(conn, node, start):
    """rrelayer 113: a terminal failure left its nonce unused, and recovery assigned a fresh one without asking for the lost broadcast."""
    (refused,) = requests(conn, 1)
    took = []

    def on_send(tx):
        if tx.nonce == 0 and tx.data:
            raise Fault("invalid sender")

    def after_send(tx):
        if tx.nonce == 1 and not took:  # taken, and nobody hears of it
            took.append(tx.hash)
            raise Drop

    node.on_send, node.after_send = on_send, after_send
    turn, context = SettleTurn(), start()
    turn.run(context)
    (lost,) = requests(conn, 1)
    again(turn)
    turn.run(context)
    for _ in range(4):
        round_again(conn, turn, context)
        node.mine()
    assert took
    calls = calldata_by_nonce(node)
    assert {nonce: len(found) for nonce, found in calls.items()} == {0: 1, 1: 1}, "no request was given a second nonce"
    mined = {tx.nonce: tx for tx in node.known.values() if tx.block is not None}
    assert not mined[0].data, "the refused nonce was spent on nothing, in place"
    assert mined[1].hash == took[0]
    assert statuses(conn, [lost]) == ["tx_in_flight"]
    assert read_request(conn, refused.kind, refused.id).status == "needs_review", "never a failure after signed bytes"


def test_b40_a_cancel_replaces_at_its_own_nonce_and_strands_nobody(parked, reviewers):
    """rrelayer 99, 106: the canceled row was dropped with its nonce, and every later transaction waited for it for ever."""
    node, conn = parked.node, parked.conn
    (later,) = requests(conn, 1)
    parked.run()
    assert sorted(tx.nonce for tx in node.known.values()) == [0, 1]
    node.known = {h: tx for h, tx in node.known.items() if tx.nonce == 1}  # the pool has lost the one that is canceled
    node.mine()
    assert all(tx.block is None for tx in node.known.values()), "the later one waits"
    assert decide(conn, parked.case, ReviewAction.CANCEL_NONCE, reviewers[0]).outcome is Decided.COMMANDED
    parked.run()
    node.known = {
        h: tx for h, tx in node.known.items() if tx.nonce == 1 or not tx.data
    }  # the higher offer takes its place
    node.mine()
    assert {tx.nonce: bool(tx.data) for tx in node.known.values() if tx.block is not None} == {0: False, 1: True}
    node.finalize()
    parked.age()
    for _ in range(3):
        parked.run()
    assert parked.status == "failure"
    assert conn.execute("SELECT nonce, kind FROM tx_attempt ORDER BY nonce, seq").fetchall() == [
        (0, "pay"),
        (0, "cancel"),
        (1, "pay"),
    ]
    assert statuses(conn, [later]) == ["tx_in_flight"]
    assert conn.execute("SELECT state FROM nonce_slot WHERE nonce = 1").fetchone()[0] in ("mined", "final")


def test_b43_both_fees_of_a_replacement_rise_above_the_old_ones_and_the_market():
    """ithacaxyz 378: a gap filler was refused as underpriced because the old fee was ignored."""
    offer = bumped(Fees(1000, 100), Fees(900, 500))
    assert (offer.max_fee_per_gas, offer.max_priority_fee) == (1125, 500)
    offer = bumped(Fees(1000, 100), Fees(5000, 10))
    assert (offer.max_fee_per_gas, offer.max_priority_fee) == (5000, 113)


def test_b47_a_revert_is_final_only_with_its_block(conn, node, start):
    """OriginTrail 2300: a revert was taken as permanent, and the transaction succeeded after a reorganisation."""
    (subject,) = requests(conn, 1)
    turn, context = SettleTurn(), start()
    turn.run(context)
    node.on_call = None
    node.mine(status=0)
    for _ in range(3):
        round_again(conn, turn, context)
    assert statuses(conn, [subject]) == ["tx_in_flight"]
    take_back(node)
    node.mine(status=1)
    node.finalize()
    for _ in range(3):
        round_again(conn, turn, context)
    assert statuses(conn, [subject]) == ["tx_in_flight"], "it waits for its event: the revert never was"
    assert conn.execute("SELECT receipt_status FROM tx_attempt").fetchone() == (1,)
    assert conn.execute("SELECT count(*) FROM req_transition WHERE to_status = 'failure'").fetchone() == (0,)


def test_b48_the_hash_of_a_receipts_block_is_kept_and_looked_at_again_until_it_is_final(conn, node, start):
    """safe 722, 1542, 1603: block hashes were not stored or not checked, and data of undone blocks stayed."""
    requests(conn, 1)
    turn, context = SettleTurn(), start()
    turn.run(context)
    node.mine()
    round_again(conn, turn, context)
    state = "SELECT t.state, t.block_number, t.block_hash, n.state FROM tx_attempt t JOIN nonce_slot n USING (signer_id, nonce)"
    first = node.block.to_bytes(32, "big")
    assert conn.execute(state).fetchone() == ("mined", node.block, first, "mined")
    # The chain shows another block at that height when it is final: the receipt of the old one counts for nothing.
    conn.execute("UPDATE tx_attempt SET block_hash = %s", (b"\x0f" * 32,))
    node.finalize()
    again(turn)
    turn.run(context)
    row = conn.execute(state).fetchone()
    assert (row[0], row[3]) != ("final", "final")
    for _ in range(3):
        round_again(conn, turn, context)
    assert conn.execute(state).fetchone()[2] == first, "it was asked for anew"
    assert conn.execute(state).fetchone()[3] == "final"


def take_back(node):
    """The blocks of all transactions gave way; these wait in the pool again."""
    for tx in node.known.values():
        tx.block = None
        node.counts[tx.sender] = min(node.counts[tx.sender], tx.nonce)
