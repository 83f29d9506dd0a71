"""fhevm_http 20.2 over HTTP: every invalid value with its field and issue, on an otherwise valid body."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.api.test_invalid_fields import INVALID
from tests.wire.world import World

PATHS = {
    "input_proof": "/v2/input-proof",
    "public_decrypt": "/v2/public-decrypt",
    "direct": "/v2/user-decrypt",
    "delegated": "/v2/delegated-user-decrypt",
}


def field_of(case: Any) -> str:
    return f"{case[0][1].__name__}-{case[1]}"


@pytest.mark.parametrize("field", sorted({field_of(case) for case in INVALID}))
def test_20_2_invalid_values(world: World, field: str) -> None:
    cases = [case for case in INVALID if field_of(case) == field]
    for form, name, value, issue in cases:
        response = world.client.post(PATHS[form[1].__name__], form[1](**{name: value}))
        assert response.failure == (400, "validation_failed"), (value, response.raw)
        assert (name, issue) in response.details(), value


def test_20_2_start_in_the_future_by_the_clock_of_now(world: World) -> None:
    draft = world.draft("user_decrypt")
    validity = {"startTimestamp": str(int(time.time()) + 120), "durationDays": "1"}
    response = world.client.post(draft.path, {**draft.body, "requestValidity": validity})
    assert response.details() == {("requestValidity", "Timestamp must not be in the future")}
