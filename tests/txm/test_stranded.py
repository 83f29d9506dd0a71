"""Signers that may not send while they hold open nonces: blocked, and whoever cannot go on by itself waits for a person."""

from __future__ import annotations

from typing import Any

import pytest

from requests_app.states import Kind, Status
from tests.send.node import Fault, Node
from tests.send.scenes import add_request
from tests.txm.test_ladder import Bench, bench, proofs

__all__ = ["bench"]
SIGNER = "SELECT status, status_reason FROM signer"


def evidence(bench: Bench, subject: Any) -> Any:
    return bench.rows(f"SELECT evidence FROM review_case WHERE status = 'open' AND subject_id = {subject.id}")[0][0]


def refuse(nonce: int) -> Any:
    """A node that takes nothing at this nonce, not even nothing."""

    def on_send(tx: Any) -> None:
        if tx.nonce == nonce:
            raise Fault("invalid sender")

    return on_send


def test_what_stands_behind_a_nonce_that_takes_nothing_waits_for_a_person(bench: Bench) -> None:
    below, stuck, behind = proofs(bench.conn, 3)
    bench.node.on_send = refuse(1)
    for _ in range(6):
        bench.run()
    assert bench.rows(SIGNER) == [("blocked", "refused_bytes")]
    assert [bench.status(one) for one in (below, stuck, behind)] == ["tx_in_flight", "needs_review", "needs_review"]
    assert bench.cases() == [("refused_after_signing", stuck.id), ("signer_blocked", behind.id)]
    found = evidence(bench, behind)
    assert (found["nonce"], found["signer_reason"]) == (2, "refused_bytes")
    # Its bytes stay on offer: with the nonce below taken, they are mined.
    bench.node.on_send = None
    bench.conn.execute("UPDATE tx_attempt SET state = 'prepared' WHERE nonce = 1 AND seq = 4")
    bench.wait(20)
    assert bench.node.mine() == 3
    bench.wait(20)
    assert bench.rows("SELECT nonce, state FROM nonce_slot ORDER BY nonce") == [
        (0, "mined"),
        (1, "mined"),
        (2, "mined"),
    ]


def test_the_next_holder_finds_them_as_well(bench: Bench, start: Any) -> None:
    """The crash is between the signer's block and the cases."""
    _, behind = proofs(bench.conn, 2)
    bench.node.on_send = refuse(0)
    for _ in range(6):
        bench.run()
    bench.conn.execute("DELETE FROM review_case WHERE reason_code = 'signer_blocked'")
    bench.conn.execute("UPDATE input_proof_req SET status = 'tx_in_flight' WHERE id = %s", (behind.id,))
    bench.turn.close()
    successor = Bench(bench.conn, bench.node, start())
    successor.run()
    assert ("signer_blocked", behind.id) in successor.cases()


@pytest.fixture
def forgotten(bench: Bench) -> Bench:
    """A chain that knows nothing of a transaction that was final, and a later one that it cannot take therefore."""
    proofs(bench.conn, 1)
    bench.run()
    bench.node.mine()
    bench.wait(20)
    bench.node.finalize()
    bench.run()
    assert bench.rows("SELECT state FROM nonce_slot") == [("final",)]
    proofs(bench.conn, 1)
    bench.run()
    bench.node.counts = dict.fromkeys(bench.node.counts, 0)
    bench.run()
    return bench


def test_a_count_that_stands_below_our_lowest_nonce_blocks_the_signer(forgotten: Bench) -> None:
    bench = forgotten
    (one,) = bench.rows("SELECT id FROM input_proof_req WHERE status = 'tx_in_flight' ORDER BY id DESC LIMIT 1")[0]
    for _ in range(3):
        bench.wait(25)
    assert bench.rows(SIGNER) == [
        ("active", None)
    ]  # the count is believed after three looks, and must stand still for a minute then
    for _ in range(3):
        bench.wait(25)
    assert bench.rows(SIGNER) == [("blocked", "nonce_gap")]
    assert bench.cases() == [("signer_blocked", one)]
    (text,) = bench.rows("SELECT reason FROM req_transition WHERE verb = 'park'")[0]
    assert text == "the chain waits at nonce 0, which no open transaction has; the lowest open one is 1"
    later = proofs(bench.conn, 1)[0]
    bench.wait(25)
    assert bench.status(later) == "processing"  # nothing new is taken
    bench.node.counts = dict.fromkeys(bench.node.counts, 1)  # whoever holds the key has filled the nonce
    assert bench.node.mine() == 1
    bench.wait(25)
    assert bench.rows("SELECT nonce, state FROM nonce_slot ORDER BY nonce") == [(0, "final"), (1, "mined")]


def test_a_mined_nonce_at_the_count_is_a_node_that_lags(bench: Bench) -> None:
    first, second = proofs(bench.conn, 2)
    bench.run()
    bench.conn.execute("UPDATE nonce_slot SET state = 'mined' WHERE nonce = 0")
    bench.conn.execute("UPDATE tx_attempt SET state = 'mined' WHERE nonce = 0")
    for _ in range(6):
        bench.wait(25)
    assert bench.rows(SIGNER) == [("active", None)]
    assert [bench.status(one) for one in (first, second)] == ["tx_in_flight"] * 2


def test_a_node_that_answers_another_hash(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose bytes they were waits for a person; the other one goes on."""
    subjects = proofs(bench.conn, 2)
    plain, seen = Node.eth_sendRawTransaction, []

    def other(node: Node, raw: str) -> str:
        found = plain(node, raw)
        seen.append(found)
        return "0x" + "ab" * 32 if len(seen) == 2 else found

    monkeypatch.setattr(Node, "eth_sendRawTransaction", other)
    bench.run()
    assert bench.rows(SIGNER) == [("blocked", "hash_mismatch")]
    assert [bench.status(one) for one in subjects] == ["tx_in_flight", "needs_review"]
    assert bench.cases() == [("signer_blocked", subjects[1].id)]
    assert evidence(bench, subjects[1])["tx_hash"] == seen[1]


def test_how_long_a_count_stands_still_outlives_the_holder(bench: Bench, start: Any) -> None:
    """A shift is shorter than a nonce's patience: no holder would ever see it over."""
    add_request(bench.conn, Kind.INPUT_PROOF, Status.PROCESSING)
    bench.run()
    bench.turn.close()
    bench.conn.execute("UPDATE signer SET nonce_moved_at = nonce_moved_at - interval '61 seconds'")
    bench.conn.execute("UPDATE tx_attempt SET first_sent_at = first_sent_at - interval '61 seconds'")
    bench.node.base_fee *= 10
    context = start()
    context.clients.gateway._fees._until = 0.0
    from workers.settle import SettleTurn

    turn = SettleTurn()
    turn.run(context)
    (lane,) = turn._pool._lanes.values()  # type: ignore[union-attr]
    assert 61 <= lane.clock() - lane.moved_at < 600
    assert ("replace",) in bench.rows("SELECT kind FROM tx_attempt")
