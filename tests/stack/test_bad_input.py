"""Bad input over real HTTP: the status and label of the contract, and nothing written."""

from __future__ import annotations

import http.client
import json
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.stack.harness import Stack

pytestmark = pytest.mark.stack

PATH = "/v2/public-decrypt"
GOOD = {"ciphertextHandles": ["0x" + "00" * 22 + "0000000000001f49" + "0400"], "extraData": "0x00"}


def exchange(stack: Stack, method: str, path: str, body: bytes | None, key: str | None) -> tuple[int, Any]:
    parts = urlsplit(stack.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=60)
    try:
        connection.request(method, path, body, {"x-api-key": key} if key else {})
        response = connection.getresponse()
        raw = response.read()
        return response.status, json.loads(raw) if raw.startswith(b"{") else raw
    finally:
        connection.close()


def written(stack: Stack) -> tuple[Any, ...]:
    with stack.database() as conn:
        row = conn.execute(
            "SELECT (SELECT count(*) FROM user_decrypt_req), (SELECT count(*) FROM public_decrypt_req),"
            " (SELECT count(*) FROM input_proof_req), (SELECT count(*) FROM request_client), (SELECT count(*) FROM req_transition)"
        ).fetchone()
        assert row is not None
        return tuple(row)


@pytest.mark.parametrize(
    ("method", "path", "body", "key", "status", "label"),
    [
        ("POST", PATH, b'{"ciphertextHandles": [', "good", 400, "malformed_json"),
        ("POST", PATH, b'{"extraData": "0x00"}', "good", 400, "missing_fields"),
        ("POST", PATH, json.dumps({**GOOD, "ciphertextHandles": ["0xzz"]}).encode(), "good", 400, "validation_failed"),
        ("POST", PATH, b'{"x": "' + b"a" * (2 * 1024 * 1024) + b'"}', "good", 400, "request_error"),
        ("POST", PATH, json.dumps(GOOD).encode(), None, 401, "unauthorized"),
        ("POST", PATH, json.dumps(GOOD).encode(), "wrong", 401, "unauthorized"),
        ("GET", PATH + "/6f1f0f5e-6d2c-4c51-9d0e-000000000000", None, "good", 404, "not_found"),
        ("GET", PATH + "/6f1f0f5e-6d2c-4c51-9d0e-000000000000", None, None, 401, "unauthorized"),
    ],
)
def test_the_contracts_status_and_label_and_nothing_written(
    stack: Stack, method: str, path: str, body: bytes | None, key: str | None, status: int, label: str
) -> None:
    before = written(stack)
    given = stack.api_key if key == "good" else key
    found, answer = exchange(stack, method, path, body, given)
    assert (found, answer["status"], answer["error"]["label"]) == (status, "failed", label)
    assert written(stack) == before


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("PUT", PATH, 405),
        ("POST", "/nowhere", 404),
        ("POST", "/admin/config", 403),
        ("POST", "/admin/login/", 403),
        ("DELETE", "/v1/webhooks/1", 401),
        ("GET", "/liveness", 200),
    ],
)
def test_a_body_that_nobody_reads_does_not_become_the_next_request(
    stack: Stack, method: str, path: str, status: int
) -> None:
    """The connection is kept: what is left in it of the body would be taken for a request line."""
    parts = urlsplit(stack.url)
    with closing(http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=60)) as connection:
        for asked, sent, expected in ((method, b"x" * 300_000, status), ("GET", None, 200)):
            connection.request(asked, path if sent else "/liveness", sent, {"content-type": "text/plain"})
            answer = connection.getresponse()
            answer.read()
            assert answer.status == expected
