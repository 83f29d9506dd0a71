"""The queue service fails in the middle of a receive."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from workers.sqs_client import QueueUnavailable, SqsQueue


class Failing:
    """Gives ten messages, then fails."""

    def __init__(self, answers: int) -> None:
        self.answers = answers

    def receive_message(self, *, MaxNumberOfMessages: int, **_: Any) -> dict[str, Any]:
        self.answers -= 1
        if self.answers < 0:
            raise EndpointConnectionError(endpoint_url="http://queue")
        return {"Messages": [{"Body": str(n), "ReceiptHandle": f"r{n}"} for n in range(MaxNumberOfMessages)]}


def queue(answers: int) -> SqsQueue:
    made = SqsQueue.__new__(SqsQueue)
    made._client, made._url = Failing(answers), "http://queue/payments"
    return made


def test_messages_that_came_are_not_lost_with_those_that_did_not() -> None:
    """They are hidden from everybody for a lease: nobody else would get them in that time."""
    assert len(queue(1).receive(25, 30.0)) == 10
    assert len(queue(9).receive(25, 30.0)) == 25
    with pytest.raises(QueueUnavailable):
        queue(0).receive(25, 30.0)
