"""Payments against a chain that races, reverts, gives way and is read late, by chance and repeatable: the books end as the chain does.

Every run makes ten payments and does a hundred things in an order that its seed decides, then lets everything come to rest. Reorganisations
are never deeper than what is called final.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from requests_app.finality import Chain
from requests_app.ledger import hold_of
from requests_app.states import IntentActor, IntentState
from requests_app.store import intents as intent_store
from requests_app.store import ledger
from requests_app.store.intents import Intent
from requests_app.store.invariants import INVARIANTS, check, spans
from requests_app.transitions.intents import Change, move
from tests.listen.stub_chain import CHAIN_ID, StubChain
from tests.listen.world import FENCE, SOURCE, block_hash
from tests.payments import shown
from tests.payments.shown import DUTY, Context, used
from tests.txm.test_reorgs import moved, replace, settle
from workers.blocks import Blocks
from workers.chain.events import EventKind
from workers.chain.payment_events import sender_of
from workers.duties import confirm
from workers.duties.recon import Reconciliation
from workers.listener import Listener

S, A = IntentState, IntentActor
Connection = psycopg.Connection[Any]
DEPTH, FINAL = 2, 3
STEPS = 100


class World:
    """Ten payments, the chain, the sender in miniature, and what the product does with them."""

    def __init__(self, conn: Connection, chain: StubChain, context: Context, seed: int) -> None:
        self.conn, self.chain, self.context, self.dice = conn, chain, context, random.Random(seed)
        self.ids = [one.id for one in shown.authorized(conn, 10)]
        self.pool: dict[bytes, Intent] = {}  # our transactions that a node has and no block holds
        self.listener = Listener(SOURCE, Blocks(context.clients.gateway), shown.applier(), FENCE)
        self.listener.open(conn, CHAIN_ID, 1)
        self.recon = Reconciliation()
        self.done: dict[str, int] = {}

    def all(self) -> list[Intent]:
        return intent_store.read_intents(self.conn, self.ids)

    def one(self, *states: IntentState) -> Intent | None:
        found = [one for one in self.all() if one.state in states]
        return self.dice.choice(found) if found else None

    # what the sender does

    def sign(self) -> None:
        """TX1, also for a payment that was executed by somebody else in a block that gave way."""
        one = self.one(S.AUTHORIZED, S.SETTLING)
        if one is None or self.attempt(one) is not None:
            return
        with self.conn.transaction():
            if one.state is S.AUTHORIZED:
                (held,) = move(self.conn, S.SETTLING, [Change.of(one)], A.RELAYER)
                ledger.append(self.conn, [hold_of(held.intent)])
            shown.attempts(self.conn, [one])

    def attempt(self, one: Intent) -> bytes | None:
        row = self.conn.execute(
            "SELECT t.tx_hash FROM nonce_slot n JOIN tx_attempt t USING (signer_id, nonce) WHERE n.kind = 4 AND n.subject_id = %s",
            (one.id,),
        ).fetchone()
        return bytes(row[0]) if row else None

    def send(self) -> None:
        """A node takes the bytes; TX2 is lost now and then."""
        one = self.one(S.SETTLING)
        tx_hash = self.attempt(one) if one else None
        if one is None or tx_hash is None:
            return
        if tx_hash not in self.chain.receipts:
            self.pool[tx_hash] = one
        if self.dice.random() < 0.7:
            with self.conn.transaction():
                move(self.conn, S.CONFIRMING, [Change.of(one, tx_hash=tx_hash)], A.RELAYER)

    # what the chain does

    def spent(self) -> set[bytes]:
        """Refs whose payer's authorization is used: nonces belong to their authorizer."""
        return {
            event.ref
            for event in self.chain.events
            if event.kind == EventKind.AUTHORIZATION_USED and sender_of(event.payload) == shown.FROM
        }

    def block(self) -> int:
        self.chain.head += 1
        return self.chain.head

    def mine(self) -> None:
        """One of ours, with whatever the token makes of it."""
        if self.pool:
            tx_hash = self.dice.choice(list(self.pool))
            self.include(self.pool.pop(tx_hash), tx_hash)

    def include(self, one: Intent, tx_hash: bytes, **odd: Any) -> None:
        block = self.block()
        fork = self.chain.forks.get(block, 0)
        if one.ref in self.spent():
            self.chain.mine(tx_hash, status=0)
            return
        pair = [moved(event, fork) for event in used(one, (block, 0), tx_hash, **odd)]
        self.chain.events += pair
        self.chain.mine(tx_hash, *pair)

    def stranger(self) -> None:
        """Anybody executes a payer's authorization, or the payer spends its nonce otherwise."""
        one = self.dice.choice(self.all())
        odd = {} if self.dice.random() < 0.7 else {"amount": 7}
        if one.ref not in self.spent():
            self.include(one, self.dice.randbytes(32), **odd)

    def copycat(self) -> None:
        """Somebody uses one of our refs as a nonce of their own."""
        one = self.dice.choice(self.all())
        block = self.block()
        self.chain.events += [
            moved(event, self.chain.forks.get(block, 0))
            for event in used(one, (block, 0), self.dice.randbytes(32), authorizer=shown.STRANGER)
        ]

    def reorganise(self) -> None:
        """The last blocks give way; our transactions go back to the pool."""
        if self.chain.head <= DEPTH:
            return
        fork = self.chain.head - self.dice.randrange(DEPTH)
        gone = {key for key, receipt in self.chain.receipts.items() if int(receipt["blockNumber"], 16) >= fork}
        for key in gone:
            del self.chain.receipts[key]
        ours = {self.attempt(one): one for one in self.all()}
        self.pool |= {key: ours[key] for key in gone if key in ours}
        replace(self.chain, fork, head=self.chain.head)

    # what the product does

    def listen(self) -> None:
        """Until the log holds the chain as it is; a block that changed is believed after some looks."""
        wanted = (self.chain.head, block_hash(self.chain.head, self.chain.forks.get(self.chain.head, 0)))
        for _ in range(20):
            settle(self.listener, self.conn, self.chain.head)
            stands = self.conn.execute("SELECT block, head_hash FROM chain_cursor").fetchone()
            if stands == wanted or not self.chain.head:
                return
        raise AssertionError(f"the listener does not follow: {stands} instead of {wanted}, {self.done}")

    def judge(self) -> None:
        sealed = self.conn.execute("SELECT block FROM chain_cursor").fetchone()[0]
        confirm.Confirmation().look(self.context, DUTY, Chain(self.chain.head, self.chain.head - FINAL), sealed)  # type: ignore[arg-type]

    def wait(self) -> None:
        """A confirming payment has waited long."""
        one = self.one(S.CONFIRMING)
        if one is not None:
            self.conn.execute(
                "UPDATE payment_intent SET updated_at = updated_at - interval '6 minutes' WHERE id = %s AND state = 'confirming'",
                (one.id,),
            )

    def reconcile(self) -> None:
        sealed = self.conn.execute("SELECT block FROM chain_cursor").fetchone()[0]
        self.recon.up_to(self.context, DUTY, min(sealed, self.chain.head - FINAL))  # type: ignore[arg-type]

    def step(self) -> None:
        acts = {
            self.sign: 4, self.send: 6, self.mine: 6, self.stranger: 1, self.copycat: 1, self.block: 3, self.reorganise: 2,
            self.listen: 6, self.judge: 4, self.wait: 1, self.reconcile: 1,
        }  # fmt: skip
        (act,) = self.dice.choices(list(acts), list(acts.values()))
        self.done[act.__name__] = self.done.get(act.__name__, 0) + 1
        act()

    def rest(self) -> None:
        """Everything that was begun comes to its end."""
        for _ in range(6):
            with self.conn.transaction():
                shown.attempts(
                    self.conn, [one for one in self.all() if one.state is S.SETTLING and not self.attempt(one)]
                )
            for _ in range(2 * len(self.ids)):
                self.send()
            while self.pool:
                self.mine()
            for _ in range(FINAL + 1):
                self.block()
            self.listen()
            self.judge()
        self.reconcile()


