"""One contract for both carriers of the settle queue: the table, and SQS with the table as truth (design 5.3.4).

The common part holds for each. What only the table promises (dedup, order, priority) stands below it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
from psycopg import Connection

from requests_app.errors import ConfigurationError
from requests_app.sockets import free_port
from requests_app.states import Kind
from requests_app.store.intents import SETTLE, drop_settle
from requests_app.store.queue import Delivery, Receipt, Verdict, ack_jobs, nack_jobs, release_orphans
from tests.payments.sqs import Cloud, cloud, drain, enqueue, lapse, queued
from tests.payments.terms import add_account, add_authorized
from workers.carriers import SqsCarrier, TableCarrier, carrier_of
from workers.drain import GRACE_SECONDS, REPUBLISH_SECONDS
from workers.sqs_client import QueueUnavailable, SqsQueue, queue_address

OK, STALE, NOT_FOUND = Verdict.OK, Verdict.STALE, Verdict.NOT_FOUND
CARRIERS: Final = ("table", "sqs")


@pytest.fixture(scope="module")
def server() -> Iterator[Cloud]:
    with cloud() as made:
        yield made


class Carried:
    """Consumers of one queue, and payments whose jobs are in it."""

    def __init__(self, conn: Connection[Any], sqs: SqsQueue | None) -> None:
        self.conn = conn
        self.sqs = sqs
        self.account = add_account(conn)

    def consumer(self) -> Any:
        """One more worker process's carrier."""
        sqs = self.sqs
        return SqsCarrier(SETTLE, lambda: sqs) if sqs else TableCarrier(SETTLE)

    def pay(self, count: int = 1) -> list[int]:
        """Payments that wait to be settled: their ids."""
        return [add_authorized(self.conn, self.account).id for _ in range(count)]

    def lease(self, consumer: Any, limit: int = 10, owner: str = "w", seconds: float = 30.0) -> list[Delivery]:
        """What the consumer gets now, after whatever is due was published."""
        if self.sqs:
            drain(self.conn, self.sqs)
            consumer._due_at = 0.0
        found: list[Delivery] = consumer.lease(self.conn, limit, owner, seconds)
        return found

    def ack(self, consumer: Any, ended: list[Receipt]) -> list[Verdict]:
        """The jobs are done: in the table, as every worker says it, and then with the carrier."""
        verdicts = ack_jobs(self.conn, ended)
        consumer.let_go(ended)
        return verdicts

    def nack(self, consumer: Any, ended: list[Receipt], delay: float) -> list[Verdict]:
        """Put off for `delay` seconds."""
        verdicts = nack_jobs(self.conn, ended, [delay] * len(ended))
        consumer.let_go(ended)
        return verdicts

    def hidden_seconds(self, job_id: int) -> float:
        row = self.conn.execute(
            "SELECT extract(epoch FROM visible_at - clock_timestamp())::float8 FROM queue_job WHERE id = %s", (job_id,)
        ).fetchone()
        assert row is not None
        return float(row[0])


@pytest.fixture(params=CARRIERS)
def carried(request: pytest.FixtureRequest, conn: Connection[Any], server: Cloud) -> Carried:
    return Carried(conn, server.queue() if request.param == "sqs" else None)


@pytest.fixture
def over_sqs(conn: Connection[Any], server: Cloud) -> Carried:
    return Carried(conn, server.queue())


@pytest.fixture
def in_table(conn: Connection[Any]) -> Carried:
    return Carried(conn, None)


def ids(deliveries: list[Delivery]) -> list[int]:
    return sorted(one.subject.id for one in deliveries)


def receipts(deliveries: list[Delivery]) -> list[Receipt]:
    return [one.receipt for one in deliveries]


