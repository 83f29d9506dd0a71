"""Originators, accounts and envelopes for the tests of the log. Bands of the test originators are 2**20 positions wide."""

from __future__ import annotations

import itertools
import uuid
from threading import Event
from time import monotonic
from typing import Any

import psycopg

from requests_app.prices import Prices
from requests_app.store import envelopes, publish
from requests_app.store.appending import Appended, Item, append

Connection = psycopg.Connection[Any]
WIDTH = 1 << 20
CHAIN, OTHER, PUBLISHER = 11, 12, 100
PRICE = Prices(base=10, by_kind={2: 1000}, congestion_target=1_000_000)
TABLES = (
    "api_key, client_account, exec_lease, envelope_source, chain_cursor, consumer_cursor, envelope_band, envelope_conflict, "
    "dead_envelope, envelope_orphan, chain_reorg, chain_block, reorg_evidence, usage_unsettled, usage_billed, usage_settled, originator_congestion, publisher_head, "
    "staged_envelope, published_envelope, envelope_miss, cursor_key, user_decrypt_req, public_decrypt_req, input_proof_req, "
    "request_client, request_payload, req_transition, gateway_ref, user_decrypt_share, nonce_slot, tx_attempt, signer, queue_job"
)
LEAVES = """SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
             WHERE i.inhparent IN ('envelope_meta'::regclass, 'envelope_blob'::regclass)"""
LEFT_OVER = "SELECT relname FROM pg_class WHERE relkind IN ('r','p') AND relname ~ '^envelope_(meta|blob)_s'"
_serial = itertools.count(1)


def empty(conn: Connection) -> None:
    """An empty log without partitions."""
    for query in (LEAVES, LEFT_OVER):
        names = ", ".join(f'"{name}"' for (name,) in conn.execute(query).fetchall())
        if names:
            conn.execute(f"DROP TABLE {names}")
    deletes = "; ".join(f"DELETE FROM {table}" for table in TABLES.split(", "))
    conn.execute(f"BEGIN; SET LOCAL session_replication_role = replica; {deletes}; COMMIT")


def chain(conn: Connection, source: int = CHAIN, *, band_blocks: int = 1) -> None:
    """A chain originator that starts at block 1, its listener's lease held by this test."""
    conn.execute(
        "INSERT INTO exec_lease (resource, instance, epoch, lease_until) VALUES (%s, 'test', 1, 'infinity')",
        (f"listener:{source}",),
    )
    envelopes.add_source(
        conn, source, name=f"chain-{source}", chain_id=source, start_block=1, band_blocks=band_blocks, reorg_depth=2
    )


def publisher(conn: Connection) -> None:
    """The local publisher with its first band."""
    publish.open_publisher(conn, PUBLISHER)
    envelopes.ensure_band(conn, PUBLISHER, 1)


def account(conn: Connection, name: str = "payer") -> int:
    """An active account."""
    row = conn.execute(
        "INSERT INTO client_account (name, status) VALUES (%s, 'active') RETURNING id", (f"{name}-{next(_serial)}",)
    ).fetchone()
    assert row is not None
    return int(row[0])


def item(
    position: int, payer: int | None = None, *, kind: int = 1, payload: bytes = b"x", ref: bytes = b"t", **more: Any
) -> Item:
    """An envelope at a position."""
    return Item(position, kind, payload, ref=ref, payer=payer, **more)


def put(conn: Connection, *items: Item, source: int = CHAIN, price: Prices = PRICE) -> Appended:
    """Append in a transaction of its own."""
    with conn.transaction():
        return append(conn, source, items, price=price)


def minute(conn: Connection, back: int = 0) -> int:
    """The database's minute since 1970, or one before it."""
    row = conn.execute("SELECT floor(extract(epoch FROM clock_timestamp()) / 60)::bigint - %s", (back,)).fetchone()
    assert row is not None
    return int(row[0])


def until_waiting(conn: Connection, other: Connection, seconds: float = 60) -> None:
    """Returns when `other`'s statement waits for a lock."""
    over = monotonic() + seconds
    while monotonic() < over:
        row = conn.execute("SELECT cardinality(pg_blocking_pids(%s)) > 0", (other.info.backend_pid,)).fetchone()
        if row == (True,):
            return
        Event().wait(0.02)
    raise AssertionError("the other session does not wait for a lock")


def stage(conn: Connection, client: int, payload: bytes = b"p", topic: bytes = b"topic", expires: Any = None) -> int:
    """A staged publication."""
    found = publish.stage(conn, uuid.uuid4(), client, topic, payload, expires)
    assert found is not None
    return found


def stored(conn: Connection, source: int = CHAIN) -> list[int]:
    """The positions of an originator."""
    return [
        row[0] for row in conn.execute("SELECT position FROM envelope_meta WHERE source_id=%s ORDER BY 1", (source,))
    ]


def usage(conn: Connection) -> list[tuple[int, int, int, int]]:
    """(payer, originator, spend, messages), minutes added up."""
    return conn.execute(
        "SELECT payer, source_id, sum(spend)::bigint, sum(messages)::bigint FROM usage_unsettled GROUP BY 1, 2 ORDER BY 1, 2"
    ).fetchall()


def congestion(conn: Connection, source: int = CHAIN) -> int:
    """Messages counted of an originator."""
    row = conn.execute(
        "SELECT coalesce(sum(messages), 0)::bigint FROM originator_congestion WHERE source_id=%s", (source,)
    ).fetchone()
    assert row is not None
    return int(row[0])


def misses(conn: Connection) -> dict[int, int]:
    """Missing bands met, by originator."""
    return dict(conn.execute("SELECT source_id, misses FROM envelope_miss").fetchall())
