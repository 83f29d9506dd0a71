"""Blocks that give way: everything that rested on them is taken back in one transaction, and found again where it is now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from requests_app.errors import SourceHalted, StaleEpoch
from requests_app.models.commands import Target
from requests_app.states import Kind
from requests_app.store import reorgs as store
from requests_app.store.session import transaction
from requests_app.store.signing import Fence
from requests_app.transitions import reorgs
from requests_app.transitions.reorgs import Fork
from tests.listen import world
from tests.listen.stub_chain import CHAIN_ID, StubChain, running
from tests.listen.world import (
    FENCE,
    SOURCE,
    THRESHOLD,
    Ours,
    answered,
    applier,
    record,
    requested,
    sent,
    share,
    status,
    verbs,
)
from workers import forks
from workers.blocks import Blocks, Unreadable, Witness
from workers.chain.clients import Clients
from workers.chain.events import REQUEST_KINDS, Envelope
from workers.duties import reorgs as duty
from workers.forks import ForkWatch, TooDeep, fork_block
from workers.listener import Listener

Connection = psycopg.Connection[Any]


@pytest.fixture
def chain(log: Connection) -> StubChain:
    log.execute("UPDATE envelope_source SET chain_id = 1")
    return StubChain()


@pytest.fixture
def clients(chain: StubChain) -> Iterator[Clients]:
    with running(chain) as (found, _):
        yield found


@pytest.fixture
def follow(log: Connection, clients: Clients) -> Listener:
    made = Listener(SOURCE, Blocks(clients.gateway), applier(), FENCE)
    made.open(log, CHAIN_ID, 1)
    return made


def settle(follow: Listener, conn: Connection, head: int) -> None:
    """Poll until the listener has sealed and applied up to `head`."""
    for _ in range(60):
        follow._sealed_at = 0.0  # an empty block is sealed at once
        follow.poll(conn)
        sealed = conn.execute("SELECT block FROM chain_cursor").fetchone()[0]
        if sealed >= head and not follow._applier.behind:
            return
    raise AssertionError("the listener does not arrive")


def replace(chain: StubChain, fork: int, *events: Envelope, head: int) -> None:
    """From block `fork` on the chain is another one."""
    number = max(chain.forks.values(), default=0) + 1
    chain.events = [one for one in chain.events if one.position >> 20 < fork]
    chain.forks = {block: old for block, old in chain.forks.items() if block < fork}
    chain.forks |= dict.fromkeys(range(fork, head + 80), number)
    chain.head = head
    chain.put(*(moved(one, number) for one in events), head=head)


def moved(one: Envelope, fork: int) -> Envelope:
    """The same event in the block of another chain."""
    import dataclasses

    block_hash = world.block_hash(one.position >> 20, fork)
    return dataclasses.replace(one, block_hash=block_hash)


def slot(conn: Connection, one: Ours) -> tuple[Any, ...]:
    return conn.execute(
        "SELECT n.state, t.state, t.block_number FROM nonce_slot n JOIN tx_attempt t USING (signer_id, nonce) "
        "WHERE n.kind = %s AND n.subject_id = %s",
        (one.kind.value, one.id),
    ).fetchone()


def test_a_receipt_that_gave_way_is_withdrawn_and_found_again(
    log: Connection, chain: StubChain, follow: Listener
) -> None:
    (one,) = sent(log, Kind.PUBLIC_DECRYPT)
    chain.put(requested(one, (3, 0)), head=5)
    settle(follow, log, 5)
    assert (status(log, one), slot(log, one)) == ("receipt_received", ("mined", "mined", 3))
    replace(chain, 3, head=6)
    settle(follow, log, 6)
    row = world.row(log, one)
    assert (row.status, row.gw_reference_id, row.receipt_block) == ("tx_in_flight", None, None)
    assert slot(log, one) == ("live", "accepted", None)
    assert log.execute("SELECT count(*) FROM gateway_ref").fetchone() == (0,)
    again = requested(Ours(one.kind, one.id, one.tx_hash, world.new_ref(one.kind)), (8, 0))
    chain.put(moved(again, 1), head=9)
    settle(follow, log, 9)
    row = world.row(log, one)
    assert (row.status, row.gw_reference_id, row.receipt_block) == ("receipt_received", again.ref, 8)
    assert verbs(log, one) == ["record_receipt", "withdraw", "record_receipt"]


def test_the_old_reference_may_go_to_another_request(log: Connection, chain: StubChain, follow: Listener) -> None:
    """References are numbers of a counter: in the other blocks the next request gets what the first one had."""
    first, second = sent(log, Kind.USER_DECRYPT, 2)
    chain.put(requested(first, (3, 0)), *(share(first.ref, n, (4, n)) for n in range(3)), head=4)
    settle(follow, log, 4)
    swapped = (
        Ours(second.kind, second.id, second.tx_hash, first.ref),
        Ours(first.kind, first.id, first.tx_hash, second.ref),
    )
    shares = [share(one.ref, n, (5 + place, n)) for place, one in enumerate(swapped) for n in range(THRESHOLD)]
    replace(chain, 3, requested(swapped[0], (3, 0)), requested(swapped[1], (3, 1)), *shares, head=7)
    settle(follow, log, 7)
    assert [status(log, one) for one in (first, second)] == ["completed", "completed"]
    assert (world.row(log, first).gw_reference_id, world.row(log, second).gw_reference_id) == (second.ref, first.ref)
    assert log.execute("SELECT n, threshold FROM gateway_ref").fetchall() == [(THRESHOLD, THRESHOLD)] * 2


def test_shares_that_gave_way_are_not_counted(log: Connection, chain: StubChain, follow: Listener) -> None:
    (one,) = sent(log, Kind.USER_DECRYPT)
    chain.put(requested(one, (2, 0)), *(share(one.ref, n, (3 + n, 0)) for n in range(5)))
    settle(follow, log, 7)
    replace(chain, 5, head=8)
    settle(follow, log, 8)
    assert log.execute("SELECT n FROM gateway_ref").fetchone() == (2,)
    assert log.execute("SELECT count(*) FROM user_decrypt_share").fetchone() == (2,)
    chain.put(*(moved(share(one.ref, n, (9, n)), 1) for n in range(2, THRESHOLD)))
    settle(follow, log, 9)
    assert (status(log, one), verbs(log, one)) == ("completed", ["record_receipt", "complete"])


@pytest.mark.parametrize("returns", [True, False])
def test_a_final_row_stays_and_is_looked_after(
    log: Connection, chain: StubChain, follow: Listener, returns: bool
) -> None:
    (one,) = sent(log, Kind.USER_DECRYPT)
    events = [requested(one, (3, 0)), *(share(one.ref, n, (4, n)) for n in range(THRESHOLD))]
    chain.put(*events)
    settle(follow, log, 4)
    before = world.row(log, one)
    assert before.status == "completed"
    replace(chain, 3, *(events if returns else ()), head=5)
    settle(follow, log, 5)
    assert world.row(log, one) == before
    assert slot(log, one)[0] == ("mined" if returns else "live")
    assert log.execute("SELECT count(*) FROM kept_share WHERE request_id = %s", (one.id,)).fetchone() == (THRESHOLD,)
    assert duty.settle(log) == 0  # not before the chain is deep enough past it
    chain.head = 4 + 64
    settle(follow, log, 4 + 64)
    assert duty.settle(log) == 2  # the request event and the shares, one line each
    cases = log.execute("SELECT reason_code, subject_id FROM review_case").fetchall()
    assert cases == ([] if returns else [("receipt_vanished", one.id)])


def test_rows_in_review_forget_what_is_no_longer_true(log: Connection, chain: StubChain, follow: Listener) -> None:
    (one,) = sent(log, Kind.INPUT_PROOF)
    chain.put(requested(one, (3, 0)))
    settle(follow, log, 3)
    log.execute("UPDATE input_proof_req SET status = 'needs_review', deadline_at = NULL WHERE id = %s", (one.id,))
    replace(chain, 3, head=4)
    settle(follow, log, 4)
    assert (status(log, one), world.row(log, one).gw_reference_id) == ("needs_review", None)
    replace(chain, 4, requested(one, (5, 0)), answered(one, (6, 0)), head=6)
    settle(follow, log, 6)
    assert status(log, one) == "completed"


def test_rivals_of_a_withdrawn_winner_are_open_again(log: Connection, chain: StubChain, follow: Listener) -> None:
    (one,) = sent(log, Kind.PUBLIC_DECRYPT)
    log.execute(
        "INSERT INTO tx_attempt (signer_id,nonce,seq,tx_hash,raw_tx,max_fee_per_gas,max_priority_fee,gas_limit,state,epoch) "
        "SELECT signer_id,nonce,2,%s,raw_tx,2,2,21000,'accepted',1 FROM tx_attempt",
        (b"\x77" * 32,),
    )
    chain.put(requested(one, (2, 0)))
    settle(follow, log, 2)
    assert log.execute("SELECT state FROM tx_attempt ORDER BY seq").fetchall() == [("mined",), ("replaced",)]
    rival = Ours(one.kind, one.id, b"\x77" * 32, one.ref)
    replace(chain, 2, requested(rival, (2, 0)), head=3)
    settle(follow, log, 3)
    assert log.execute("SELECT state FROM tx_attempt ORDER BY seq").fetchall() == [("replaced",), ("mined",)]
    assert (status(log, one), world.row(log, one).gw_req_tx_hash) == ("receipt_received", b"\x77" * 32)


def test_final_slots_stay(log: Connection, chain: StubChain, follow: Listener) -> None:
    (one,) = sent(log, Kind.PUBLIC_DECRYPT)
    chain.put(requested(one, (2, 0)))
    settle(follow, log, 2)
    log.execute("UPDATE nonce_slot SET state = 'final'")
    log.execute("UPDATE tx_attempt SET state = 'final'")
    replace(chain, 2, head=3)
    settle(follow, log, 3)
    assert slot(log, one)[:2] == ("final", "final")


@pytest.mark.parametrize("depth", [63, 64])
def test_as_deep_as_allowed_is_undone(log: Connection, chain: StubChain, follow: Listener, depth: int) -> None:
    (one,) = sent(log, Kind.PUBLIC_DECRYPT)
    chain.put(requested(one, (41, 0)), head=100)
    settle(follow, log, 100)
    replace(chain, 101 - depth, requested(one, (90, 0)), head=101)
    settle(follow, log, 101)
    assert (status(log, one), world.row(log, one).receipt_block) == ("receipt_received", 90)


def test_deeper_than_allowed_stops_the_source(log: Connection, chain: StubChain, follow: Listener) -> None:
    (one,) = sent(log, Kind.PUBLIC_DECRYPT)
    chain.put(requested(one, (90, 0)), head=100)
    settle(follow, log, 100)
    replace(chain, 36, head=101)
    with pytest.raises(SourceHalted, match="deeper than 64"):
        settle(follow, log, 101)
    assert "deeper than 64" in log.execute("SELECT halted FROM envelope_source").fetchone()[0]
    assert status(log, one) == "receipt_received"


def test_a_node_that_begins_anew_is_waited_for(
    log: Connection, chain: StubChain, follow: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The only node lost its data and reads the chain again: it contradicts nothing, and nobody need look."""
    monkeypatch.setattr(forks, "SHRUNK_SECONDS", 0.0)
    (one,) = sent(log, Kind.PUBLIC_DECRYPT)
    chain.put(requested(one, (90, 0)), head=100)
    settle(follow, log, 100)
    chain.head = 10
    with pytest.raises(Unreadable, match="block 10"):
        settle(follow, log, 100)
    assert log.execute("SELECT halted FROM envelope_source").fetchone() == (None,)
    assert status(log, one) == "receipt_received"
    chain.put(answered(one, (101, 0)), head=101)
    settle(follow, log, 101)
    assert (status(log, one), log.execute("SELECT count(*) FROM chain_reorg").fetchone()) == ("completed", (0,))