class TestBoth:
    def test_a_delivery_points_at_its_payment(self, carried: Carried) -> None:
        (payment,) = carried.pay()
        (one,) = carried.lease(carried.consumer())
        assert (one.subject.kind, one.subject.id, one.tenant_id) == (Kind.PAYMENT, payment, carried.account)
        assert one.receipt.attempt == 1

    def test_everything_is_delivered_and_an_ack_ends_it(self, carried: Carried) -> None:
        payments, consumer = carried.pay(25), carried.consumer()
        found: list[Delivery] = []
        while batch := carried.lease(consumer):
            found += batch
        assert ids(found) == payments
        assert set(carried.ack(consumer, receipts(found))) == {OK}
        lapse(carried.conn)
        assert carried.lease(consumer) == []
        assert queued(carried.conn) == []

    def test_no_more_than_was_asked_for(self, carried: Carried) -> None:
        carried.pay(7)
        consumer = carried.consumer()
        assert [len(carried.lease(consumer, limit)) for limit in (0, 3, 3, 3)] == [0, 3, 3, 1]

    def test_hidden_from_others_while_leased(self, carried: Carried) -> None:
        carried.pay(3)
        assert len(carried.lease(carried.consumer(), owner="one")) == 3
        assert carried.lease(carried.consumer(), owner="two") == []

    def test_at_least_once(self, carried: Carried) -> None:
        """A consumer that dies costs an attempt, and nothing else."""
        (payment,) = carried.pay()
        carried.lease(carried.consumer(), owner="dead")
        lapse(carried.conn)
        (again,) = carried.lease(carried.consumer(), owner="alive")
        assert (again.subject.id, again.receipt.attempt) == (payment, 2)

    def test_each_lease_has_a_receipt_of_its_own(self, carried: Carried) -> None:
        """What the first holder does with an old one changes nothing."""
        carried.pay()
        first, second = carried.consumer(), carried.consumer()
        (old,) = carried.lease(first, owner="one")
        lapse(carried.conn)
        (new,) = carried.lease(second, owner="two")
        assert old.receipt != new.receipt
        assert carried.ack(first, [old.receipt]) == [STALE]
        assert carried.nack(first, [old.receipt], 0.0) == [STALE]
        assert first.extend(carried.conn, [old.receipt], 60) == [STALE]
        assert len(queued(carried.conn)) == 1
        assert carried.ack(second, [new.receipt]) == [OK]
        assert carried.ack(second, [new.receipt]) == [NOT_FOUND]
        assert second.extend(carried.conn, [new.receipt], 60) == [NOT_FOUND]

    def test_a_receipt_is_good_after_its_time_while_nobody_else_took_the_job(self, carried: Carried) -> None:
        carried.pay()
        consumer = carried.consumer()
        (one,) = carried.lease(consumer)
        lapse(carried.conn)
        assert carried.ack(consumer, [one.receipt]) == [OK]

    def test_an_extension_counts_from_now(self, carried: Carried) -> None:
        carried.pay()
        consumer = carried.consumer()
        (one,) = carried.lease(consumer, seconds=30)
        assert consumer.extend(carried.conn, [one.receipt], 300) == [OK]
        assert 290 < carried.hidden_seconds(one.receipt.job_id) <= 300
        assert consumer.extend(carried.conn, [one.receipt], 10) == [OK]
        assert 0 < carried.hidden_seconds(one.receipt.job_id) <= 10

    def test_put_off(self, carried: Carried) -> None:
        """Not before its time; then again, with the attempts counted."""
        carried.pay()
        consumer = carried.consumer()
        (one,) = carried.lease(consumer)
        assert carried.nack(consumer, [one.receipt], 60.0) == [OK]
        assert 50 < carried.hidden_seconds(one.receipt.job_id) <= 60
        assert carried.lease(consumer) == []
        lapse(carried.conn)
        (again,) = carried.lease(consumer)
        assert (again.receipt.job_id, again.receipt.attempt) == (one.receipt.job_id, 2)

    def test_released_at_once(self, carried: Carried) -> None:
        carried.pay()
        consumer = carried.consumer()
        (one,) = carried.lease(consumer)
        carried.nack(consumer, [one.receipt], 0.0)
        assert len(carried.lease(carried.consumer(), owner="other")) == 1

    def test_a_job_that_was_ended_in_the_table(self, carried: Carried) -> None:
        """Acknowledged in a transaction of its own, as the settle worker does: the carrier lets it go."""
        (payment,) = carried.pay()
        consumer = carried.consumer()
        (one,) = carried.lease(consumer)
        assert drop_settle(carried.conn, [payment]) == {payment}
        consumer.let_go([one.receipt])
        assert carried.lease(consumer) == []

    def test_a_key_is_free_after_its_ack_and_attempts_begin_anew(self, carried: Carried) -> None:
        (payment,) = carried.pay()
        consumer = carried.consumer()
        (one,) = carried.lease(consumer)
        carried.ack(consumer, [one.receipt])
        assert enqueue(carried.conn, payment) == 1
        (again,) = carried.lease(consumer)
        assert again.receipt.attempt == 1
        assert again.receipt != one.receipt
        assert carried.ack(consumer, [one.receipt]) == [NOT_FOUND]


class TestTableOnly:
    def test_a_job_is_there_once(self, in_table: Carried) -> None:
        (payment,) = in_table.pay()
        assert enqueue(in_table.conn, payment) == 0
        in_table.lease(in_table.consumer())
        assert enqueue(in_table.conn, payment) == 0

    def test_oldest_first(self, in_table: Carried) -> None:
        payments = in_table.pay(6)
        found = in_table.lease(in_table.consumer(), 4)
        assert [one.subject.id for one in found] == payments[:4]

    def test_in_the_order_of_their_coming_not_of_their_time(self, in_table: Carried) -> None:
        """A job that was put off and is due again stands where it stood."""
        payments = in_table.pay(3)
        consumer = in_table.consumer()
        (one,) = in_table.lease(consumer, 1)
        in_table.nack(consumer, [one.receipt], 0.0)
        assert [found.subject.id for found in in_table.lease(in_table.consumer(), 1)] == payments[:1]

    def test_priority_goes_before_age(self, in_table: Carried) -> None:
        first, second, third = in_table.pay(3)
        in_table.conn.execute("UPDATE queue_job SET priority = 0 WHERE subject_id = %s", (third,))
        assert [one.subject.id for one in in_table.lease(in_table.consumer())] == [third, first, second]


