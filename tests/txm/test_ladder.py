"""Stuck, lost, refused, cancelled: the ladder of one nonce, against a node whose market and pool the test decides."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import psycopg
import pytest

from requests_app.models.signing import AttemptKind
from requests_app.states import Kind, Status
from requests_app.store import attempts as store
from tests.core.rows import read_request
from tests.send.node import Fault, Server, Tx, parse
from tests.send.scenes import add_request
from workers import replace, verdicts
from workers.chain.endpoints import Endpoints
from workers.lane import LOWER_LOOKS, Absence
from workers.replace import STUCK_BLOCKS
from workers.settle import SettleTurn
from workers.verdicts import proven_dead

Rows = list[tuple[Any, ...]]


class Bench:
    """One signer's turn, its lane, a clock that the test moves, and short words for what stands in the tables."""

    def __init__(self, conn: Any, node: Any, context: Any) -> None:
        self.conn, self.node, self.context, self.turn = conn, node, context, SettleTurn()
        self.now = 1000.0
        self.clock = lambda: self.now
        self.run()

    @property
    def lane(self) -> Any:
        (lane,) = self.turn._pool._lanes.values()
        return lane

    def run(self) -> int:
        if self.turn._pool is not None:
            for lane in self.turn._pool._lanes.values():
                if lane.clock is not self.clock:
                    lane.clock, lane.rose_at, lane.moved_at = self.clock, self.now, self.now
                lane.maintain_at = lane.send_at = lane.sync_at = lane.finalize_at = lane.replace_at = 0.0
                lane.look_at.clear()
        self.context.clients.gateway._fees._until = 0.0
        return self.turn.run(self.context)

    def wait(self, seconds: float) -> int:
        """Let time pass for the database's clock and the lane's, then run."""
        self.now += seconds
        self.conn.execute(
            "UPDATE tx_attempt SET prepared_at = prepared_at - %(s)s * interval '1 second', "
            "first_sent_at = first_sent_at - %(s)s * interval '1 second', last_sent_at = last_sent_at - %(s)s * interval '1 second'",
            {"s": seconds},
        )
        return self.run()

    def rows(self, statement: str) -> Rows:
        return list(self.conn.execute(statement).fetchall())

    def offers(self) -> Rows:
        return self.rows("SELECT nonce, seq, kind, state FROM tx_attempt ORDER BY nonce, seq")

    def status(self, subject: Any) -> str:
        return str(read_request(self.conn, subject.kind, subject.id).status)

    def cases(self) -> Rows:
        return self.rows("SELECT reason_code, subject_id FROM review_case WHERE status = 'open' ORDER BY id")


@pytest.fixture
def bench(conn: Any, node: Any, start: Any, settings: Any) -> Bench:
    settings.STUCK_SECONDS = 60
    made = Bench(conn, node, start())
    made.run()
    return made


def proofs(conn: Any, count: int) -> list[Any]:
    return [add_request(conn, Kind.INPUT_PROOF, Status.PROCESSING) for _ in range(count)]


def replacing(node: Any) -> None:
    """A pool that takes a replacement at an eighth more, as geth does with a tenth."""

    def take(tx: Tx) -> None:
        for other in [one for one in node.known.values() if (one.sender, one.nonce) == (tx.sender, tx.nonce)]:
            if other.hash != tx.hash and other.block is None:
                del node.known[other.hash]

    node.on_send = take


def test_refused_bytes_are_replaced_by_nothing_and_the_signer_goes_on(bench: Bench) -> None:
    first, second, third = proofs(bench.conn, 3)
    bench.node.on_send = lambda tx: _raise(Fault("intrinsic gas too low")) if tx.nonce == 1 and tx.data else None
    bench.run()
    bench.run()
    assert [bench.status(one) for one in (first, second, third)] == ["tx_in_flight", "needs_review", "tx_in_flight"]
    assert bench.offers() == [
        (0, 1, "pay", "accepted"),
        (1, 1, "pay", "refused"),
        (1, 2, "fill", "accepted"),
        (2, 1, "pay", "accepted"),
    ]
    fill = parse(bench.node.raws[-1])
    assert (fill.to, fill.data, fill.sender) == (bench.lane.address, b"", bench.lane.address)
    assert bench.rows("SELECT status FROM signer") == [("active",)]
    (fourth,) = proofs(bench.conn, 1)
    bench.run()
    assert bench.status(fourth) == "tx_in_flight"
    assert bench.node.mine() == 4
    bench.wait(20)
    bench.node.finalize()
    bench.run()
    assert bench.rows("SELECT nonce, state FROM nonce_slot ORDER BY nonce") == [
        (0, "final"),
        (1, "dead"),
        (2, "final"),
        (3, "final"),
    ]
    # The row is a person's: nothing ended it, and its nonce is free for a decision.
    assert bench.status(second) == "needs_review"
    assert bench.cases() == [("refused_after_signing", second.id)]


