"""Payments beside requests of the gateway on one lane, and many workers on many payments."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import pytest

from requests_app.config import config
from requests_app.states import REQUEST_KINDS, Status
from requests_app.store import signing
from requests_app.store.session import connect
from tests.core.rows import read_request
from tests.payments.settling.conftest import Shop, Worker
from tests.payments.terms import TERMS
from tests.send.conftest import Context
from tests.send.node import CHAIN_ID, Node, parse
from tests.send.scenes import add_request
from workers.chain import open_clients
from workers.chain.signer import LocalSigner
from workers.payments import LaneSender
from workers.settle import SettleTurn
from workers.settle_routes import make_settler

pytestmark = pytest.mark.django_db(transaction=True)


def test_one_lane_sends_both_kinds_with_dense_nonces(shop: Shop, node: Node, start: Callable[[], Context]) -> None:
    payments = shop.pay(6)
    requests = [add_request(shop.conn, kind, Status.PROCESSING) for kind in REQUEST_KINDS for _ in "ab"]
    turn = SettleTurn()
    context = start()
    for _ in range(2):
        turn.run(context)  # type: ignore[arg-type]
    assert shop.states(*payments) == ["confirming"] * 6
    assert [read_request(shop.conn, one.kind, one.id).status for one in requests] == ["tx_in_flight"] * 6
    assert sorted(parse(raw).nonce for raw in node.raws) == list(range(12))
    turn.close()


def test_with_a_window_of_one_both_kinds_take_turns(shop: Shop, node: Node, start: Callable[[], Context]) -> None:
    payments = shop.pay(3)
    requests = [add_request(shop.conn, REQUEST_KINDS[2], Status.PROCESSING) for _ in range(3)]
    context = start()
    key = LocalSigner(config().gateway.signer_keys[0], CHAIN_ID).address
    signing.ensure_signers(shop.conn, CHAIN_ID, [key])
    shop.conn.execute("UPDATE signer SET max_inflight = 1")
    turn = SettleTurn()
    kinds = []
    for _ in range(12):
        before = len(node.raws)
        turn.run(context)  # type: ignore[arg-type]
        kinds += [
            "payment" if parse(raw).to == bytes.fromhex(TERMS.token[2:]) else "request" for raw in node.raws[before:]
        ]
        node.mine()
        assert turn._pool is not None
        for lane in turn._pool.lanes(context):  # type: ignore[arg-type]
            lane.sync_at = lane.refreshed_at = 0.0
    assert Counter(kinds) == {"payment": 3, "request": 3}
    assert {tuple(kinds[place : place + 2]) for place in (0, 2, 4)} <= {("payment", "request"), ("request", "payment")}
    assert payments
    assert requests
    turn.close()


def test_many_workers_make_one_of_everything(shop: Shop, node: Node, worker: Callable[[], Worker]) -> None:
    """Port of 8 workers x 50 intents, small: threads that share a signer's lease, each with a session of its own."""
    payments = shop.pay(24)
    process = worker()
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            with connect("worker") as conn, closing(open_clients(config())) as clients:
                mine = replace(process.context, conn=conn, clients=clients)
                settler = make_settler(conn, LaneSender(mine, process.lane), f"w{number}")  # type: ignore[arg-type]
                while settler.run(5):
                    pass
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert failures == []
    assert shop.states(*payments) == ["confirming"] * 24
    assert [shop.entries(one) for one in payments] == [["hold"]] * 24
    firsts = Counter(parse(raw).data[164:196] for raw in node.raws)
    assert firsts == {one.ref: 1 for one in payments}
    assert sorted(parse(raw).nonce for raw in node.raws) == list(range(24))
    entries = shop.conn.execute("SELECT array_agg(seq ORDER BY seq) FROM ledger_entry").fetchone()
    assert entries == (list(range(1, 25)),)
