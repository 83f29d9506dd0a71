"""Every answer of the payment routes, from the running stack."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from requests_app.states import Kind
from tests.payments.api.paying import MERCHANT, PATH, PAYER, sign
from tests.wire.client import Client, Response
from tests.wire.world import SOFT_LIMIT, World

ONE = PATH + "/{intent_id}"
AUTHORIZE, CANCEL, TIMELINE = ONE + "/authorize", ONE + "/cancel", ONE + "/timeline"
UNSIGNED = {"valid_after": "0", "valid_before": "4000000000", "nonce": "0x" + "00" * 32, "signature": "0x" + "00" * 65}
OPERATIONS = (("GET", PATH), ("POST", PATH), ("GET", ONE), ("GET", TIMELINE), ("POST", AUTHORIZE), ("POST", CANCEL))
Seen = Counter[tuple[str, str, int]]


def terms(world: World) -> dict[str, str]:
    """A payment in the devnet's token that is accepted."""
    gateway = world.stack.deployment.gateway
    token = gateway["payment_tokens"][0]["address"]
    return {
        "chain": f"evm:{gateway['chain_id']}",
        "token": token,
        "payer": PAYER,
        "merchant": MERCHANT,
        "amount": "1000000",
    }


class Paying:
    """A client of the payment routes that counts what it was answered."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.seen: Seen = Counter()

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        intent: str = "",
        key: str = "",
        query: str = "",
        client: Any = None,
    ) -> Response:
        """One exchange; without a key of its own a POST has a fresh one."""
        raw = None if body is None else json.dumps(body).encode()
        headers = {"Idempotency-Key": key or str(uuid4())}
        place = path.replace("{intent_id}", intent or "pi_" + "0" * 24) + query
        response: Response = (client or self._world.client).exchange(method, place, raw, headers)
        self.seen[method, path, response.status] += 1
        return response

    def create(self, key: str = "") -> Any:
        """A new payment."""
        response = self.ask("POST", PATH, terms(self._world), key=key)
        assert response.status == 201, response.raw
        return response.body


def every_answer(world: World) -> Seen:
    """Each status of each payment route that does not need a broken server."""
    paying = Paying(world)
    _refused_creates(world, paying)
    made = paying.create()
    for path in (PATH, ONE, TIMELINE):
        assert paying.ask("GET", path, intent=made["id"]).status == 200
    paying.ask("GET", ONE, intent=made["id"], query="?wait=x")
    signed = sign(made["typed_data"])
    with world.filled("settle", Kind.PAYMENT.value, SOFT_LIMIT):
        paying.ask("POST", PATH, terms(world))
        paying.ask("POST", AUTHORIZE, signed, intent=made["id"])
    paying.ask("POST", AUTHORIZE, UNSIGNED, intent=made["id"])
    authorized = paying.ask("POST", AUTHORIZE, signed, intent=made["id"])
    assert authorized.status == 200, authorized.raw
    paying.ask("POST", AUTHORIZE, sign(made["typed_data"], validBefore="4000000000"), intent=made["id"])
    for prepare in (nothing, end):
        other = paying.create()
        prepare(world, other["id"])
        paying.ask("POST", CANCEL, intent=other["id"])
    for method, path in OPERATIONS:
        if path != PATH:
            paying.ask(method, path, UNSIGNED if path == AUTHORIZE else None)
    with disabled(world) as nobody:
        for method, path in OPERATIONS:
            paying.ask(method, path, terms(world) if method == "POST" else None, client=nobody)
    return paying.seen


def _refused_creates(world: World, paying: Paying) -> None:
    paying.ask("POST", PATH, {})
    made = paying.create(key="fuzz-1")
    paying.ask("POST", PATH, {**terms(world), "amount": "5"}, key="fuzz-1")
    assert paying.create(key="fuzz-1") == made
    body = json.dumps(terms(world)).encode()
    fingerprint = hashlib.sha256(b"\0".join((b"POST", PATH.encode(), body))).digest()
    with world.stack.database() as conn:
        conn.execute(
            "UPDATE idempotency_record SET response_status = NULL, fingerprint = %s, lease_until = 'infinity'"
            " WHERE key = 'fuzz-1'",
            (fingerprint,),
        )
        assert paying.ask("POST", PATH, terms(world), key="fuzz-1").status == 409
        conn.execute("DELETE FROM idempotency_record WHERE key = 'fuzz-1'")


def nothing(_world: World, _intent: str) -> None:
    """It stays as it is."""


def end(world: World, intent: str) -> None:
    """The payment has failed, although nobody worked on it."""
    with world.stack.database() as conn:
        conn.execute(
            """UPDATE payment_intent SET state = 'failed', "authorization" = '{}' WHERE public_id = %s""", (intent,)
        )


@contextmanager
def disabled(world: World) -> Iterator[Client]:
    """A client whose account is disabled."""
    with world.stack.database() as conn:
        conn.execute(
            "INSERT INTO client_account (name, status) VALUES ('fuzz-disabled', 'disabled') ON CONFLICT DO NOTHING"
        )
        conn.execute(
            "INSERT INTO api_key (account_id, prefix, digest)"
            " SELECT id, 'fuzz-disabled', %s FROM client_account WHERE name = 'fuzz-disabled' ON CONFLICT DO NOTHING",
            (hashlib.sha256(b"fuzz-disabled").digest(),),
        )
    yield Client(world.stack.url, "fuzz-disabled")
