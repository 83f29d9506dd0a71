"""A real node with the devnet's dollar: from the lane's broadcast over the log to settled, a stranger who is faster, blocks that give way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from requests_app.config import config
from requests_app.states import IntentState
from requests_app.store import envelopes, intents, ledger
from requests_app.store.signing import Fence
from tests.devnet.forks import take_back
from tests.listen import world as logged
from tests.payments.journal import entries_of
from tests.payments.settling.chain import Bank
from tests.payments.settling.test_anvil import visible, world
from tests.payments.shown import Lease
from tests.waiting import wait_until
from workers import receipts
from workers.apply import Applier
from workers.blocks import Blocks
from workers.duties import confirm
from workers.duties.recon import Reconciliation
from workers.facts import Reader, contracts_of
from workers.listener import Listener
from workers.payments import LaneSender
from workers.thresholds import thresholds_of

__all__ = ["world"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(500)]
S = IntentState
SECONDS = 60.0


class Follower:
    """The listener and the two duties of one process, by hand."""

    def __init__(self, world: Any) -> None:
        self.conn, self.context = world.conn, world.context
        gateway = self.context.clients.gateway
        applier = Applier(1, Reader(contracts_of(config()), thresholds_of(config(), self.context.clients)))
        self.listener = Listener(1, Blocks(gateway), applier, Fence("listener:1", "test", 1))
        self.listener.open(self.conn, config().gateway.chain_id, gateway.head_number() + 1)
        self.recon = Reconciliation()

    def turn(self) -> None:
        self.listener._sealed_at = 0.0  # an empty block is sealed at once
        self.listener.poll(self.conn)
        confirm.Confirmation().run(self.context, Lease())  # type: ignore[arg-type]

    def until(self, state: str, *payments: Any) -> None:
        """Go round until all of them stand there."""

        def there() -> bool:
            self.turn()
            return {one.state.value for one in intents.read_intents(self.conn, [one.id for one in payments])} == {state}

        wait_until(there, SECONDS, f"all are {state}")


@pytest.fixture
def follow(world: Any) -> Iterator[Follower]:
    conn = world.conn
    logged.clean_bands(conn)
    conn.execute(
        "INSERT INTO exec_lease (resource, instance, epoch, lease_until) VALUES ('listener:1','test',1,'infinity'), "
        "('singleton:duty','test',7,'infinity')"
    )
    conn.execute("DELETE FROM envelope_source")
    yield Follower(world)
    conn.execute("TRUNCATE envelope_meta, envelope_blob")
    logged.clean_bands(conn)  # of the product's width; the other tests make narrow ones


def recorded(world: Any, payment: Any) -> str:
    (one,) = intents.read_intents(world.conn, [payment.id])
    return f"0x{(one.tx_hash or b'').hex()}"


def test_from_the_broadcast_to_the_books(world: Any, follow: Follower) -> None:
    bank: Bank = world.bank
    payments = bank.pay(5, amount=11)
    assert world.work() == ["sent"] * 5
    follow.until("settled", *payments)
    assert bank.wait_transfers(payments) == {one.ref: 1 for one in payments}
    assert [bank.entries(one) for one in payments] == [["hold", "post"]] * 5
    (merchant,) = ledger.balances(world.conn, f"merchant:{payments[0].merchant}")
    assert (merchant.pending, merchant.posted) == (0, 55)
    kinds = world.conn.execute("SELECT kind, count(*) FROM envelope_meta GROUP BY kind ORDER BY kind").fetchall()
    assert kinds == [(9, 5), (11, 5)]
    assert follow.recon.run(follow.context, Lease()) == 0  # type: ignore[arg-type]
    cursor, seal = world.conn.execute(
        "SELECT r.block, c.block FROM recon_cursor r JOIN chain_cursor c USING (source_id)"
    ).fetchone()
    first = world.conn.execute("SELECT max(position >> 20) FROM envelope_meta").fetchone()[0]
    assert first <= cursor <= seal


def test_b50_a_stranger_is_faster_and_ours_reverts(
    world: Any, follow: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B50 on a real token: theirs settles the payment; ours is judged as what it is, and changes nothing."""
    bank: Bank = world.bank
    (payment,) = bank.pay()
    own = LaneSender.transmit
    theirs: list[str] = []

    def late(self: LaneSender, items: Any) -> Any:
        theirs.extend(bank.as_somebody(bank.call_of(payment)))
        return own(self, items)

    monkeypatch.setattr(LaneSender, "transmit", late)
    world.work()
    monkeypatch.undo()
    follow.until("settled", payment)
    assert recorded(world, payment) == theirs[0]
    post = entries_of(world.conn, payment.ref)[-1].entry
    assert f"0x{(post.tx_hash or b'').hex()}" == theirs[0]
    before = intents.history(world.conn, payment.id)

    def judged() -> bool:
        world.conn.execute("UPDATE tx_attempt SET first_sent_at = clock_timestamp() - interval '1 minute'")
        world.lane.look_at.clear()
        receipts.look_up(world.context, world.lane)
        return world.conn.execute("SELECT state FROM nonce_slot WHERE subject_id = %s", (payment.id,)).fetchone() == (
            "mined",
        )

    wait_until(judged, SECONDS, "our revert is final and judged")
    assert intents.history(world.conn, payment.id) == before
    assert bank.transfers()[payment.ref] == 1


def test_anvil_takes_the_payments_back_and_they_come_again(
    world: Any, follow: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node drops blocks and transactions: settling again, the same bytes, one transfer each in the chain that stands."""
    bank: Bank = world.bank
    payments = bank.pay(2)
    monkeypatch.setattr(confirm.Confirmation, "run", lambda *_: 0)  # finality would be faster than the reorganisation
    assert world.work() == ["sent"] * 2
    bank.wait_transfers(payments)
    hashes = [recorded(world, one) for one in payments]

    def seen() -> bool:
        follow.turn()
        return world.conn.execute("SELECT count(*) FROM payment_observation").fetchone() == (2,)

    wait_until(seen, SECONDS, "both are in the log")
    first = world.conn.execute("SELECT min(position >> 20) FROM payment_observation").fetchone()[0]
    with bank.deployment.gateway_rpc() as rpc:
        take_back(rpc, first)
    follow.until("settling", *payments)
    assert {row[0] for row in world.conn.execute("SELECT state_reason FROM payment_intent")} == {
        f"reorganisation from block {first}"
    }
    visible(world)
    assert world.work() == ["rebroadcast"] * 2
    monkeypatch.undo()
    follow.until("settled", *payments)
    assert [recorded(world, one) for one in payments] == hashes
    assert bank.wait_transfers(payments) == {one.ref: 1 for one in payments}
    assert world.conn.execute("SELECT count(*) FROM tx_attempt").fetchone() == (2,)
    assert envelopes.read_source(world.conn, 1).halted is None
