"""The real listener over a node whose blocks give way: what payments rest on is taken back with them, in one transaction (B48)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from requests_app.errors import SourceHalted
from requests_app.finality import Chain
from requests_app.states import IntentState
from requests_app.store import envelopes, intents, ledger
from requests_app.store import recon as recon_store
from requests_app.transitions.unconfirming import AUTHORIZATION_USED
from tests.listen.stub_chain import CHAIN_ID, StubChain
from tests.listen.world import FENCE, SOURCE
from tests.payments import shown
from tests.payments.shown import DUTY, Context, case, entries, observed, stands, used
from tests.txm.test_reorgs import moved, replace, settle
from workers.blocks import Blocks
from workers.chain.events import EventKind
from workers.duties import confirm
from workers.duties import reorgs as evidence_duty
from workers.duties.recon import Reconciliation
from workers.listener import Listener

S = IntentState
Connection = psycopg.Connection[Any]
OTHER = b"\xee" * 32


@pytest.fixture
def chain() -> StubChain:
    return StubChain()


@pytest.fixture
def context(log: Connection, chain: StubChain, settings: Any) -> Iterator[Context]:
    with shown.chain_behind(log, chain, settings) as found:
        yield found


@pytest.fixture
def follow(log: Connection, context: Context) -> Listener:
    made = Listener(SOURCE, Blocks(context.clients.gateway), shown.applier(), FENCE)
    made.open(log, CHAIN_ID, 1)
    return made


def final(context: Context, head: int) -> int:
    """The confirm duty with everything up to the head final."""
    sealed = envelopes.read_source(context.conn, SOURCE).block
    return confirm.Confirmation().look(context, DUTY, Chain(head, head), sealed)  # type: ignore[arg-type]


def sent_again(conn: Connection) -> list[tuple[str, str, Any]]:
    return conn.execute(
        "SELECT n.state, t.state, t.last_sent_at FROM nonce_slot n JOIN tx_attempt t USING (signer_id, nonce)"
    ).fetchall()


def test_the_listener_asks_for_the_tokens_logs(log: Connection, chain: StubChain, follow: Listener) -> None:
    """Foreign logs of the token between the pair's, and Transfers without an authorization, leave nothing behind."""
    ((one, tx_hash),) = shown.settling(log)
    pair = used(one, (3, 4), tx_hash)
    chain.put(*pair, *used(one._replace(ref=b"\x09" * 32), (3, 8), OTHER)[1:], head=4)
    settle(follow, log, 4)
    assert stands(log, one) == (S.CONFIRMING, 4, tx_hash)
    kinds = [row[0] for row in log.execute("SELECT kind FROM envelope_meta ORDER BY position")]
    assert kinds == [EventKind.AUTHORIZATION_USED, EventKind.PAYMENT_TRANSFERRED]
    query = next(params[0] for method, params in chain.asked if method == "eth_getLogs")
    assert f"0x{shown.TOKEN.hex()}" in query["address"]


def test_a_payment_whose_block_gave_way_is_settling_and_found_again(
    log: Connection, chain: StubChain, follow: Listener, context: Context
) -> None:
    """B48: un-confirming is a transition with a reason; the same bytes are due at once, and the same hash ends it."""
    ((one, tx_hash),) = shown.confirming(log)
    chain.put(*used(one, (3, 0), tx_hash), head=5)
    settle(follow, log, 5)
    assert sent_again(log)[0][:2] == ("mined", "mined")
    replace(chain, 3, head=6)
    settle(follow, log, 6)
    assert stands(log, one) == (S.SETTLING, 5, None)
    assert shown.now(log, one).state_reason == "reorganisation from block 3"
    assert (observed(log), sent_again(log), entries(log, one)) == ([], [("live", "accepted", None)], ["hold"])
    assert log.execute("SELECT job_key FROM queue_job").fetchall() == [(f"{one.public_id}/settle",)]
    assert final(context, 6) == 0
    chain.put(*(moved(event, 1) for event in used(one, (8, 0), tx_hash)), head=9)
    settle(follow, log, 9)
    assert stands(log, one) == (S.CONFIRMING, 6, tx_hash)
    assert final(context, 9) == 1
    assert stands(log, one) == (S.SETTLED, 7, tx_hash)
    way = [(row.to_state.value, row.actor) for row in intents.history(log, one.id)]
    assert way[3:] == [
        ("confirming", "relayer"), ("settling", "listener"), ("confirming", "listener"), ("settled", "listener"),
    ]  # fmt: skip


