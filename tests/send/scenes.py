"""What the send-side tests start from: accounts, requests with their jobs, leases and a signer that was compared with the chain."""

from __future__ import annotations

import json
import os
from typing import Any
from uuid import uuid4

import psycopg
from psycopg.sql import SQL, Identifier

from requests_app.states import Kind, Status
from requests_app.store import signing
from requests_app.store.queue import READY, SEND, LeasedRequest, Receipt, Subject, enqueue_jobs, lease_requests
from requests_app.transitions.sending import Held, Price, Wanted
from tests.core.rows import insert_account, insert_request

CHAIN_ID = 654321
HOST = 8009
PRICE = Price(2_000_000_000, 1_000_000_000)
CONTRACT = bytes.fromhex("c0" * 20)


def handle(chain_id: int = HOST) -> bytes:
    """A random ciphertext handle of a host chain."""
    return os.urandom(22) + chain_id.to_bytes(8, "big") + b"\x04\x00"


def body(kind: Kind) -> dict[str, Any]:
    """A canonical payload."""
    if kind is Kind.PUBLIC_DECRYPT:
        return {"handles": ["0x" + handle().hex()], "extra_data": "0x00"}
    if kind is Kind.INPUT_PROOF:
        return {
            "contract_chain_id": str(HOST),
            "contract": "0x" + "11" * 20,
            "user": "0x" + "22" * 20,
            "ciphertext": "0x" + os.urandom(40).hex(),
            "extra_data": "0x00",
        }
    return {
        "type": "user_decrypt",
        "handles": [{"handle": "0x" + handle().hex(), "contract": "0x" + "11" * 20}],
        "start_timestamp": "1700000000",
        "duration_days": "10",
        "contracts_chain_id": str(HOST),
        "contracts": ["0x" + "11" * 20],
        "user": "0x" + "22" * 20,
        "signature": "0x" + "33" * 65,
        "public_key": "0x" + "44" * 32,
        "extra_data": "0x00",
    }


def add_request(
    conn: psycopg.Connection[Any],
    kind: Kind,
    status: Status,
    *,
    account: int | None = None,
    queue: str | None = None,
    payload: dict[str, Any] | None = None,
    **columns: Any,
) -> Subject:
    """A request with payload, client view and, in a waiting state, its job."""
    owner = account or insert_account(conn)
    row_id = insert_request(conn, kind, status, **columns)
    conn.execute(
        "INSERT INTO request_payload (kind, request_id, body) VALUES (%s, %s, %s)",
        (kind.value, row_id, json.dumps(payload or body(kind))),
    )
    conn.execute(
        "INSERT INTO request_client (client_id, kind, request_id, ext_job_id) VALUES (%s, %s, %s, %s)",
        (owner, kind.value, row_id, uuid4()),
    )
    wanted = queue or {Status.QUEUED: READY, Status.PROCESSING: SEND}.get(status)
    subject = Subject(kind, row_id)
    if wanted:
        enqueue_jobs(conn, wanted, [(subject, owner)])
    return subject


def hold(conn: psycopg.Connection[Any], resource: str, instance: str = "one", epoch: int = 1) -> signing.Fence:
    """A lease that `instance` holds."""
    conn.execute(
        "INSERT INTO exec_lease (resource, instance, epoch, lease_until) VALUES (%s, %s, %s, now() + interval '1 hour') "
        "ON CONFLICT (resource) DO UPDATE SET instance = excluded.instance, epoch = excluded.epoch",
        (resource, instance, epoch),
    )
    return signing.Fence(resource, instance, epoch)


def add_signer(
    conn: psycopg.Connection[Any], fence: signing.Fence, *, nonce: int = 0, address: bytes | None = None
) -> signing.SignerState:
    """A signer whose chain counts are `nonce`."""
    key = address or os.urandom(20)
    signing.ensure_signers(conn, CHAIN_ID, [key])
    return signing.sync_signer(conn, fence, CHAIN_ID, key, latest=nonce, pending=nonce, balance=10**18).signer


def leased(conn: psycopg.Connection[Any], queue: str, limit: int = 100, owner: str = "one") -> list[LeasedRequest]:
    """A lease of requests for 30 s."""
    return lease_requests(conn, queue, limit, owner, 30)


def wanted(deliveries: list[LeasedRequest]) -> list[Wanted]:
    """The leased requests as ready to sign, each with its id as calldata."""
    return [Wanted(Held(d.subject, d.receipt), CONTRACT, d.subject.id.to_bytes(8, "big"), 100_000) for d in deliveries]


def fake_sign(item: Wanted, nonce: int) -> tuple[bytes, bytes]:
    """Bytes that name subject and nonce; the hash is random."""
    return bytes([item.held.subject.kind]) + item.data + nonce.to_bytes(8, "big"), os.urandom(32)


def expire_leases(conn: psycopg.Connection[Any]) -> None:
    """Let every job lease run out now."""
    conn.execute("UPDATE queue_job SET visible_at = clock_timestamp() - interval '1 second'")


def receipts(deliveries: list[Any]) -> list[Receipt]:
    """The receipts of deliveries."""
    return [delivery.receipt for delivery in deliveries]


def change(conn: psycopg.Connection[Any], subject: Subject, assignments: str) -> None:
    """Write to a request's row behind the product's back."""
    statement = SQL("UPDATE {table} SET {what} WHERE id = %s").format(
        table=Identifier(subject.kind.table),
        what=SQL(assignments),  # type: ignore[arg-type]
    )
    conn.execute(statement, (subject.id,))


def fail(conn: psycopg.Connection[Any], subject: Subject) -> None:
    """As if the client had canceled it."""
    change(conn, subject, "status = 'failure', completed_at = clock_timestamp()")


def next_nonce(conn: psycopg.Connection[Any], signer_id: int) -> int:
    """The next nonce that the signer gives out."""
    (found,) = next(iter(conn.execute("SELECT next_nonce FROM signer WHERE id = %s", (signer_id,))))
    return int(found)
