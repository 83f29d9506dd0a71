"""Body and signature: the vector of the Standard Webhooks libraries, and what a receiver verifies."""

from __future__ import annotations

import base64
import json
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from requests_app.states import Kind
from requests_app.webhook_messages import (
    message_body,
    message_headers,
    message_id,
    new_secret,
    shown_secret,
    signature,
)

ROOT = Path(__file__).resolve().parent.parent.parent
AT = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)


def test_the_vector_of_the_specification_s_libraries() -> None:
    key = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    made = signature(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert made == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_each_key_signs_and_each_signature_is_of_the_attempt() -> None:
    headers = message_headers("msg_1", 7, b"{}", [b"a" * 32, b"b" * 32])
    both = headers["webhook-signature"].split(" ")
    assert both == [signature(key * 32, "msg_1", 7, b"{}") for key in (b"a", b"b")]
    assert len({*both, signature(b"a" * 32, "msg_1", 8, b"{}"), signature(b"a" * 32, "msg_2", 7, b"{}")}) == 4
    assert (headers["webhook-id"], headers["webhook-timestamp"]) == ("msg_1", "7")


def test_the_body_says_what_happened_and_nothing_else() -> None:
    made = json.loads(message_body("request.timed_out", Kind.USER_DECRYPT, "a-job", AT))
    at = "2026-01-31T12:00:00.123Z"
    assert made == {
        "type": "request.timed_out",
        "timestamp": at,
        "data": {"id": "a-job", "kind": "user-decrypt", "status": "timed_out", "updated_at": at},
    }
    assert json.loads(message_body("payment.settled", Kind.PAYMENT, "pi_1", AT))["data"]["kind"] == "payment"
    assert json.loads(message_body("webhook.test", None, None, AT))["data"] == {}


def test_what_the_documentation_says_verifies() -> None:
    """The very code of docs/webhooks.md."""
    code = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "webhooks.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code[0], names)  # noqa: S102 - our own page
    verified, secret, now = names["verified"], new_secret(), int(time.time())
    body = message_body("request.completed", Kind.INPUT_PROOF, "a-job", AT)
    headers = message_headers("msg_1", now, body, [new_secret(), secret])
    assert verified(shown_secret(secret), headers, body)
    assert not verified(shown_secret(new_secret()), headers, body)
    assert not verified(shown_secret(secret), headers, body + b" ")
    assert not verified(shown_secret(secret), {**headers, "webhook-id": "msg_2"}, body)
    old = message_headers("msg_1", now - 600, body, [secret])
    assert not verified(shown_secret(secret), old, body)


def test_secrets_and_ids_as_they_are_shown() -> None:
    secret = new_secret()
    assert len(secret) == 32
    assert secret != new_secret()
    assert base64.b64decode(shown_secret(secret).removeprefix("whsec_")) == secret
    assert message_id(UUID(int=1)) == "msg_00000000000000000000000000000001"