def test_somebody_elses_execution_that_gave_way_leaves_a_payment_without_bytes(
    log: Connection, chain: StubChain, follow: Listener
) -> None:
    """Nothing was ever signed for it: it is held and settling, and its job lets the settle worker sign it."""
    (one,) = shown.authorized(log)
    log.execute("DELETE FROM queue_job")
    chain.put(*used(one, (3, 0), OTHER), head=4)
    settle(follow, log, 4)
    assert stands(log, one) == (S.CONFIRMING, 4, OTHER)
    replace(chain, 3, head=5)
    settle(follow, log, 5)
    assert stands(log, one) == (S.SETTLING, 5, None)
    assert (entries(log, one), log.execute("SELECT count(*) FROM nonce_slot").fetchone()) == (["hold"], (0,))
    assert log.execute("SELECT job_key FROM queue_job").fetchall() == [(f"{one.public_id}/settle",)]


def test_the_race_may_end_otherwise_in_the_other_blocks(log: Connection, chain: StubChain, follow: Listener) -> None:
    """Theirs was first, then ours is: the payment follows the chain that stands."""
    ((one, ours),) = shown.confirming(log)
    chain.put(*used(one, (3, 0), OTHER), head=4)
    settle(follow, log, 4)
    assert stands(log, one)[2] == OTHER
    replace(chain, 3, *used(one, (4, 0), ours), head=5)
    settle(follow, log, 5)
    assert stands(log, one)[::2] == (S.CONFIRMING, ours)
    assert sent_again(log)[0][:2] == ("mined", "mined")


def test_blocks_below_the_fork_keep_their_payments(log: Connection, chain: StubChain, follow: Listener) -> None:
    pairs = shown.confirming(log, 2)
    chain.put(*used(pairs[0][0], (2, 0), pairs[0][1]), *used(pairs[1][0], (4, 0), pairs[1][1]), head=4)
    settle(follow, log, 4)
    replace(chain, 3, head=5)
    settle(follow, log, 5)
    assert [stands(log, one)[0] for one, _ in pairs] == [S.CONFIRMING, S.SETTLING]


@pytest.mark.parametrize("returns", [True, False])
def test_a_settled_payment_stays_and_is_looked_after(
    log: Connection, chain: StubChain, follow: Listener, context: Context, returns: bool
) -> None:
    """Settled is final (I4): a chain that takes back what it called final is a person's matter."""
    ((one, tx_hash),) = shown.confirming(log)
    pair = used(one, (3, 0), tx_hash)
    chain.put(*pair, head=4)
    settle(follow, log, 4)
    assert final(context, 4) == 1
    before = stands(log, one)
    replace(chain, 3, *(pair if returns else ()), head=5)
    settle(follow, log, 5)
    assert stands(log, one) == before
    assert evidence_duty.settle(log) == 0
    chain.head = 4 + 64
    settle(follow, log, 4 + 64)
    assert evidence_duty.settle(log) == 1
    assert (case(log, one) or (None,))[0] == (None if returns else "receipt_vanished")
    assert entries(log, one) == ["hold", "post"]
    (merchant,) = ledger.balances(log, f"merchant:{one.merchant}")
    assert (merchant.pending, merchant.posted) == (0, shown.AMOUNT)


def test_what_was_reconciled_in_blocks_that_gave_way_is_reconciled_again(
    log: Connection, chain: StubChain, follow: Listener, context: Context
) -> None:
    ((one, _),) = shown.settling(log)
    chain.put(*used(one, (3, 0), OTHER, amount=1), head=5)
    settle(follow, log, 5)
    duty = Reconciliation()
    assert duty.up_to(context, DUTY, 5) == 1  # type: ignore[arg-type]
    replace(chain, 3, *used(one, (3, 0), OTHER, amount=2), head=6)
    settle(follow, log, 6)
    assert recon_store.open_cursor(log, SOURCE) == 2
    assert log.execute("SELECT count(*) FROM recon_finding").fetchone() == (0,)
    assert duty.up_to(context, DUTY, 6) == 1  # type: ignore[arg-type]
    assert log.execute("SELECT detail->>'amount' FROM recon_finding").fetchall() == [("2",)]


def test_a_reorganisation_deeper_than_allowed_stops_the_source_and_moves_no_payment(
    log: Connection, chain: StubChain, follow: Listener
) -> None:
    ((one, tx_hash),) = shown.confirming(log)
    chain.put(*used(one, (3, 0), tx_hash), head=80)
    settle(follow, log, 80)
    replace(chain, 3, head=81)
    with pytest.raises(SourceHalted):
        settle(follow, log, 81)
    assert stands(log, one) == (S.CONFIRMING, 4, tx_hash)


def test_the_events_number_is_the_stored_one() -> None:
    assert EventKind.AUTHORIZATION_USED == AUTHORIZATION_USED