def test_a_fill_that_broke_off_is_taken_up_by_the_next_turn(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process and its lease live on: nothing but the lane itself would look at the row again."""
    proofs(bench.conn, 1)
    bench.node.on_send = lambda tx: _raise(Fault("intrinsic gas too low")) if tx.data else None
    bench.run()

    def cut(*parameters: Any) -> None:
        raise psycopg.OperationalError("the server closed the connection")

    with monkeypatch.context() as broken:
        broken.setattr(replace.store, "store_replacements", cut)
        with pytest.raises(psycopg.OperationalError):
            bench.run()
    bench.run()
    assert [row[2] for row in bench.offers()] == ["pay", "fill"]


def test_a_fill_that_is_refused_as_well_blocks_the_signer(bench: Bench) -> None:
    proofs(bench.conn, 1)
    bench.node.on_send = lambda tx: _raise(Fault("invalid sender"))
    for _ in range(8):
        bench.run()
    assert [row[2] for row in bench.offers()] == ["pay", "fill", "fill", "fill"]
    assert bench.rows("SELECT status, status_reason FROM signer") == [("blocked", "refused_bytes")]


def test_a_fill_that_is_outbid_is_offered_again_by_the_same_lane(bench: Bench) -> None:
    """A pool that refused the call may hold it all the same, and asks more for the nonce: with the no-op refused, too, no attempt was open."""
    proofs(bench.conn, 1)
    sent: list[Tx] = []

    def take(tx: Tx) -> None:
        if tx.data:
            raise Fault("intrinsic gas too low")
        sent.append(tx)
        if len(sent) < 3:
            raise Fault("replacement transaction underpriced")

    bench.node.on_send = take
    for _ in range(3):
        bench.run()
    assert [row[2:] for row in bench.offers()] == [("pay", "refused"), ("fill", "refused")]
    for seconds, offers in ((6, 2), (6, 2), (15, 3)):  # later each time: what the pool holds may be mined
        bench.wait(seconds)
        bench.run()
        assert len(sent) == offers
    assert [row[2:] for row in bench.offers()] == [("pay", "refused"), *[("fill", "refused")] * 2, ("fill", "accepted")]
    assert bench.rows("SELECT status FROM signer") == [("active",)]


def test_a_fill_is_found_by_the_next_holder(bench: Bench, start: Any) -> None:
    """The crash is between the refusal and the no-op: what is missing is read from the rows."""
    proofs(bench.conn, 1)
    bench.node.on_send = lambda tx: _raise(Fault("invalid sender")) if tx.data else None
    bench.turn.run(bench.context)
    assert [row[2:] for row in bench.offers()] == [("pay", "refused")]
    bench.turn.close()
    successor = Bench(bench.conn, bench.node, start())
    for _ in range(3):
        successor.run()
    assert [row[2:] for row in successor.offers()] == [("pay", "refused"), ("fill", "accepted")]


def test_the_whole_ladder_of_a_nonce_that_is_passed_over(bench: Bench) -> None:
    first, second = proofs(bench.conn, 2)
    replacing(bench.node)
    bench.run()
    kinds = []
    for _ in range(12):
        bench.wait(61)
        bench.node.block += 10
        bench.run()
        kinds = [row[2] for row in bench.offers() if row[0] == 0]
    assert kinds == ["pay", *["replace"] * 4, *["cancel"] * 3]
    fees = bench.rows("SELECT max_fee_per_gas, max_priority_fee FROM tx_attempt WHERE nonce = 0 ORDER BY seq")
    for (fee, tip), (more, more_tip) in pairwise(fees):
        assert more * 8 >= fee * 9
        assert more_tip * 8 >= tip * 9
    assert [bench.status(one) for one in (first, second)] == ["needs_review", "tx_in_flight"]
    assert bench.cases() == [("fee_ceiling", first.id)]
    # Only the lowest nonce is offered more for.
    assert [row for row in bench.offers() if row[0] == 1] == [(1, 1, "pay", "accepted")]
    # The no-op wins: whichever is mined decides.
    assert bench.node.mine() == 2
    bench.node.finalize()
    bench.wait(20)
    bench.run()
    assert bench.rows("SELECT nonce, state FROM nonce_slot ORDER BY nonce") == [(0, "dead"), (1, "final")]
    assert bench.status(first) == "needs_review"


def test_each_offer_has_a_patience_of_its_own(bench: Bench) -> None:
    """The first one has been out for long; the second, a moment ago."""
    proofs(bench.conn, 1)
    replacing(bench.node)
    bench.run()
    bench.node.block += 10
    bench.wait(61)
    for _ in range(3):
        bench.node.block += 10
        bench.wait(6)
    assert [row[2] for row in bench.offers()] == ["pay", "replace"]
    bench.wait(61)
    bench.node.block += 10
    bench.run()
    assert [row[2] for row in bench.offers()] == ["pay", "replace", "replace"]


def test_an_offer_that_was_too_low_is_answered_by_the_next_one(bench: Bench) -> None:
    proofs(bench.conn, 1)
    replacing(bench.node)
    refused: list[bytes] = []
    take = bench.node.on_send

    def once(tx: Tx) -> None:
        if not refused or refused == [tx.hash]:
            refused[:] = [tx.hash]
            raise Fault("transaction underpriced")
        assert take is not None
        take(tx)

    bench.node.on_send = once
    for _ in range(4):
        bench.run()
    assert [row[2:] for row in bench.offers()] == [("pay", "prepared"), ("replace", "accepted")]


def test_a_chain_without_blocks_is_not_paid_more(bench: Bench) -> None:
    proofs(bench.conn, 1)
    replacing(bench.node)
    bench.run()
    for _ in range(4):
        bench.wait(61)
    assert [row[2] for row in bench.offers()] == ["pay"]


def test_the_blocks_that_pass_an_offer_over_are_counted_across_shifts(bench: Bench, start: Any) -> None:
    """A block takes 12 s on many chains and a shift 50: counted within one, five were never reached."""
    proofs(bench.conn, 1)
    replacing(bench.node)
    bench.run()
    bench.wait(61)
    for blocks, offers in ((STUCK_BLOCKS - 1, 1), (1, 2)):
        bench.turn.close()
        bench.conn.execute("UPDATE signer SET nonce_moved_at = nonce_moved_at - interval '61 seconds'")
        bench.node.block += blocks
        bench.context, bench.turn = start(), SettleTurn()
        bench.turn.run(bench.context)
        assert len(bench.offers()) == offers


def test_a_node_that_lags_again_and_again_delays_no_offer(bench: Bench) -> None:
    """Its lower count is believed after three looks, and the next node's seemed to have risen: as if something had been mined."""
    proofs(bench.conn, 2)
    replacing(bench.node)
    bench.run()
    bench.node.mine(limit=1)
    bench.run()
    bench.node.base_fee *= 10
    (sender,) = bench.node.counts
    for _ in range(3):
        for count in (*[0] * LOWER_LOOKS, 1):
            bench.node.counts[sender] = count
            bench.wait(10)
    assert bench.offers()[-1][:3] == (1, 2, "replace")


def test_the_ceiling_sends_the_row_to_a_person_and_keeps_the_bytes_on_offer(bench: Bench) -> None:
    import dataclasses

    (subject,) = proofs(bench.conn, 1)
    gateway = bench.context.clients.gateway
    gateway.config = dataclasses.replace(gateway.config, fee_ceiling=3_200_000_000)
    replacing(bench.node)
    bench.run()
    for _ in range(3):
        bench.node.block += 10
        bench.wait(61)
        bench.run()
    assert [row[2] for row in bench.offers()] == ["pay"]
    assert bench.cases() == [("fee_ceiling", subject.id)]
    bench.node.known.clear()
    bench.wait(61)
    assert len(bench.node.known) == 1


def test_a_finalized_slot_is_only_final_in_the_block_of_its_receipt(bench: Bench) -> None:
    proofs(bench.conn, 1)
    bench.run()
    bench.node.mine()
    bench.wait(20)
    bench.conn.execute("UPDATE tx_attempt SET block_hash = %s", (b"\x01" * 32,))
    bench.node.finalize()
    verdicts.finalize(bench.context, bench.lane)
    assert bench.rows("SELECT state FROM nonce_slot") == [("live",)]
    bench.wait(20)
    bench.run()
    assert bench.rows("SELECT state FROM nonce_slot") == [("final",)]


def test_our_nonce_consumed_by_a_stranger_blocks_the_signer(bench: Bench) -> None:
    (subject,) = proofs(bench.conn, 1)
    bench.run()
    sender = parse(bench.node.raws[-1]).sender
    bench.node.known.clear()
    bench.node.use_elsewhere(sender)
    bench.node.finalize()
    for _ in range(3):
        bench.wait(61)
    assert bench.cases() == [("foreign_nonce", subject.id)]
    assert bench.rows("SELECT status, status_reason FROM signer") == [("blocked", "foreign_nonce")]
    # One endpoint proves nothing for ever.
    assert bench.rows("SELECT state FROM nonce_slot") == [("live",)]
    assert bench.rows("SELECT evidence ->> 'proven_dead' FROM review_case") == [("false",)]


@pytest.fixture
def second_node() -> Any:
    server = Server()
    yield server.node
    server.close()


@pytest.mark.parametrize("known_to_second", [False, True])
def test_r5_two_endpoints_twice_a_minute_apart(bench: Bench, second_node: Any, known_to_second: bool) -> None:
    (subject,) = proofs(bench.conn, 1)
    bench.run()
    raw = bench.node.raws[-1]
    tx = parse(raw)
    both = Endpoints([bench.node.url, second_node.url], 654321)
    bench.context.clients = _with_endpoints(bench.context.clients, both)
    for node in (bench.node, second_node):
        node.known.clear()
        node.use_elsewhere(tx.sender)
        node.finalize()
    if known_to_second:
        tx.block = 50
        second_node.known[tx.hash] = tx
    bench.wait(61)
    assert bench.rows("SELECT state FROM nonce_slot") == [("live",)]
    bench.wait(30)
    assert bench.rows("SELECT state FROM nonce_slot") == [("live",)]
    bench.wait(31)
    assert bench.rows("SELECT state FROM nonce_slot") == [("live" if known_to_second else "dead",)]
    assert bench.status(subject) == ("tx_in_flight" if known_to_second else "needs_review")


def _with_endpoints(clients: Any, endpoints: Endpoints) -> Any:
    import dataclasses

    clients.gateway.endpoints = endpoints
    return dataclasses.replace(clients, endpoints=endpoints)


def test_what_proves_a_nonce_dead() -> None:
    def seen(*pairs: tuple[float, str]) -> list[Absence]:
        return [Absence(at, endpoint) for at, endpoint in pairs]

    assert not proven_dead(seen((0, "a"), (60, "a")))
    assert not proven_dead(seen((0, "a"), (60, "b")))
    assert not proven_dead(seen((0, "a"), (0, "b"), (59, "a"), (59, "b")))
    assert not proven_dead(seen((0, "a"), (0, "b"), (60, "a")))
    assert proven_dead(seen((0, "a"), (0, "b"), (60, "a"), (60, "b")))


def test_a_no_op_of_the_ladder_stays_a_no_op_when_it_is_offered_again(bench: Bench) -> None:
    fees = replace.Fees(10, 1)
    made = replace.noop(bench.lane, 7, 2, fees, 21_000, AttemptKind.CANCEL)
    assert replace.call_of(made.raw) == (bench.lane.address, b"", 21_000)
    assert isinstance(made, store.Replacement)


def _raise(error: Exception) -> Any:
    raise error
