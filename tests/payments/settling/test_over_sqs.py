"""Payments whose keys travel over SQS: the drainer and the settle turn as a shift runs them, and whoever dies in between."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from requests_app import crash_points
from requests_app.store.intents import Intent
from requests_app.store.session import connect
from requests_app.transitions import intents
from tests.payments.settling.conftest import Shop, sent_payments
from tests.payments.sqs import Cloud, Fickle, cloud
from tests.send.conftest import Context
from tests.send.node import Node
from workers import drain
from workers.carriers import SqsCarrier
from workers.drain import DrainTurn
from workers.settle import SettleTurn
from workers.sqs_client import SqsQueue, sqs_queue

pytestmark = pytest.mark.django_db(transaction=True)
Start = Callable[[], Context]
KILLS = 1000
EXITS = 12
POINTS = (
    "before_claim_due_commit", "after_claim_due_commit", "before_publish_keys_rpc", "after_publish_keys_rpc",
    "before_keep_published_commit", "after_keep_published_commit",
)  # fmt: skip


class Killed(BaseException):
    """The drainer ends here."""


@pytest.fixture(scope="module")
def server() -> Iterator[Cloud]:
    with cloud() as made:
        yield made


@pytest.fixture
def sqs(server: Cloud, settings: Any) -> SqsQueue:
    """The queue of this deployment."""
    settings.QUEUE_URL = server.url()
    return sqs_queue(settings.QUEUE_URL)


def turns(context: Context, count: int, *made: Any) -> None:
    """So many rounds of a shift that takes these turns, each as if no pause were left."""
    for _ in range(count):
        for turn in made:
            turn._due_at = 0.0
            if getattr(turn, "_carrier", None):
                turn._carrier._due_at = 0.0
            turn.run(context)


def grace_over(shop: Shop) -> None:
    """The time of jobs that were claimed and not published is up; published ones wait on."""
    shop.conn.execute(
        "UPDATE queue_job SET visible_at = clock_timestamp()"
        " WHERE leased_by = 'carrier' AND visible_at <= clock_timestamp() + make_interval(secs => %s)",
        (drain.GRACE_SECONDS,),
    )


def paid_once(shop: Shop, node: Node, payments: list[Intent]) -> None:
    """Each of them is on its way by one transaction, and nothing else is."""
    assert Counter(shop.states(*payments)) == {"confirming": len(payments)}
    assert sorted(sent_payments(node)) == sorted(one.ref for one in payments)
    assert shop.jobs() == 0
    entries = Counter(kind for one in payments for kind in shop.entries(one))
    assert entries == {"hold": len(payments)}


def test_the_whole_way(shop: Shop, node: Node, start: Start, sqs: SqsQueue, server: Cloud) -> None:
    """Authorized with their jobs in one transaction, published, received, leased by key, sent; nothing is left in SQS."""
    payments, before = shop.pay(45), server.sent
    context = start()
    assert SettleTurn().run(context) == 0  # type: ignore[arg-type]  # nobody has published anything
    turns(context, 3, DrainTurn(), SettleTurn())
    paid_once(shop, node, payments)
    assert server.sent - before == len(payments)
    server.pass_time(3600)
    assert sqs.receive(10, 5) == []


def test_put_off_and_published_again(shop: Shop, node: Node, start: Start, sqs: SqsQueue) -> None:
    """What could not be sent goes back to the table, and over SQS once more."""
    payments = shop.pay(3)
    shop.conn.execute("UPDATE client_account SET status = 'disabled'")
    context, drainer, settler = start(), DrainTurn(), SettleTurn()
    turns(context, 1, drainer, settler)
    assert shop.states(*payments) == ["authorized"] * 3
    shop.conn.execute("UPDATE client_account SET status = 'active'")
    turns(context, 1, drainer, settler)
    assert shop.states(*payments) == ["authorized"] * 3  # not before its time
    shop.visible()
    turns(context, 1, drainer, settler)
    paid_once(shop, node, payments)


def test_canceled_between_publication_and_receipt(shop: Shop, start: Start, sqs: SqsQueue, server: Cloud) -> None:
    (payment,) = shop.pay()
    context = start()
    turns(context, 1, DrainTurn())
    intents.cancel(shop.conn, payment.public_id, "for the test", account_id=shop.account)
    turns(context, 1, SettleTurn())
    assert shop.states(payment) == ["canceled"]
    server.pass_time(3600)
    assert sqs.receive(10, 5) == []


def test_while_sqs_is_away_the_turn_goes_on(shop: Shop, start: Start, settings: Any) -> None:
    """It has requests of the gateway and open nonces to look after; the payments wait."""
    settings.QUEUE_URL = "sqs://eu-west-1/settle?endpoint=http://127.0.0.1:9"
    payments = shop.pay(2)
    turns(start(), 2, SettleTurn())
    assert shop.states(*payments) == ["authorized"] * 2
    assert shop.jobs() == 2


def test_a_thousand_dead_drainers(shop: Shop, node: Node, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each dies at some point of its turn, most between commit and publication; nothing is lost, each payment is paid once."""
    chance = random.Random(int(os.environ.get("CRASH_SEED", "0")) or 6)
    queue = Fickle(chance.randrange(1 << 30))
    deaths: Counter[str] = Counter()
    payments = shop.pay(10)
    shop.conn.execute("SET synchronous_commit = off")  # it is drainers that die here, not the database
    context: Any = SimpleNamespace(conn=shop.conn, stopping=lambda: False)
    while deaths.total() < KILLS:
        point = chance.choice([*POINTS, "before_publish_keys_rpc", "after_claim_due_commit"])

        def die(name: str, point: str = point) -> None:
            if name == point:
                raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(drain, "crash_point", die)
            try:
                DrainTurn(queue).run(context)
            except Killed:
                deaths[point] += 1
        if deaths.total() % 50 == 0:
            payments += shop.pay(1)
        shop.visible()  # every wait is over: what was claimed, and what was published and not leased since
    monkeypatch.setattr("workers.settle.carrier_of", lambda name, turns: SqsCarrier(name, lambda: queue))  # type: ignore[arg-type, return-value]
    process = start()
    grace_over(shop)
    drainer, settler = DrainTurn(queue), SettleTurn()
    for _ in range(300):
        turns(process, 1, drainer, settler)
        queue.pass_time()
        if shop.jobs() == 0 and not len(queue):
            break
    print(f"{deaths.total()} dead drainers {dict(deaths)}: {len(payments)} payments, {queue.sent} keys published")
    paid_once(shop, node, payments)
    assert len(queue) == 0
    assert {"before_publish_keys_rpc", "after_claim_due_commit"} <= deaths.keys()


def test_drainers_that_really_end(shop: Shop, node: Node, start: Start, sqs: SqsQueue, server: Cloud) -> None:
    """Processes that end by os._exit at each point in turn, as a kill ends them."""
    payments: list[Intent] = []
    for number in range(EXITS):
        payments += shop.pay(2)
        point = POINTS[number % len(POINTS)]
        child = os.fork()
        if child == 0:
            _drain_and_die(point)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == crash_points.EXIT_CODE, point
        if number % 3 == 2:
            grace_over(shop)
    grace_over(shop)
    context, drainer, settler = start(), DrainTurn(), SettleTurn()
    turns(context, 3, drainer, settler)
    server.pass_time(3600)
    turns(context, 3, drainer, settler)
    print(f"{EXITS} ended processes: {len(payments)} payments")
    paid_once(shop, node, payments)


def _drain_and_die(point: str) -> None:
    """In a child: one turn of a drainer with a connection and a client of its own, until its point."""
    try:
        setattr(drain, "crash_point", crash_points._armed(point))  # noqa: B010 - a function, whatever its type says
        with connect("worker") as conn:
            context: Any = SimpleNamespace(conn=conn, stopping=lambda: False)
            DrainTurn().run(context)
    finally:
        os._exit(1)  # it lived on
