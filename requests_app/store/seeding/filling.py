"""Writes a `Layout`: rows first, without indexes and triggers, then these, all in one transaction; figures and statistics last."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import psycopg
from psycopg.sql import SQL, Identifier

from requests_app.models.reviews import ReasonCode
from requests_app.states import INITIAL, REQUEST_KINDS, Kind
from requests_app.store.figures import count_ended
from requests_app.store.seeding.layout import (
    ACCOUNTS,
    BIG_TABLES,
    SIGNERS,
    SPAN_SECONDS,
    TABLES,
    KindPlan,
    Layout,
    chunks,
    depths,
)
from requests_app.store.seeding.payments import PAYMENT_WEIGHT, fill_payments
from requests_app.store.session import fetch_all, fetch_only, run, transaction

Connection = psycopg.Connection[Any]
Progress = Callable[[str, float], None]
"""(what is being done, how many rows' worth of work has just been finished)"""

CHAIN_ID: Final = 654321
INDEX_WEIGHT: Final = 0.06  # for each row of an index, when writing a request with all that hangs on it is 1
TIDY_WEIGHT: Final = 0.05
_FIGURES_BATCH: Final = 500_000
_SESSION: Final = (
    "SET LOCAL work_mem = '256MB'",
    "SET LOCAL maintenance_work_mem = '1GB'",
    "SET LOCAL synchronous_commit = off",
    "SET LOCAL lock_timeout = '5s'",
    "SET LOCAL idle_in_transaction_session_timeout = 0",
)

_NOISE = "(SELECT string_agg(encode(sha256(int8send(id * 64 + n)), 'hex'), '') FROM generate_series(1, {count}) AS n)"
_HANDLE = "'0x' || encode(sha256(int8send(id + {shift})), 'hex')"
_ADDRESS = "'0x' || substr(encode(sha256(int8send(id % 5000)), 'hex'), 1, 40)"
_ANSWER = (
    "'signatures', jsonb_build_array('0x' || repeat(encode(sha256(hash), 'hex'), 2) || '1b'), 'extra_data', '0x00'"
)
_SENT_OK = "CASE status WHEN 'completed' THEN"
_PARTS: Final[dict[Kind, dict[str, str]]] = {
    Kind.USER_DECRYPT: {
        "denies": "true",
        "columns": ", req_type, resolved_threshold, gw_consensus_tx_hash",
        "values": f", CASE i % 5 WHEN 3 THEN 'delegated_user_decrypt' WHEN 4 THEN 'unified' ELSE 'user_decrypt' END, {_SENT_OK} 9 END, NULL",
        "body": "jsonb_build_object('type', 'user_decrypt', 'start_timestamp', '1790000000', 'duration_days', '10', 'contracts_chain_id', '8009', "
        f"'contracts', jsonb_build_array({_ADDRESS}), 'user', {_ADDRESS}, 'extra_data', '0x00', 'handles', jsonb_build_array("
        f"jsonb_build_object('handle', {_HANDLE.format(shift=1)}, 'contract', {_ADDRESS}), jsonb_build_object('handle', {_HANDLE.format(shift=2)}, 'contract', {_ADDRESS})), "
        f"'signature', '0x' || {_NOISE.format(count=2)} || '1b', 'public_key', '0x' || {_NOISE.format(count=25)})",
    },
    Kind.PUBLIC_DECRYPT: {
        "denies": "true",
        "columns": ", res, gw_response_tx_hash",
        "values": f", {_SENT_OK} jsonb_build_object('decrypted_value', '0x' || encode(sha256(hash), 'hex'), {_ANSWER}) END, {_SENT_OK} hash END",
        "body": f"jsonb_build_object('handles', jsonb_build_array({_HANDLE.format(shift=1)}, {_HANDLE.format(shift=2)}), 'extra_data', '0x00')",
    },
    Kind.INPUT_PROOF: {
        "denies": "false",
        "columns": ", int_request_id, accepted, res, gw_response_tx_hash",
        "values": f", md5('request/' || i)::uuid, {_SENT_OK} i % 20 <> 3 END, {_SENT_OK} jsonb_build_object('handles', "
        f"jsonb_build_array('0x' || encode(sha256(hash), 'hex')), {_ANSWER}) END, {_SENT_OK} hash END",
        "body": f"jsonb_build_object('contract_chain_id', '8009', 'contract', {_ADDRESS}, 'user', {_ADDRESS}, "
        f"'ciphertext', '0x' || {_NOISE.format(count=32)}, 'extra_data', '0x00')",
    },
}


class TableSize(NamedTuple):
    """A table of the seeded database: rows by statistics, bytes of rows and of indexes."""

    name: str
    rows: int
    table_bytes: int
    index_bytes: int


def obstacles(conn: Connection, tables: Sequence[str] = TABLES) -> list[str]:
    """Why the database must not be seeded as it is: workers that hold leases, and tables that have rows."""
    found = [f"{name} has rows" for name in tables if fetch_only(conn, "seed", "has_rows", table=name).found]
    holders = fetch_only(conn, "seed", "working").n
    return [f"{holders} leases are held: something works on this database", *found] if holders else found


def working(conn: Connection) -> bool:
    """Whether any worker holds a lease."""
    return bool(fetch_only(conn, "seed", "working").n)


def work_of(conn: Connection, layout: Layout) -> float:
    """What `fill` and `tidy` report in total: a row is 1, and so on by INDEX_WEIGHT and TIDY_WEIGHT."""
    rows = layout.estimate()
    indexes = sum(len(fetch_all(conn, "seed", "indexes_of", {"table": name})) * rows[name] for name in BIG_TABLES)
    payments = layout.payments().last * PAYMENT_WEIGHT
    return layout.finished + layout.live + payments + INDEX_WEIGHT * indexes + TIDY_WEIGHT * sum(rows.values())


def fill(conn: Connection, layout: Layout, base: datetime, progress: Progress) -> None:
    """Empty the tables and write the layout, ended before `base`. One transaction: all of it is there, or nothing has changed.

    On a server with wal_level = minimal nothing of it goes through the log. Raises psycopg.Error.
    """
    with transaction(conn):
        for line in _SESSION:
            conn.execute(line)
        run(conn, "seed", "empty_tables", tables=", ".join(TABLES))
        run(conn, "seed", "forget_holds")
        kept = _without_indexes(conn, layout.estimate())
        clients, signers = _surroundings(conn, base)
        for plan in layout.kinds():
            _fill_kind(conn, plan, base, clients, signers[plan.kind], progress)
        for name, make, work in kept:
            progress(f"index {name}", 0)
            conn.execute(make)
            progress(f"index {name}", work)
        _with_triggers(conn)
        fill_payments(conn, layout.payments(), base, clients, signers[Kind.PAYMENT], progress)
        run(conn, "seed", "seed_decisions")
        run(conn, "seed", "seed_holds", {"base": base})
        run(conn, "seed", "seed_nonces")
        for table in (kind.table for kind in Kind):
            fetch_only(conn, "seed", "set_sequence", {"table": table}, table=table)


def count_figures(conn: Connection, progress: Progress) -> None:
    """The first page's figures of the finished rows, by the statement of the duty that keeps them."""
    for kind in REQUEST_KINDS:
        while True:
            with transaction(conn):
                conn.execute("SET LOCAL work_mem = '256MB'")
                counted = count_ended(conn, kind, 0.0, _FIGURES_BATCH)
            progress(f"figures of {kind.slug}", 0)
            if not counted:
                break


def tidy(conn: Connection, layout: Layout, progress: Progress) -> None:
    """Statistics, visibility and frozen rows, as in a database that has been at rest. Outside any transaction."""
    conn.execute("SET maintenance_work_mem = '1GB'")
    conn.execute("SET lock_timeout = 0")  # autovacuum may have begun already: it gives way, after a second
    rows = layout.estimate()
    for name in TABLES:
        progress(f"vacuum {name}", 0)
        conn.execute(SQL("VACUUM (FREEZE, ANALYZE) {}").format(Identifier(name)))
        progress(f"vacuum {name}", TIDY_WEIGHT * rows.get(name, 0))
    conn.execute("CHECKPOINT")
    conn.execute("RESET lock_timeout")
    conn.execute("RESET maintenance_work_mem")


def sizes(conn: Connection) -> list[TableSize]:
    """Rows and bytes of every table, the largest first."""
    return [TableSize(*row) for row in fetch_all(conn, "seed", "sizes", {"tables": list(TABLES)})]


def _surroundings(conn: Connection, base: datetime) -> tuple[list[int], dict[Kind, list[int]]]:
    """Accounts and signers: their ids."""
    run(conn, "seed", "seed_accounts", {"base": base, "count": ACCOUNTS})
    clients = [row.id for row in fetch_all(conn, "seed", "seeded_accounts", {"count": ACCOUNTS})]
    run(conn, "seed", "seed_source", {"chain": CHAIN_ID})
    run(conn, "seed", "seed_cursor", {"block": 3_000_000})
    parameters = {"chain": CHAIN_ID, "count": sum(SIGNERS.values()), "base": base}
    ids = iter([row.id for row in fetch_all(conn, "seed", "seed_signers", parameters)])
    return clients, {kind: [next(ids) for _ in range(count)] for kind, count in SIGNERS.items()}


def _fill_kind(
    conn: Connection, plan: KindPlan, base: datetime, clients: Sequence[int], signers: Sequence[int], progress: Progress
) -> None:
    slots = 0
    parts = {"table": plan.kind.table, "kind": str(plan.kind.value), "initial": INITIAL[plan.kind].value}
    for first, last in chunks(plan.last):
        parameters = {
            "lo": first,
            "hi": last,
            "finished": plan.finished,
            "states": plan.states,
            "cuts": plan.cuts,
            "span": SPAN_SECONDS,
            "base": base,
            "clients": list(clients),
            "client_count": len(clients),
            "signers": list(signers),
            "signer_count": len(signers),
            "slots_before": slots,
            "reasons": [code.value for code in ReasonCode],
            "reason_count": len(ReasonCode),
            **depths(plan),
        }
        slots += fetch_only(conn, "seed", "seed_requests", parameters, **_escaped(_PARTS[plan.kind]), **parts).slots
        progress(f"rows of {plan.kind.slug}", last - first + 1)


def _escaped(parts: dict[str, str]) -> dict[str, str]:
    """SQL parts as a statement with placeholders takes them."""
    return {name: text.replace("%", "%%") for name, text in parts.items()}


def _without_indexes(conn: Connection, rows: Mapping[str, int]) -> list[tuple[str, str, float]]:
    """Drop the indexes of the big tables and switch their triggers off: (name, how to make it again, its work) of each."""
    kept = []
    for table in BIG_TABLES:
        conn.execute(SQL("ALTER TABLE {} DISABLE TRIGGER USER").format(Identifier(table)))
        for row in fetch_all(conn, "seed", "indexes_of", {"table": table}):
            conn.execute(row.drop)
            kept.append((row.name, row.make, INDEX_WEIGHT * rows[table]))
    return kept


def _with_triggers(conn: Connection) -> None:
    for table in BIG_TABLES:
        conn.execute(SQL("ALTER TABLE {} ENABLE TRIGGER USER").format(Identifier(table)))