class TestSqs:
    """What the way over SQS adds: messages too many, too late, lost, or of nobody."""

    def test_its_own_redelivery(self, over_sqs: Carried, server: Cloud) -> None:
        """Nobody publishes again: the message itself comes back when its consumer was silent for too long."""
        carried = over_sqs
        (payment,) = carried.pay()
        assert len(carried.lease(carried.consumer(), owner="dead", seconds=30)) == 1
        other = carried.consumer()
        assert other.lease(carried.conn, 10, "alive", 30) == []
        server.pass_time(31)
        lapse(carried.conn)
        other._due_at = 0.0
        (again,) = other.lease(carried.conn, 10, "alive", 30)
        assert (again.subject.id, again.receipt.attempt) == (payment, 2)

    def test_an_extension_holds_the_message_too(self, over_sqs: Carried, server: Cloud) -> None:
        carried = over_sqs
        carried.pay()
        consumer, sqs = carried.consumer(), carried.sqs
        assert sqs is not None
        (one,) = carried.lease(consumer, seconds=30)
        consumer.extend(carried.conn, [one.receipt], 300)
        server.pass_time(200)
        assert sqs.receive(10, 5) == []
        server.pass_time(101)
        assert len(sqs.receive(10, 5)) == 1

    def test_a_message_too_many_leads_to_one_lease(self, over_sqs: Carried) -> None:
        carried = over_sqs
        carried.pay()
        assert carried.sqs is not None
        carried.sqs.send(queued(carried.conn) * 3)
        found = [*carried.lease(carried.consumer(), owner="one"), *carried.lease(carried.consumer(), owner="two")]
        assert len(found) == 1

    def test_all_messages_of_a_delivery_leave_with_it(self, over_sqs: Carried, server: Cloud) -> None:
        carried = over_sqs
        carried.pay()
        assert carried.sqs is not None
        carried.sqs.send(queued(carried.conn) * 2)
        consumer = carried.consumer()
        (one,) = carried.lease(consumer)
        carried.ack(consumer, [one.receipt])
        server.pass_time(3600)
        assert carried.sqs.receive(10, 5) == []

    def test_messages_of_nobody_leave(self, over_sqs: Carried, server: Cloud) -> None:
        carried = over_sqs
        assert carried.sqs is not None
        carried.sqs.send(["pi_000000000000000000000000/settle", "nonsense", "<x>", "é"])
        assert carried.lease(carried.consumer()) == []
        server.pass_time(3600)
        assert carried.sqs.receive(10, 5) == []

    def test_a_message_that_comes_before_its_job_is_due_leaves(self, over_sqs: Carried) -> None:
        """The job is published when its time has come."""
        carried = over_sqs
        carried.pay()
        consumer = carried.consumer()
        (one,) = carried.lease(consumer)
        carried.nack(consumer, [one.receipt], 60.0)
        assert carried.sqs is not None
        carried.sqs.send(queued(carried.conn))
        assert carried.lease(consumer) == []
        lapse(carried.conn)
        assert len(carried.lease(consumer)) == 1

    def test_a_job_that_is_locked_for_a_moment_comes_again(
        self, over_sqs: Carried, server: Cloud, two_conns: tuple[Connection[Any], Connection[Any]]
    ) -> None:
        carried, (other, _) = over_sqs, two_conns
        carried.pay()
        assert carried.sqs is not None
        drain(carried.conn, carried.sqs)
        consumer = carried.consumer()
        with other.transaction():
            other.execute("SELECT 1 FROM queue_job FOR UPDATE")
            assert consumer.lease(carried.conn, 10, "w", 30) == []
        server.pass_time(2)
        assert len(consumer.lease(carried.conn, 10, "w", 30)) == 1

    def test_published_once(self, over_sqs: Carried, monkeypatch: pytest.MonkeyPatch) -> None:
        """Batch by batch; and then not again until it is leased, or until it must be taken for lost."""
        carried = over_sqs
        monkeypatch.setattr("workers.drain.BATCH", 10)
        carried.pay(25)
        assert carried.sqs is not None
        assert drain(carried.conn, carried.sqs) == 25
        assert drain(carried.conn, carried.sqs) == 0
        assert release_orphans(carried.conn) == 0
        assert drain(carried.conn, carried.sqs) == 0
        (job,) = carried.conn.execute("SELECT min(id) FROM queue_job").fetchone() or (0,)
        assert REPUBLISH_SECONDS - 30 < carried.hidden_seconds(job) <= REPUBLISH_SECONDS
        lapse(carried.conn)
        assert drain(carried.conn, carried.sqs) == 25

    def test_what_sqs_did_not_take_is_published_again_soon(self, over_sqs: Carried) -> None:
        carried = over_sqs
        carried.pay(3)

        class Half:
            def send(self, bodies: list[str]) -> set[int]:
                return {1}

        assert drain(carried.conn, Half()) == 1
        rows = carried.conn.execute("SELECT id FROM queue_job ORDER BY id").fetchall()
        hidden = [carried.hidden_seconds(job) for (job,) in rows]
        assert [seconds <= GRACE_SECONDS for seconds in hidden] == [True, False, True]
        assert carried.conn.execute("SELECT DISTINCT attempt FROM queue_job").fetchall() == [(0,)]

    def test_a_consumer_that_is_quicker_than_the_drainer(self, over_sqs: Carried) -> None:
        """It leases between the publication and its record: the record does not hide the job from anybody."""
        carried = over_sqs
        carried.pay()
        consumer = carried.consumer()
        taken: list[Delivery] = []

        class Quick:
            def send(self, bodies: list[str]) -> set[int]:
                assert carried.sqs is not None
                carried.sqs.send(bodies)
                taken.extend(consumer.lease(carried.conn, 10, "quick", 5))
                return {0}

        drain(carried.conn, Quick())
        assert len(taken) == 1
        assert carried.hidden_seconds(taken[0].receipt.job_id) <= 5
        assert carried.ack(consumer, receipts(taken)) == [OK]