def halted_deep(log: Connection, chain: StubChain, follow: Listener) -> tuple[Ours, dict[str, Any]]:
    """A request in block 20 that its chain has no more; blocks 10 and 15 hold events that stay. With the case's evidence."""
    (one,) = sent(log, Kind.PUBLIC_DECRYPT)
    stranger = world.new_ref(Kind.USER_DECRYPT)
    chain.put(share(stranger, 0, (10, 0)), share(stranger, 1, (15, 0)), requested(one, (20, 0)), head=100)
    settle(follow, log, 100)
    replace(chain, 17, head=120)
    with pytest.raises(SourceHalted, match="deeper than 64"):
        settle(follow, log, 120)
    kind, subject, reason, evidence = log.execute(
        "SELECT kind, subject_id, reason_code, evidence FROM review_case WHERE status = 'open'"
    ).fetchone()
    assert (kind, subject, reason) == (Target.SOURCE, SOURCE, "deep_reorg")
    return one, evidence


def test_a_deep_reorganisation_is_a_case_that_says_where_it_begins(
    log: Connection, chain: StubChain, follow: Listener
) -> None:
    _, evidence = halted_deep(log, chain, follow)
    assert (evidence["sealed_block"], evidence["block"], evidence["compared_from"]) == (100, 16, 36)
    assert evidence["sealed_hash"] == f"0x{world.block_hash(100).hex()}"
    assert [(one["hash"], one["head"]) for one in evidence["nodes"]] == [(f"0x{world.block_hash(100, 1).hex()}", 120)]
    assert all("://" not in one["node"] for one in evidence["nodes"])


