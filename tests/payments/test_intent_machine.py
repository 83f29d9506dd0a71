"""Invariants 6 to 11 as a machine: clients, workers with old knowledge, the listener, operators and time, in any order.

Whoever changes an intent may have read it long ago. A change happens exactly when what was read still stands and the table allows it;
everything else changes nothing, and after every step all invariants hold. The settle worker is the production's, its node a script.
"""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from requests_app.errors import ForbiddenActor, IllegalTransition, MissingEvidence, RelayerError, TerminalState
from requests_app.ledger import hold_of, post_of, void_of
from requests_app.models.ledger import EntryKind
from requests_app.models.reviews import ReasonCode
from requests_app.states import INTENT_FINAL, INTENT_TRANSITIONS, IntentActor, IntentState
from requests_app.store import intents as store
from requests_app.store import ledger
from requests_app.store.attempts import Outgoing
from requests_app.store.intents import Intent
from requests_app.store.session import connect
from requests_app.store.signing import Fence
from requests_app.transitions import intents
from requests_app.transitions.intents import Change
from requests_app.transitions.sending import Price, Wanted
from tests.payments.machines import begin, live, violations
from tests.payments.terms import add_account, add_authorized, add_intent, authorization
from tests.send.scenes import add_signer, hold
from workers.broadcast import Sent
from workers.chain.errors import SendClass
from workers.examples.settle import ScriptedNode
from workers.settle_routes import make_settler
from workers.settling import Outcome

S, A = IntentState, IntentActor
Conn = psycopg.Connection[Any]
RESOURCE = "signer:machine"


class Node(ScriptedNode):
    """A node whose hashes are whole; `lost`: it takes the bytes, but its answer does not arrive."""

    lost = False

    def sign(self, wanted: Wanted, nonce: int, price: Price) -> tuple[bytes, bytes]:
        raw, _ = super().sign(wanted, nonce, price)
        return raw, hashlib.sha256(raw + self.signer_id.to_bytes(8, "big")).digest()

    def transmit(self, items: Sequence[Outgoing]) -> list[Sent]:
        sent = super().transmit(items)
        if self.lost:
            return [Sent(one.item, SendClass.UNKNOWN, "connection reset", False) for one in sent]
        return sent


