"""I2 and I6 as a machine: a chain that grows, gives blocks up, lags and lies, and listeners that die and follow one another.

Real listener, applier and database; only the node is played. Whatever happened, once the chain holds still: the log is exactly the
chain's events, every row stands where the chain says unless it was final before, and the seal has moved back only by a
recorded reorganisation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from requests_app.states import REQUEST_KINDS, Kind
from tests.listen import world
from tests.listen.world import FENCE, SOURCE, THRESHOLD, Ours, answered, applier, requested, sent, share
from workers.blocks import Blocks, NotYetThere, Window, WindowRefused, Witness
from workers.chain.events import Envelope
from workers.chain.views import Block
from workers.listener import Listener

Connection = psycopg.Connection[Any]
DEPTH = 64


class PlayedChain(Blocks):
    """Blocks by number: their hash and events. `hidden`: how many of the last ones the node does not have yet."""

    def __init__(self) -> None:
        self.hashes: list[bytes] = [b"\x99" * 32]
        self.events: list[list[Envelope]] = [[]]
        self.hidden, self.limit, self.serial, self.lie = 0, 10_000, 0, False

    @property
    def top(self) -> int:
        return len(self.hashes) - 1

    def add(self, *events: Envelope) -> None:
        """One more block with these events, wherever they were made for."""
        self.serial += 1
        block = len(self.hashes)
        self.hashes.append(world.block_hash(block, self.serial))
        self.events.append(
            [
                dataclasses.replace(one, position=block << 20 | n, block_hash=self.hashes[block])
                for n, one in enumerate(events)
            ]
        )

    def cut(self, depth: int) -> list[Envelope]:
        """The last blocks are gone; their events."""
        keep = max(1, len(self.hashes) - depth)
        lost = [one for block in self.events[keep:] for one in block]
        del self.hashes[keep:], self.events[keep:]
        return lost

    def _block(self, number: int) -> Block:
        found = b"\x66" * 32 if self.lie and number == self.top else self.hashes[number]
        return Block(number, found, self.hashes[number - 1] if number else bytes(32), 1)

    def head(self) -> Block:
        return self._block(self.top)

    def genesis(self) -> bytes:
        return self.hashes[0]

    def prefer(self, name: str) -> None:
        """There is one node."""

    def headers(self, numbers: Sequence[int]) -> dict[int, bytes]:
        return {number: self.hashes[number] for number in numbers if number <= self.top}

    def witnesses(self, number: int) -> list[Witness]:
        return [Witness("node", self.hashes[number], self.top)] if number <= self.top else []

    def window(self, lo: int, hi: int, headers_from: int | None = None) -> Window:
        if hi > self.top - self.hidden:
            raise NotYetThere
        if hi - lo + 1 > self.limit:
            raise WindowRefused
        events = [one for block in self.events[lo : hi + 1] for one in block]
        first = max(lo, hi if headers_from is None else headers_from)
        hashes = {number: self.hashes[number] for number in range(first, hi + 1)} | {hi: self.hashes[hi]}
        return Window(events + events[:1], hashes[hi], self.hashes[lo - 1], hashes)  # and one delivered twice


class LogMachine(RuleBasedStateMachine):
    """Steps of the chain, of its node, and of the listeners."""

    conn: Connection

    @initialize(back=st.sampled_from(["none", "requests", "all"]))
    def begin(self, back: str) -> None:
        conn = self.conn
        for table in (
            "chain_reorg", "chain_block", "envelope_orphan", "reorg_evidence", "kept_share", "user_decrypt_share", "gateway_ref",
            "tx_attempt", "nonce_slot", "req_transition", "review_case", "request_client", "request_payload",
            "dead_envelope", "consumer_cursor", "chain_cursor", "exec_lease", *world.TABLES,
        ):  # fmt: skip
            conn.execute(f"DELETE FROM {table}")
        conn.execute("DELETE FROM envelope_source")
        world.clean(conn)
        self.chain, self.ours, self.seal, self.reorgs = PlayedChain(), list[Ours](), 0, 0
        self.final: dict[tuple[Kind, int], Any] = {}
        self.chain.add()
        self.restart()
        for kind in REQUEST_KINDS:
            self.request(kind, 1)
        self.hold_still()
        self.give_way(5, back, 0, before=False, after=True)
        self.request(Kind.USER_DECRYPT, 0)
        self._share(self.ours[-1], foreign=False, whole=False)
        self.hold_still()
        self.give_way(1, "none", 0, before=False, after=True)

    @rule()
    def restart(self) -> None:
        """The listener dies; the next one begins with what is in the database."""
        self.listener = Listener(SOURCE, self.chain, applier(), FENCE)
        self.listener.open(self.conn, 1, 1)

    @rule(count=st.integers(1, 40))
    def grow(self, count: int) -> None:
        for _ in range(count):
            self.chain.add()

    @rule(kind=st.sampled_from(list(REQUEST_KINDS)), gap=st.integers(0, 3))
    def ask(self, kind: Kind, gap: int) -> None:
        self.request(kind, gap)

    def request(self, kind: Kind, gap: int) -> None:
        (one,) = sent(self.conn, kind)
        self.ours.append(one)
        self.chain.add(requested(one, (1, 0)))
        self.grow(gap)

    @precondition(lambda self: self.ours)
    @rule(data=st.data(), foreign=st.booleans(), whole=st.booleans())
    def answer(self, data: st.DataObject, foreign: bool, whole: bool) -> None:
        one = data.draw(st.sampled_from(self.ours))
        shown = any(found.ref == one.ref and found.kind <= 3 for block in self.chain.events for found in block)
        if not shown:
            return
        if one.kind is Kind.USER_DECRYPT:
            self._share(one, foreign=foreign, whole=whole)
        elif not any(found.ref == one.ref and found.kind > 3 for block in self.chain.events for found in block):
            self.chain.add(answered(one, (1, 0)))

    def _share(self, one: Ours, *, foreign: bool, whole: bool) -> None:
        """Too few shares, or the rest of them, or first these and then those."""
        seen = sum(found.ref == one.ref and found.kind == 5 for block in self.chain.events for found in block)
        shares = [share(one.ref, n, (1, 0)) for n in range(THRESHOLD)]
        if seen == 0:
            self.chain.add(*shares[:5])
        if (seen == 0 and whole) or seen == 5:
            self.chain.add(*shares[5:], *([share(world.new_ref(one.kind), 0, (1, 0))] if foreign else []))

    @rule(
        depth=st.one_of(st.integers(1, 6), st.integers(1, DEPTH), st.just(DEPTH)),
        back=st.sampled_from(["all", "requests", "none"]),
        longer=st.integers(0, 5),
        before=st.booleans(),
        after=st.booleans(),
    )
    def reorganise(self, depth: int, back: str, longer: int, before: bool, after: bool) -> None:
        self.give_way(depth, back, longer, before=before, after=after)

    def give_way(self, depth: int, back: str, longer: int, *, before: bool, after: bool) -> None:
        """Blocks give way, read (`before`) or not. Requests come back or not yet, answers with them or not."""
        if before:
            self.hold_still()
        # Deeper than 64 below the seal is another test's: the seal bounds how far this may reach.
        depth = min(depth, DEPTH - max(0, self.seal - self.chain.top))
        if depth < 1:
            return
        lost = self.chain.cut(depth)
        kept = [one for one in lost if back == "all" or (back == "requests" and one.kind <= 3)]
        for one in kept:
            self.chain.add(one)
        self.grow(max(1, depth - len(kept) + longer))
        if after:
            self.hold_still()

    @rule(hidden=st.integers(0, 10), limit=st.sampled_from([1, 7, 50, 10_000]), lie=st.booleans())
    def node(self, hidden: int, limit: int, lie: bool) -> None:
        self.chain.hidden, self.chain.limit, self.chain.lie = hidden, limit, lie

    @rule(times=st.integers(1, 4))
    def poll(self, times: int) -> None:
        for _ in range(times):
            self.listener._sealed_at = 0.0
            self.listener.poll(self.conn)
        self._remember()

    @rule()
    def hold_still(self) -> None:
        """I2: the node answers, the chain does not move: the rows say what it says."""
        self.chain.hidden, self.chain.limit, self.chain.lie = 0, 10_000, False
        for _ in range(40):
            self.listener._sealed_at = 0.0
            self.listener.poll(self.conn)
            if self._arrived() and not self.listener._applier.behind:
                break
        else:
            raise AssertionError("the listener does not arrive")
        want = {one.position: one.digest for block in self.chain.events for one in block}
        # The digest covers the block hash, which the played chain has replaced.
        stored = {
            row[0]: bytes(row[1])
            for row in self.conn.execute("SELECT position, block_hash FROM envelope_meta").fetchall()
        }
        assert set(stored) == set(want)
        assert all(stored[position] == self.chain.hashes[position >> 20] for position in stored)
        for one in self.ours:
            assert world.status(self.conn, one) == self._expected(one)
            if one.kind is Kind.USER_DECRYPT and (one.kind, one.id) not in self.final:
                self._shares_are_the_chains(one)
        self._remember()

    def _shares_are_the_chains(self, one: Ours) -> None:
        """Of a row that is not final exactly those shares are stored, and counted, which the chain shows."""
        want = {
            found.position for block in self.chain.events for found in block if (found.kind, found.ref) == (5, one.ref)
        }
        rows = self.conn.execute("SELECT position FROM user_decrypt_share WHERE gw_reference_id = %s", (one.ref,))
        assert {row[0] for row in rows} == want
        count = self.conn.execute("SELECT n FROM gateway_ref WHERE gw_reference_id = %s", (one.ref,)).fetchone()
        assert (count[0] if count else 0) == len(want)

    def teardown(self) -> None:
        """Whatever the end was."""
        if hasattr(self, "chain"):
            self.hold_still()

    @invariant()
    def the_seal_moves_back_only_by_a_recorded_reorganisation(self) -> None:
        if not hasattr(self, "chain"):
            return
        seal, reorgs = self._sealed(), self.conn.execute("SELECT count(*) FROM chain_reorg").fetchone()[0]
        assert seal >= self.seal or reorgs > self.reorgs
        self.seal, self.reorgs = seal, reorgs
        cursor = self.conn.execute("SELECT position FROM consumer_cursor").fetchone()[0]
        assert cursor < (seal + 1) << 20  # never past what is stored
        for (kind, row_id), row in self.final.items():
            found = world.row(self.conn, Ours(kind, row_id, b"", b""))
            assert found._replace(gw_consensus_tx_hash=None) == row if kind is Kind.USER_DECRYPT else found == row

    def _arrived(self) -> bool:
        """Whether the newest block is sealed, as it is now: another one of the same height counts too."""
        block, head_hash = self.conn.execute("SELECT block, head_hash FROM chain_cursor").fetchone()
        return bool(block == self.chain.top and head_hash in (None, self.chain.hashes[block]))

    def _sealed(self) -> int:
        return int(self.conn.execute("SELECT block FROM chain_cursor").fetchone()[0])

    def _remember(self) -> None:
        for one in self.ours:
            row = world.row(self.conn, one)
            if row.status == "completed":
                self.final.setdefault((one.kind, one.id), row)

    def _expected(self, one: Ours) -> str:
        if (one.kind, one.id) in self.final:
            return "completed"
        mine = [found.kind for block in self.chain.events for found in block if found.ref == one.ref]
        if not any(kind <= 3 for kind in mine):
            return "tx_in_flight"
        enough = mine.count(5) >= THRESHOLD if one.kind is Kind.USER_DECRYPT else any(kind > 3 for kind in mine)
        return "completed" if enough else "receipt_received"


def follow(log: Connection, examples: int, steps: int) -> None:
    machine = type("Machine", (LogMachine,), {"conn": log})
    limits = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=limits)


def test_the_log_follows_the_chain(log: Connection) -> None:
    follow(log, 8, 12)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_the_log_follows_the_chain_for_long(log: Connection) -> None:
    follow(log, 100, 40)