def test_the_chain_s_version_undoes_a_deep_reorganisation(
    log: Connection, chain: StubChain, follow: Listener, clients: Clients
) -> None:
    one, evidence = halted_deep(log, chain, follow)
    world_lease = Fence("singleton:commands", "test", 1)
    log.execute(
        "INSERT INTO exec_lease (resource, instance, epoch, lease_until) VALUES ('singleton:commands', 'test', 1, 'infinity')"
    )
    with transaction(log):
        undone = reorgs.adopt(log, SOURCE, evidence["block"], world_lease, request_kinds=REQUEST_KINDS)
    assert (undone.envelopes, undone.withdrawn) == (1, 1)
    assert (status(log, one), slot(log, one)) == ("tx_in_flight", ("live", "accepted", None))
    chain.put(moved(requested(one, (130, 0)), 1), head=131)
    successor = Listener(SOURCE, Blocks(clients.gateway), applier(), FENCE)
    successor.open(log, CHAIN_ID, 1)
    settle(successor, log, 131)
    assert (status(log, one), world.row(log, one).receipt_block) == ("receipt_received", 130)
    assert log.execute("SELECT status, outcome FROM review_case").fetchall() == [("closed", "take_chain")]


@pytest.mark.parametrize("parted", [1, 2, 11, 12, 29, 30, 31, 90])
def test_where_chains_part_below_what_is_compared(
    log: Connection, chain: StubChain, clients: Clients, parted: int
) -> None:
    """Found among the blocks that hold events: after the newest one that the chain still shows."""
    ref, blocks = world.new_ref(Kind.USER_DECRYPT), [1, 2, 3, 11, 12, 29, 30, 50]
    record(log, 1, 100, [share(ref, place, (block, 0)) for place, block in enumerate(blocks)])
    replace(chain, parted, head=150)
    alike = [block for block in blocks if block < parted]
    found = ForkWatch(SOURCE, Blocks(clients.gateway)).describe(log, 100, 90, 1)
    assert found["block"] == (max(alike) + 1 if alike else 1)