class IntentMachine(RuleBasedStateMachine):
    """Steps of everyone who may touch an intent, and of some who may not."""

    conn: Conn

    @initialize()
    def begin(self) -> None:
        begin(self.conn)
        self.account = add_account(self.conn)
        self.seen: list[Intent] = []  # every version that anybody ever read
        self.final: dict[int, Intent] = {}
        fence = hold(self.conn, RESOURCE, instance="one")
        self.node = Node(fence, add_signer(self.conn, fence).id)
        self.settler = make_settler(self.conn, self.node, "one")
        for _ in range(3):
            self.note(add_authorized(self.conn, self.account))

    def note(self, intent: Intent) -> Intent:
        self.seen.append(intent)
        return intent

    def now(self, intent: Intent) -> Intent:
        return store.read_intents(self.conn, [intent.id])[0]

    @rule(lifetime=st.sampled_from([None, -1.0, 600.0]))
    def create(self, lifetime: float | None) -> None:
        self.note(add_intent(self.conn, self.account, lifetime_seconds=lifetime))

    @rule(data=st.data(), over=st.booleans())
    def authorize(self, data: st.DataObject, over: bool) -> None:
        old = data.draw(st.sampled_from(self.seen))
        before = self.now(old)
        signed = authorization(old, valid_before="1000" if over else "4000000000")
        try:
            done = intents.authorize(self.conn, self.account, old.public_id, signed)
        except RelayerError:
            assert self.now(old).version == before.version
            assert before.state is not S.CREATED or before.expired
        else:
            assert done.queued == (before.state is S.CREATED)
            self.note(done.intent)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        old = data.draw(st.sampled_from(self.seen))
        before = self.now(old)
        try:
            self.note(intents.cancel(self.conn, old.public_id, "no", account_id=self.account))
        except (IllegalTransition, TerminalState):
            assert before.state not in (S.CREATED, S.AUTHORIZED, S.CANCELED)

    @rule()
    def expire(self) -> None:
        with self.conn.transaction():
            for one in intents.expire(self.conn, 100):
                assert one.was is S.CREATED or one.intent.window_closed
                self.note(one.intent)

    @rule(up=st.booleans(), lost=st.booleans(), limit=st.integers(1, 3))
    def work(self, up: bool, lost: bool, limit: int) -> None:
        """The settle worker, whose earlier deliveries are due again."""
        self.conn.execute("UPDATE queue_job SET visible_at = clock_timestamp() - interval '1 second'")
        self.node.up, self.node.lost = up, lost
        for one in self.settler.run(limit):
            found = store.find_intent(self.conn, one.job_key.removesuffix("/settle"))
            assert found is not None
            if one.outcome is Outcome.SENT:
                assert found.state in (S.CONFIRMING, S.SETTLED)
            self.note(found)

    @rule(chance=st.randoms(use_true_random=True), times=st.integers(3, 10))
    def somebody_moves(self, chance: random.Random, times: int) -> None:
        """From a version that was read now or long ago; mostly as the table allows, else anyhow."""
        for _ in range(times):
            old = chance.choice(self.seen)
            if chance.random() < 0.8:
                old = self.note(self.now(old))
            edges = [
                edge for edge in INTENT_TRANSITIONS.values()
                if edge.source is old.state and edge.target not in (S.AUTHORIZED, S.CANCELED)
            ]  # fmt: skip
            if edges and chance.random() < 0.8:
                edge = chance.choice(edges)
                self._move(old, edge.target, chance.choice(sorted(edge.actors)), False)
            else:
                # Where canceling is allowed it has a rule of its own, which takes the job along.
                own = {S.AUTHORIZED} | ({S.CANCELED} if (old.state, S.CANCELED) in INTENT_TRANSITIONS else set())
                target = chance.choice(sorted(set(S) - own - {old.state}))
                self._move(old, target, chance.choice(sorted(A)), chance.random() < 0.5)

    def _move(self, old: Intent, target: S, actor: A, bare: bool) -> None:
        edge = INTENT_TRANSITIONS.get((old.state, target))
        before = self.now(old)
        evidence = {} if bare else {"tx_hash": old.tx_hash or bytes(31) + bytes([old.id % 251]), "reason": "because"}
        if target in (S.SETTLING, S.FAILED):
            evidence.pop("tx_hash", None)
        review = ReasonCode.OUTCOME_UNKNOWN if target is S.NEEDS_REVIEW else None
        if edge is None or actor not in edge.actors or (bare and edge.evidence):
            with pytest.raises((IllegalTransition, ForbiddenActor, MissingEvidence)), self.conn.transaction():
                intents.move(self.conn, target, [Change.of(old, **evidence)], actor, review=review)
            assert self.now(old)[:17] == before[:17]
            return
        moved = self._move_with_books(old, target, actor, evidence, review)
        assert bool(moved) == (before.version == old.version)
        assert self.now(old).version == before.version + len(moved)

    def _move_with_books(self, old: Intent, target: S, actor: A, evidence: dict[str, Any], review: Any) -> list[Any]:
        """As all callers do: the change, the job where a worker is needed, and the entry that goes with it."""
        with self.conn.transaction():
            moved = intents.move(self.conn, target, [Change.of(old, **evidence)], actor, review=review)
            for one in moved:
                if target is S.SETTLING:
                    store.enqueue_settle(self.conn, [one.intent.id], 0)
                made = {
                    S.SETTLING: lambda i: [hold_of(i)] if old.state is S.AUTHORIZED else [],
                    S.SETTLED: lambda i: [post_of(i, actor)],
                    S.FAILED: lambda i: [void_of(i, actor, memo="because")],
                }.get(target, lambda i: [])(one.intent)
                ledger.append(self.conn, made)
                self.note(one.intent)
        return moved

    @invariant()
    def everything_holds(self) -> None:
        if not hasattr(self, "seen"):
            return
        assert violations(self.conn) == []
        latest = {one.id: one for one in store.read_intents(self.conn, sorted({one.id for one in self.seen}))}
        for one in latest.values():
            if one.state in INTENT_FINAL:
                assert self.final.setdefault(one.id, one)[:17] == one[:17]
            assert (one.id in store.cases_open(self.conn, [one.id])) == (one.state is S.NEEDS_REVIEW)
        jobs = {row[0] for row in self.conn.execute("SELECT subject_id FROM queue_job").fetchall()}
        waiting = {one.id for one in latest.values() if one.state is S.AUTHORIZED}
        assert waiting <= jobs  # nothing authorized waits for ever
        assert not jobs & {one.id for one in latest.values() if one.state in (S.CREATED, S.CANCELED)}


def test_intents_keep_their_word_whoever_comes_when(conn: Conn) -> None:
    live(IntentMachine, conn, 15, 30)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_intents_keep_their_word_for_long(conn: Conn) -> None:
    live(IntentMachine, conn, 150, 60)


def test_eight_workers_pay_fifty_once(conn: Conn) -> None:
    """Invariant 9: any interleaving of N workers on M intents gives M holds, M first sends, M confirming."""
    account = add_account(conn)
    made = [add_authorized(conn, account) for _ in range(50)]
    nodes: list[Node] = []
    failures: list[BaseException] = []
    for number in range(8):
        fence: Fence = hold(conn, f"{RESOURCE}:{number}", instance=f"worker {number}")
        nodes.append(Node(fence, add_signer(conn, fence).id))
    together = threading.Barrier(len(nodes))

    def work(number: int) -> None:
        try:
            with connect("worker", name=f"worker {number}") as own:
                settler = make_settler(own, nodes[number], f"worker {number}")
                together.wait(30)
                while settler.run(limit=3):
                    pass
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(nodes))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    after = store.read_intents(conn, [one.id for one in made])
    assert {(one.state, one.version) for one in after} == {(S.CONFIRMING, 4)}
    assert [one.entry.kind for one in ledger.journal(conn)] == [EntryKind.HOLD] * 50
    sent = [tx_hash for node in nodes for tx_hash in node.taken]
    assert sorted(sent) == sorted(one.tx_hash or b"" for one in after)
    assert violations(conn) == []
    assert conn.execute("SELECT count(*) FROM queue_job").fetchone() == (0,)
