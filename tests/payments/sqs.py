"""An SQS of our own (moto's server in this process), its clock in the tests' hands, and the drainer as the tests run it."""

from __future__ import annotations

import itertools
import logging
import os
import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import boto3
from moto.server import ThreadedMotoServer
from moto.sqs import models
from psycopg import Connection

from requests_app.store import intents
from requests_app.store.intents import SETTLE
from workers.drain import DrainTurn
from workers.sqs_client import Message, SqsQueue, queue_address

REGION = "eu-west-1"
_numbers = itertools.count(1)


class Cloud:
    """The server, and its clock."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self._real = models.unix_time_millis
        self._ahead = 0.0
        self.sent = 0  # messages that came, to all queues

    def url(self) -> str:
        """The QUEUE_URL of a new, empty queue."""
        name = f"settle-{os.getpid()}-{next(_numbers)}"
        client = boto3.client("sqs", region_name=REGION, endpoint_url=self.endpoint)
        client.create_queue(QueueName=name)
        return f"sqs://{REGION}/{name}?endpoint={self.endpoint}"

    def queue(self) -> SqsQueue:
        """A new, empty queue."""
        return SqsQueue(queue_address(self.url()))

    def millis(self, *arguments: Any) -> float:
        """The server's time."""
        return float(self._real(*arguments)) + self._ahead

    def counted(self) -> Any:
        """The server's own method, counted."""
        real = models.Queue.add_message

        def add_message(queue: Any, message: Any) -> None:
            self.sent += 1
            real(queue, message)

        return add_message

    def pass_time(self, seconds: float) -> None:
        """What is hidden for less than `seconds` is visible now."""
        self._ahead += 1000 * seconds


@contextmanager
def cloud() -> Iterator[Cloud]:
    """A server for one block; credentials are those of nobody."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    given = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    with patch.dict(os.environ, given):
        server.start()
        host, port = server.get_host_and_port()
        made = Cloud(f"http://{host}:{port}")
        try:
            with (
                patch.object(models, "unix_time_millis", made.millis),
                patch.object(models.Queue, "add_message", made.counted()),
            ):
                yield made
        finally:
            server.stop()


class Fickle:
    """A standard queue at its worst, in memory: in no order, and every tenth message is delivered twice."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._messages: dict[str, str] = {}
        self._hidden: set[str] = set()
        self._numbers = itertools.count(1)
        self.sent = 0

    def send(self, bodies: Sequence[str]) -> set[int]:
        for body in bodies:
            for _ in range(1 + (self._chance.random() < 0.1)):
                self._messages[str(next(self._numbers))] = body
        self.sent += len(bodies)
        return set(range(len(bodies)))

    def receive(self, limit: int, seconds: float) -> list[Message]:
        handles = [handle for handle in self._messages if handle not in self._hidden]
        taken = self._chance.sample(handles, min(limit, len(handles)))
        self._hidden.update(taken)
        return [Message(self._messages[handle], handle) for handle in taken]

    def delete(self, handles: Iterable[str]) -> None:
        for handle in handles:
            self._messages.pop(handle, None)

    def hide(self, handles: Iterable[str], seconds: float) -> None:
        self._hidden.update(handles)

    def pass_time(self) -> None:
        """Whatever was received and not deleted is there again."""
        self._hidden.clear()

    def __len__(self) -> int:
        return len(self._messages)


def drain(conn: Connection[Any], outlet: Any) -> int:
    """One turn of a drainer that begins now: how many keys went out."""
    context: Any = SimpleNamespace(conn=conn, stopping=lambda: False)
    return DrainTurn(outlet).run(context)


def queued(conn: Connection[Any]) -> list[str]:
    """The keys of the settle queue, in the order in which they came."""
    return [key for (key,) in conn.execute("SELECT job_key FROM queue_job WHERE queue = %s ORDER BY id", (SETTLE,))]


def lapse(conn: Connection[Any]) -> None:
    """Whatever hides a job is over."""
    conn.execute("UPDATE queue_job SET visible_at = clock_timestamp()")


def enqueue(conn: Connection[Any], *ids: int) -> int:
    """Settle jobs of payments: how many were not there already."""
    return len(intents.enqueue_settle(conn, ids, 100))