def test_who_was_taken_over_halts_nothing(log: Connection, chain: StubChain, follow: Listener) -> None:
    """Frozen between finding a fork and comparing: its successor has undone it and gone on, and kept no hash so far down."""
    (one,) = sent(log, Kind.PUBLIC_DECRYPT)
    chain.put(requested(one, (90, 0)), head=100)
    settle(follow, log, 100)
    replace(chain, 100, head=101)
    log.execute("UPDATE exec_lease SET epoch = 2, instance = 'successor'")
    log.execute("DELETE FROM chain_block")
    log.execute("UPDATE envelope_meta SET position = 300 << 20, block_hash = %s", (world.block_hash(300, 1),))
    with pytest.raises(StaleEpoch):
        settle(follow, log, 101)
    assert log.execute("SELECT halted FROM envelope_source").fetchone() == (None,)
    assert log.execute("SELECT count(*) FROM review_case").fetchone() == (0,)


def test_a_reorganisation_under_a_lost_lease_changes_nothing(
    log: Connection, chain: StubChain, follow: Listener
) -> None:
    (one,) = sent(log, Kind.PUBLIC_DECRYPT)
    chain.put(requested(one, (2, 0)))
    settle(follow, log, 2)
    before = log.execute("SELECT * FROM envelope_meta").fetchall()
    log.execute("UPDATE exec_lease SET epoch = 2")
    with pytest.raises(StaleEpoch):
        reorgs.undo(log, SOURCE, Fork(2, None, b"n" * 32), FENCE, sealed=2, request_kinds=REQUEST_KINDS)
    log.execute("UPDATE exec_lease SET epoch = 1")
    with pytest.raises(StaleEpoch, match="seal"):
        reorgs.undo(log, SOURCE, Fork(2, None, b"n" * 32), FENCE, sealed=3, request_kinds=REQUEST_KINDS)
    assert log.execute("SELECT * FROM envelope_meta").fetchall() == before
    assert log.execute("SELECT count(*) FROM chain_reorg").fetchone() == (0,)


