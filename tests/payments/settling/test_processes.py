"""Eight settle workers as processes, each with a signer of its own, on fifty payments: one of everything (reference 1.5, 7.6)."""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import pytest

from requests_app.config import config
from requests_app.store.session import connect
from tests.payments.settling.chain import Bank, configure, running
from tests.payments.terms import add_account
from tests.send.conftest import Context
from tests.waiting import wait_until
from workers.chain import open_clients
from workers.leases import LeaseKeeper
from workers.settle import SettleTurn

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(500)]
WORKERS, PAYMENTS = 8, 50
FORK = multiprocessing.get_context("fork")


def serve(number: int, start: Any, stop: Any) -> None:
    """A settle worker until it is told to stop."""
    name = f"worker-{number}"
    context = Context(connect("worker"), name, LeaseKeeper(name, 10), open_clients(config()))
    turn = SettleTurn()
    start.wait()
    while not stop.is_set():
        if not turn.run(context):  # type: ignore[arg-type]
            stop.wait(0.02)
    turn.close()
    os._exit(0)


def test_eight_workers_make_one_of_everything(tmp_path: Path, settings: Any, conn: psycopg.Connection[Any]) -> None:
    with running(tmp_path) as deployment:
        configure(settings, deployment)
        settings.GATEWAY_SIGNER_KEYS = [one["key"] for one in deployment.raw["users"][2 : 2 + WORKERS]]
        config.cache_clear()
        bank = Bank(conn, deployment, add_account(conn))
        start, stop = FORK.Event(), FORK.Event()
        children = [FORK.Process(target=serve, args=(number, start, stop), daemon=True) for number in range(WORKERS)]
        for child in children:
            child.start()
        start.set()
        held = "SELECT count(*) FROM signer WHERE next_nonce IS NOT NULL"
        wait_until(lambda: conn.execute(held).fetchone() == (WORKERS,), 60, "every worker holds its signer")
        payments = bank.pay(PAYMENTS)
        try:
            wait_until(lambda: bank.states(*payments) == ["confirming"] * PAYMENTS, 120, "all payments confirming")
        finally:
            stop.set()
            for child in children:
                child.join(60)
                child.kill()
        assert bank.wait_transfers(payments) == {one.ref: 1 for one in payments}
        assert [bank.entries(one) for one in payments] == [["hold"]] * PAYMENTS
        slots = conn.execute("SELECT signer_id, nonce FROM nonce_slot WHERE kind = 4").fetchall()
        assert len(slots) == PAYMENTS
        sends = conn.execute("SELECT seq, send_count FROM tx_attempt").fetchall()
        assert len(sends) == PAYMENTS
        used = Counter(signer for signer, _ in slots)
        print(f"payments by signer: {sorted(used.values())}, sends: {sum(count for _, count in sends)}")
        assert len(used) > 1
        assert conn.execute("SELECT count(*) FROM queue_job").fetchone() == (0,)
        seqs = conn.execute("SELECT array_agg(seq ORDER BY seq) FROM ledger_entry").fetchone()
        assert seqs == (list(range(1, PAYMENTS + 1)),)
    config.cache_clear()
