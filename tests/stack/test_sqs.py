"""Payments on a stack whose settle queue travels over SQS (moto's server): from HTTP to the final block and the books."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.payments.sqs import Cloud, cloud
from tests.stack.harness import ROOT, Stack
from tests.waiting import wait_until
from workers.devnet.demo_payment import pay
from workers.sqs_client import SqsQueue, queue_address

pytestmark = [pytest.mark.stack, pytest.mark.full, pytest.mark.timeout(600)]
PAYMENTS = 8


@pytest.fixture
def server() -> Iterator[Cloud]:
    with cloud() as made:
        yield made


@pytest.fixture
def carried(server: Cloud) -> Iterator[tuple[Stack, SqsQueue]]:
    """The running relayer, and its queue. Credentials and the address of the server come from the environment."""
    url = server.url()
    var = Path(os.environ.get("RELAYER_STACK_VAR", ROOT / "var" / "stack")).with_name("stack-sqs")
    running = Stack(var, environment={"QUEUE_URL": url})
    try:
        yield running, SqsQueue(queue_address(url))
    finally:
        running.stop()


def test_from_http_to_the_books(carried: tuple[Stack, SqsQueue], server: Cloud) -> None:
    stack, sqs = carried
    payers = range(1, 1 + PAYMENTS)
    with ThreadPoolExecutor(PAYMENTS) as pool:
        paid = list(pool.map(lambda payer: pay(stack.api, stack.deployment, 240.0, payer), payers))
    assert [one.problem for one in paid] == [""] * PAYMENTS
    assert [one.transfers for one in paid] == [1] * PAYMENTS
    with stack.database() as conn:
        assert conn.execute("SELECT count(*) FROM queue_job WHERE queue = 'settle'").fetchone() == (0,)
        entries = conn.execute("SELECT kind, count(*) FROM ledger_entry GROUP BY 1 ORDER BY 1").fetchall()
        assert entries == [("hold", PAYMENTS), ("post", PAYMENTS)]
    print(f"{PAYMENTS} payments settled, {server.sent} keys over SQS")
    assert server.sent >= PAYMENTS
    server.pass_time(3600)
    wait_until(lambda: sqs.receive(10, 5) == [], 30, "no message is left")
