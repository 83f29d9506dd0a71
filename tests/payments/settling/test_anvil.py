"""Payments on a real node with the devnet's dollar: one Transfer each, and what the token really refuses."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from requests_app.config import config
from requests_app.store import intents
from requests_app.store.session import connect
from tests.payments.settling.chain import MERCHANT, Bank, configure
from tests.payments.terms import add_account
from tests.send.conftest import Context
from workers import receipts
from workers.chain import open_clients
from workers.chain.calldata import BALANCE_OF, ContractCall, decode_uint
from workers.chain.payments import AuthorizationKey
from workers.devnet.accounts import labelled
from workers.devnet.deployment import Deployment
from workers.leases import LeaseKeeper
from workers.payment_reverts import key_of
from workers.payments import LaneSender
from workers.settle_routes import make_settler
from workers.signers import SignerPool, sync

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def world(deployment: Deployment, settings: Any, conn: psycopg.Connection[Any]) -> Iterator[Any]:
    """One process with one signer, and an account with payments."""
    configure(settings, deployment)
    context = Context(connect("worker"), "anvil", LeaseKeeper("anvil", 10), open_clients(config()))
    pool = SignerPool(config().gateway.chain_id, config().gateway.signer_keys)
    (lane,) = pool.lanes(context)  # type: ignore[arg-type]
    assert sync(context, lane)  # type: ignore[arg-type]
    bank = Bank(conn, deployment, add_account(conn))
    sender = LaneSender(context, lane)  # type: ignore[arg-type]

    def work() -> list[str]:
        handled = make_settler(context.conn, sender, "anvil").run()
        return [one.outcome.value for one in handled]

    yield SimpleNamespace(context=context, lane=lane, bank=bank, work=work, conn=conn)
    context.leases.close()
    context.clients.close()
    context.conn.close()
    config.cache_clear()


def visible(world: Any) -> None:
    world.conn.execute("UPDATE queue_job SET visible_at = clock_timestamp() - interval '1 second'")


def test_a_batch_moves_the_money_once_each(world: Any) -> None:
    bank: Bank = world.bank
    gateway, token = world.context.clients.gateway, bytes.fromhex(bank.token["address"][2:])
    funds = [ContractCall(token, BALANCE_OF.encode(bytes.fromhex(MERCHANT[2:])))]
    (before,) = gateway.views(funds, decode_uint)  # others of the run have paid it, too
    payments = bank.pay(12, amount=7)
    assert world.work() == ["sent"] * 12
    assert bank.wait_transfers(payments) == {one.ref: 1 for one in payments}
    assert bank.states(*payments) == ["confirming"] * 12
    assert [bank.entries(one) for one in payments] == [["hold"]] * 12
    keys = [key_of(payments[0]), AuthorizationKey(token, bytes.fromhex(payments[0].payer[2:]), bytes(32))]
    assert [one.value for one in gateway.authorization_states(keys)] == [True, False]
    (balance,) = gateway.views(funds, decode_uint)
    assert balance.value - before.value == 12 * 7
    spent = gateway.find_spent(keys[0], 0)
    assert spent is not None
    assert spent.tx_hash == intents.read_intents(world.conn, [payments[0].id])[0].tx_hash


def test_somebody_else_was_faster_before_we_signed(world: Any) -> None:
    bank: Bank = world.bank
    (payment,) = bank.pay()
    (tx_hash,) = bank.as_somebody(bank.call_of(payment))
    assert world.work() == ["sent"]
    row = world.conn.execute("SELECT state, tx_hash FROM payment_intent WHERE id = %s", (payment.id,)).fetchone()
    assert (row[0], "0x" + row[1].hex()) == ("confirming", tx_hash)
    assert bank.entries(payment) == ["hold"]
    assert bank.transfers()[payment.ref] == 1


def test_somebody_else_is_faster_while_ours_is_on_the_way(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """B50: ours reverts; the merchant has the money all the same."""
    bank: Bank = world.bank
    (payment,) = bank.pay()
    own = LaneSender.transmit
    others: list[str] = []

    def late(self: LaneSender, items: Any) -> Any:
        others.extend(bank.as_somebody(bank.call_of(payment)))
        return own(self, items)

    monkeypatch.setattr(LaneSender, "transmit", late)
    world.work()
    monkeypatch.undo()

    def judged() -> bool:
        world.conn.execute("UPDATE tx_attempt SET first_sent_at = clock_timestamp() - interval '1 minute'")
        world.lane.look_at.clear()
        receipts.look_up(world.context, world.lane)
        row = world.conn.execute("SELECT tx_hash FROM payment_intent WHERE id = %s", (payment.id,)).fetchone()
        return bool(row[0] is not None and "0x" + row[0].hex() == others[0])

    from tests.waiting import wait_until

    wait_until(judged, 60, "the revert is final and judged")
    assert bank.states(payment) == ["confirming"]
    assert bank.transfers()[payment.ref] == 1
    assert world.conn.execute("SELECT state FROM nonce_slot WHERE subject_id = %s", (payment.id,)).fetchone() == (
        "mined",
    )


def test_a_merchant_who_empties_its_account_meanwhile_is_paid(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The payment costs more when it is mined than when it was simulated: a balance that was in use is written anew."""
    bank: Bank = world.bank
    merchant = labelled("merchant who empties its account")
    (first,) = bank.pay(merchant=merchant.address)
    assert world.work() == ["sent"]
    bank.wait_transfers([first])
    (second,) = bank.pay(merchant=merchant.address)
    own = LaneSender.transmit

    def late(self: LaneSender, items: Any) -> Any:
        bank.as_somebody(bank.moving(merchant, MERCHANT, first.amount))
        return own(self, items)

    monkeypatch.setattr(LaneSender, "transmit", late)
    assert world.work() == ["sent"]
    assert bank.wait_transfers([second]) == {second.ref: 1}


def test_what_the_token_refuses_is_not_signed(world: Any) -> None:
    bank: Bank = world.bank
    (poor,) = bank.pay(amount=10**15, payer=3)
    assert world.work() == ["retry"]
    bank.as_owner("pause")
    (paused,) = bank.pay()
    assert world.work() == ["retry"]
    bank.as_owner("unpause")
    visible(world)
    assert sorted(world.work()) == ["retry", "sent"]
    assert bank.states(poor, paused) == ["authorized", "confirming"]
    bank.as_owner("mint", poor.payer, 10**15)
    visible(world)
    assert world.work() == ["sent"]
    listed = bank.deployment.users[4].address
    bank.as_owner("setBlacklisted", listed, True)
    (banned,) = bank.pay(payer=4)
    assert world.work() == ["retry"]
    visible(world)
    assert world.work() == ["poison"]
    bank.as_owner("setBlacklisted", listed, False)
    assert bank.states(banned) == ["authorized"]
    assert world.conn.execute("SELECT count(*) FROM nonce_slot WHERE subject_id = %s", (banned.id,)).fetchone() == (0,)