def test_only_the_last_hashes_are_kept(log: Connection, chain: StubChain, follow: Listener) -> None:
    for head in (150, 151, 200):
        chain.head = head
        settle(follow, log, head)
    assert log.execute("SELECT min(block), max(block), count(*) FROM chain_block").fetchone() == (136, 200, 65)


def test_the_window_is_remembered(log: Connection, chain: StubChain, clients: Clients, follow: Listener) -> None:
    chain.range_limit = 10
    chain.put(share(world.new_ref(Kind.USER_DECRYPT), 0, (190, 0)), head=200)
    settle(follow, log, 190)
    kept = store_window(log)
    assert kept <= 20
    successor = Listener(SOURCE, Blocks(clients.gateway), applier(), FENCE)
    successor.open(log, CHAIN_ID, 1)
    assert successor._window == kept
    chain.range_limit = 10_000
    chain.head = 1500
    settle(successor, log, 1400)
    assert store_window(log) > kept


def store_window(conn: Connection) -> int:
    return int(conn.execute("SELECT window_blocks FROM chain_cursor").fetchone()[0])


def test_the_lag_is_told(log: Connection, chain: StubChain, follow: Listener) -> None:
    chain.range_limit = 50
    chain.head = 1200
    follow._window = 50
    follow._sealed_at = 0.0
    follow.poll(log)
    assert log.execute("SELECT chain_head - block FROM chain_cursor").fetchone() == (1150,)


def test_where_two_chains_part() -> None:
    stored = dict.fromkeys(range(10, 20), b"a")
    assert fork_block(stored, {**stored, 19: b"b"}, floor=10, first=1) == 19
    assert fork_block(stored, {n: (b"a" if n < 14 else b"b") for n in stored}, floor=10, first=1) == 14
    assert fork_block({12: b"a", 19: b"a"}, {n: (b"a" if n < 17 else b"b") for n in stored}, floor=10, first=1) == 13
    assert fork_block(stored, {}, floor=10, first=11) == 11
    with pytest.raises(TooDeep):
        fork_block(stored, dict.fromkeys(stored, b"b"), floor=10, first=5)


