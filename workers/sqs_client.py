"""One SQS queue: send, receive, delete, change visibility, each in batches of ten as SQS wants them.

`QUEUE_URL` is `sqs://<region>/<queue name>`, with `?endpoint=http://…` for another server than Amazon's. Credentials come from where boto3
looks for them. Standard queues deliver at least once and in no order.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import parse_qs, urlsplit

from requests_app.errors import ConfigurationError, RelayerError

log = logging.getLogger("relayer.queue")

BATCH: Final = 10
LONGEST_SECONDS: Final = 12 * 3600  # of a visibility timeout
# A settle turn has other work to do than to wait, and comes again by itself.
_CONNECT_SECONDS: Final = 1
_READ_SECONDS: Final = 5
T = TypeVar("T")


class QueueUnavailable(RelayerError):
    """SQS cannot be reached, or refuses."""


class Message(NamedTuple):
    """One receipt of a message: its text, and the handle that is good for this receipt only."""

    body: str
    handle: str


@dataclass(frozen=True, slots=True)
class QueueAddress:
    """Where a queue is; `endpoint` None is Amazon's own of the region."""

    region: str
    name: str
    endpoint: str | None = None


def queue_address(url: str) -> QueueAddress:
    """The parts of a `QUEUE_URL`. Raises ConfigurationError."""
    parts = urlsplit(url)
    query = parse_qs(parts.query, keep_blank_values=True)
    name = parts.path.strip("/")
    known = parts.scheme == "sqs" and parts.hostname and name and "/" not in name and query.keys() <= {"endpoint"}
    endpoints = query.get("endpoint", [])
    if name.endswith(".fifo"):
        raise ConfigurationError("QUEUE_URL must name a standard queue: the table keeps order and duplicates in check")
    if not known or len(endpoints) > 1 or not all(text.startswith(("http://", "https://")) for text in endpoints):
        raise ConfigurationError(
            "QUEUE_URL must be sqs://region/queue, with ?endpoint=http://… where it is not Amazon's"
        )
    return QueueAddress(str(parts.hostname), name, endpoints[0] if endpoints else None)


class SqsQueue:
    """A queue; safe to use from several threads. Everything raises QueueUnavailable when the service does not do it."""

    def __init__(self, address: QueueAddress) -> None:
        import boto3
        from botocore.config import Config

        options = Config(
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_READ_SECONDS,
            retries={"mode": "standard", "total_max_attempts": 1},
        )
        with _available():
            self._client: Any = boto3.client(
                "sqs", region_name=address.region, endpoint_url=address.endpoint, config=options
            )
            self._url: str = self._client.get_queue_url(QueueName=address.name)["QueueUrl"]

    def send(self, bodies: Sequence[str]) -> set[int]:
        """Put messages into the queue: the places of those that it took."""
        taken: set[int] = set()
        for entries in _batches(enumerate(bodies)):
            messages = [{"Id": str(place), "MessageBody": body} for place, body in entries]
            with _available():
                answer = self._client.send_message_batch(QueueUrl=self._url, Entries=messages)
            taken |= {int(one["Id"]) for one in answer.get("Successful", ())}
            _report("send", answer)
        return taken

    def receive(self, limit: int, seconds: float) -> list[Message]:
        """At most `limit` messages, hidden from others for `seconds`; empty when none is there now."""
        found: list[Message] = []
        while len(found) < limit:
            try:
                messages = self._receive(min(BATCH, limit - len(found)), seconds)
            except QueueUnavailable:
                if not found:
                    raise
                break  # those that came are hidden from everybody else by now
            if not messages:
                break
            found += messages
        return found

    def _receive(self, limit: int, seconds: float) -> list[Message]:
        with _available():
            answer = self._client.receive_message(
                QueueUrl=self._url,
                MaxNumberOfMessages=limit,
                VisibilityTimeout=_whole(seconds),
                WaitTimeSeconds=0,
            )
        return [Message(one["Body"], one["ReceiptHandle"]) for one in answer.get("Messages", ())]

    def delete(self, handles: Iterable[str]) -> None:
        """Remove messages. One whose handle is not good any more stays, or is somebody else's by now: the caller must not care."""
        for batch in _batches(handles):
            entries = [{"Id": str(place), "ReceiptHandle": handle} for place, handle in enumerate(batch)]
            with _available():
                answer = self._client.delete_message_batch(QueueUrl=self._url, Entries=entries)
            _report("delete", answer)

    def hide(self, handles: Iterable[str], seconds: float) -> None:
        """Keep messages hidden for `seconds` from now; 0 shows them at once."""
        for batch in _batches(handles):
            entries = [
                {"Id": str(place), "ReceiptHandle": handle, "VisibilityTimeout": _whole(seconds)}
                for place, handle in enumerate(batch)
            ]
            with _available():
                answer = self._client.change_message_visibility_batch(QueueUrl=self._url, Entries=entries)
            _report("hide", answer)


def sqs_queue(url: str) -> SqsQueue:
    """The queue of a `QUEUE_URL`, opened once a process: a fork opens its own. Raises ConfigurationError, QueueUnavailable."""
    return _opened(url, os.getpid())


@lru_cache(maxsize=4)
def _opened(url: str, _pid: int) -> SqsQueue:
    return SqsQueue(queue_address(url))


@contextmanager
def _available() -> Iterator[None]:
    """Botocore's many errors as one of ours; credentials and addresses are not in its text."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        code = error.response.get("Error", {}).get("Code", "") if isinstance(error, ClientError) else ""
        raise QueueUnavailable(f"SQS: {code or type(error).__name__}") from error


def _batches(items: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(items)
    while batch := list(islice(rest, BATCH)):
        yield batch


def _whole(seconds: float) -> int:
    """SQS takes whole seconds: no fewer than were asked for."""
    return max(0, min(LONGEST_SECONDS, math.ceil(seconds)))


def _report(deed: str, answer: Any) -> None:
    failed = answer.get("Failed", ())
    if failed:
        codes = sorted({str(one.get("Code")) for one in failed})
        log.warning("sqs refused", extra={"action": f"sqs_{deed}", "of": len(failed), "codes": codes})
