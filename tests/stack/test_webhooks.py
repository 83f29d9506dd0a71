"""Signed webhooks out of the running stack: a client's three kinds of requests, and its receiver on this machine."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest

from requests_app.webhook_messages import signature
from tests.stack.harness import Stack
from tests.stack.test_bad_input import exchange
from tests.waiting import wait_until
from tests.webhooks.receiver import Receiver
from workers.devnet.traffic import Traffic

pytestmark = pytest.mark.stack


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()
    yield found
    found.close()


def test_a_client_is_told_of_its_answers(stack: Stack, traffic: Traffic, receiver: Receiver) -> None:
    made = stack.api.post("/v1/webhooks", {"url": receiver.url})
    assert made.status == 201, made
    key = base64.b64decode(made.body["secret"].removeprefix("whsec_"))
    receiver.answers = [503]
    wanted = {}
    for one in traffic.build(["user_decrypt", "public_decrypt", "input_proof"]):
        posted = stack.api.post(one.path, one.body)
        assert posted.status == 202, posted
        wanted[posted.body["result"]["jobId"]] = one.path.rpartition("/")[2]

    def told() -> dict[str, str]:
        bodies = [json.loads(one.body) for one in receiver.received]
        return {body["data"]["id"]: body["data"]["kind"] for body in bodies if body["type"] == "request.completed"}

    wait_until(lambda: told() == wanted and len(receiver.received) > 3, 180, "told, the first one twice")
    assert len(set(receiver.ids)) == 3
    for one in receiver.received:
        name, sent_at = one.headers["webhook-id"], int(one.headers["webhook-timestamp"])
        assert one.headers["webhook-signature"] == signature(key, name, sent_at, one.body)
    wait_until(
        lambda: (
            {one["state"] for one in stack.api.get(f"/v1/webhooks/{made.body['id']}/deliveries").body["deliveries"]}
            == {"delivered"}
        ),
        60,
    )
    # The other tests of this stack are not to be told of.
    assert exchange(stack, "DELETE", f"/v1/webhooks/{made.body['id']}", None, stack.api_key)[0] == 204