class Reported(Blocks):
    """What the endpoints say, told by the test."""

    def __init__(self) -> None:
        self.said: list[Witness] = []
        self.preferred: list[str] = []

    def witnesses(self, number: int) -> list[Witness]:
        return self.said

    def prefer(self, name: str) -> None:
        self.preferred.append(name)


def test_two_nodes_disagree() -> None:
    blocks, now = Reported(), [0.0]
    watch = ForkWatch(SOURCE, blocks, clock=lambda: now[0])
    blocks.said = [Witness("a", b"old", 100), Witness("b", b"new", 100)]
    for _ in range(10):
        now[0] += 60
        assert not watch.proven(90, b"old")  # the one that shows what is sealed is not behind
    assert set(blocks.preferred) == {"a"}
    blocks.said[1] = Witness("b", b"new", 120)
    assert not watch.proven(90, b"old")
    now[0] += 31
    assert watch.proven(90, b"old")  # it has stood still for half a minute: the longer chain is believed
    assert blocks.preferred[-1] == ""


def test_an_old_disagreement_says_nothing_of_a_new_one() -> None:
    blocks, now = Reported(), [0.0]
    watch = ForkWatch(SOURCE, blocks, clock=lambda: now[0])
    blocks.said = [Witness("a", b"old", 100), Witness("b", b"new", 100)]
    assert not watch.proven(90, b"old")
    watch.joined()  # it passed
    now[0] += 3600
    blocks.said = [Witness("a", b"old", 100), Witness("b", b"new", 101)]  # ahead by a block, as one of two always is
    assert not watch.proven(90, b"old")


def test_looks_count_in_a_row_only() -> None:
    """The node that shows what is sealed answers now and then; the other one alone is not believed for it."""
    blocks = Reported()
    watch = ForkWatch(SOURCE, blocks)
    alone, both = [Witness("b", b"new", 100)], [Witness("a", b"old", 100), Witness("b", b"new", 100)]
    for said in (alone, alone, both, alone, alone):
        blocks.said = said
        assert not watch.proven(90, b"old")
    assert watch.proven(90, b"old")


def test_a_preferred_node_that_stands_still_is_left(clients: Clients) -> None:
    """Two nodes disagreed once. The believed one stalls later, the others go on: the listener must not stay with it."""
    endpoints = clients.gateway.endpoints
    (first,) = endpoints.all
    blocks = Blocks(clients.gateway)
    blocks.prefer(first.name)
    other = object()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(endpoints, "read", lambda: other)
        assert blocks._node() is first
        patch.setattr(endpoints, "_lagging", frozenset({first.name}))
        assert blocks._node() is other


def test_no_witness_is_no_proof() -> None:
    blocks = Reported()
    watch = ForkWatch(SOURCE, blocks)
    assert not any(watch.proven(90, b"old") for _ in range(10))
    blocks.said = [Witness("a", b"new", 100)]
    assert [watch.proven(90, b"old") for _ in range(3)] == [False, False, True]


def test_what_was_found_by_asking_again_is_not_applied_after_it_gave_way(
    log: Connection, chain: StubChain, follow: Listener
) -> None:
    """The sweep reads a receipt, the block gives way, the sweep goes on: the log no longer holds it."""
    (one,) = sent(log, Kind.PUBLIC_DECRYPT)
    late = requested(one, (2, 0))
    chain.head = 3
    settle(follow, log, 3)
    assert store.known_hashes(log, SOURCE, 0, 3)[2] == world.block_hash(2)
    replace(chain, 2, head=4)
    settle(follow, log, 4)
    from requests_app.store import envelopes

    assert envelopes.insert_below_seal(log, SOURCE, [late]) == 0
    applier().apply_now(log, [late])
    assert status(log, one) == "tx_in_flight"
