"""The envelope log of the running stack: chain events are counted and read, publications come back by cursor."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.stack.harness import Stack
from tests.stack.test_bad_input import exchange
from tests.waiting import wait_until
from workers.devnet.traffic import Traffic

pytestmark = pytest.mark.stack


def get(stack: Stack, path: str) -> Any:
    status, answer = exchange(stack, "GET", path, None, stack.api_key)
    assert status == 200, answer
    return answer


def publish(stack: Stack, body: bytes) -> int:
    """The position of a new publication; a machine that is busy answers 202 first."""
    status, made = exchange(stack, "POST", "/v1/envelopes", body, stack.api_key)
    assert status in (201, 202), made
    path = f"/v1/envelopes/{made['id']}"
    wait_until(lambda: _there(stack, path), 60, path)
    return int(get(stack, path)["position"])


def _there(stack: Stack, path: str) -> bool:
    return exchange(stack, "GET", path, None, stack.api_key)[0] == 200


def test_publish_read_and_pay(stack: Stack, traffic: Traffic) -> None:
    """A published envelope is in the log when the POST answers; a request's events are in it and cost their client."""
    before = get(stack, "/v1/usage")
    body = json.dumps({"topic": "0x737461636b", "payload": "0x01"}).encode()
    positions = [publish(stack, body) for _ in range(3)]
    assert positions == sorted(set(positions))
    first = get(stack, "/v1/envelopes?topic=0x737461636b&limit=2")
    rest = get(stack, f"/v1/envelopes?topic=0x737461636b&limit=1000&cursor={first['cursor']}")
    read = [int(one["position"]) for one in (*first["envelopes"], *rest["envelopes"])]
    assert read[-3:] == positions

    jobs = stack.post_all(traffic.build(["public_decrypt"]))
    stack.wait_final(jobs, 120)
    after = get(stack, "/v1/usage")
    assert int(after["unsettled_picodollars"]) > int(before["unsettled_picodollars"])
    assert {one["originator"] for one in after["usage"]} == {1, 100}
    chain = get(stack, "/v1/envelopes?originator=1&limit=1000")["envelopes"]
    assert {1, 4} <= {one["kind"] for one in chain}
    with stack.database() as conn:
        counted = conn.execute(
            "SELECT (SELECT sum(messages) FROM originator_congestion WHERE source_id = 100),"
            " (SELECT count(*) FROM envelope_meta WHERE source_id = 100),"
            " (SELECT coalesce(sum(u.messages), 0) FROM (SELECT source_id, messages FROM usage_unsettled UNION ALL"
            "   SELECT source_id, messages FROM usage_billed UNION ALL SELECT source_id, messages FROM usage_settled) u"
            "  WHERE u.source_id = 1),"
            " (SELECT count(*) FROM envelope_meta WHERE source_id = 1 AND payer IS NOT NULL)"
        ).fetchone()
    assert counted is not None
    assert counted[0] == counted[1]
    assert counted[2] == counted[3]