@pytest.fixture
def chain() -> StubChain:
    return StubChain()


@pytest.fixture
def context(log: Connection, chain: StubChain, settings: Any) -> Iterator[Context]:
    settings.PAYMENT_STUCK_SECONDS = 10**9
    with shown.chain_behind(log, chain, settings) as found:
        yield found


def run(log: Connection, chain: StubChain, context: Context, seed: int) -> None:
    world = World(log, chain, context, seed)
    for _ in range(STEPS):
        world.step()
    world.rest()
    amount = shown.AMOUNT.to_bytes(32, "big")
    exact = {
        event.ref: event.tx_hash
        for event in chain.events
        if event.kind == EventKind.PAYMENT_TRANSFERRED
        and event.payload.endswith(amount)
        and sender_of(event.payload) == shown.FROM
    }
    for one in world.all():
        kinds = shown.entries(log, one)
        if one.ref in exact:
            assert (one.state, one.tx_hash, kinds) == (S.SETTLED, exact[one.ref], ["hold", "post"]), one
        elif one.ref in world.spent():
            assert (one.state, kinds) == (S.NEEDS_REVIEW, ["hold"]), one
        else:
            assert (one.state, kinds) == (S.AUTHORIZED, []), one
    merchants = ledger.balances(log, f"merchant:{world.all()[0].merchant}")
    assert sum(one.posted for one in merchants) == shown.AMOUNT * len(exact)
    assert broken(log) == []
    print(f"\nseed {seed}: {len(exact)} settled of {len(world.ids)}, {world.done}, head {chain.head}")


def broken(conn: Connection) -> list[Any]:
    """What breaks an invariant; the nonces here are not a signer's own."""
    reach = spans(conn)
    judged = (one for one in INVARIANTS if one.name != "nonces_dense")
    return [found for one in judged for found in check(conn, one, 0, reach[one.over][1])]


def seeds(count: int) -> list[int]:
    first = int(os.environ.get("MACHINE_SEED", "1"))
    return list(range(first, first + count))


@pytest.mark.parametrize("seed", seeds(4))
def test_the_books_end_as_the_chain_does(log: Connection, chain: StubChain, context: Context, seed: int) -> None:
    run(log, chain, context, seed)


@pytest.mark.full
@pytest.mark.parametrize("seed", [n + 1000 for n in seeds(40)])
def test_the_books_end_as_the_chain_does_forty_times(
    log: Connection, chain: StubChain, context: Context, seed: int
) -> None:
    run(log, chain, context, seed)