class TestAway:
    """SQS cannot be reached: consumers have nothing, drainers say so, and the table goes on knowing everything."""

    @pytest.fixture
    def away(self, server: Cloud) -> str:
        return f"sqs://eu-west-1/settle?endpoint=http://127.0.0.1:{free_port()}"

    def test_a_consumer_has_nothing_to_do(self, over_sqs: Carried, away: str, settings: Any) -> None:
        settings.QUEUE_URL = away
        over_sqs.pay()
        assert carrier_of(SETTLE).lease(over_sqs.conn, 10, "w", 30) == []

    def test_a_drainer_fails_and_loses_nothing(self, over_sqs: Carried, away: str, settings: Any) -> None:
        over_sqs.pay()
        settings.QUEUE_URL = away
        with pytest.raises(QueueUnavailable):
            drain(over_sqs.conn, None)
        assert len(over_sqs.lease(over_sqs.consumer())) == 1

    def test_a_delivery_ends_in_the_table_alone(self, over_sqs: Carried) -> None:
        """What cannot be deleted leads to nothing later."""
        over_sqs.pay()
        consumer = over_sqs.consumer()
        (one,) = over_sqs.lease(consumer)

        def gone() -> Any:
            raise QueueUnavailable

        there, consumer._sqs = consumer._sqs, gone
        assert over_sqs.ack(consumer, [one.receipt]) == [OK]
        assert consumer.extend(over_sqs.conn, [one.receipt], 5) == [NOT_FOUND]
        consumer._sqs = there
        lapse(over_sqs.conn)
        assert over_sqs.lease(consumer) == []

    def test_an_unknown_queue_is_away_too(self, server: Cloud) -> None:
        with pytest.raises(QueueUnavailable, match="NonExistentQueue"):
            SqsQueue(queue_address(f"sqs://eu-west-1/nowhere?endpoint={server.endpoint}"))


class TestChoice:
    def test_by_setting(self, server: Cloud, settings: Any) -> None:
        settings.QUEUE_URL = ""
        assert isinstance(carrier_of(SETTLE), TableCarrier)
        settings.QUEUE_URL = server.url()
        assert isinstance(carrier_of(SETTLE), SqsCarrier)

    def test_addresses(self) -> None:
        address = queue_address("sqs://eu-west-1/settle?endpoint=http://127.0.0.1:9")
        assert (address.region, address.name, address.endpoint) == ("eu-west-1", "settle", "http://127.0.0.1:9")
        assert queue_address("sqs://eu-west-1/settle").endpoint is None

    @pytest.mark.parametrize(
        "url",
        [
            "",
            "sqs://",
            "sqs://eu-west-1",
            "sqs:///q",
            "amqp://x/q",
            "sqs://r/a/b",
            "sqs://r/q?endpoint=ftp://x",
            "sqs://r/q?end=x",
            "sqs://r/q.fifo",
        ],
    )
    def test_no_addresses(self, url: str) -> None:
        with pytest.raises(ConfigurationError, match="QUEUE_URL"):
            queue_address(url)
