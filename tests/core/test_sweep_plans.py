"""What the duties read at a size where a wrong plan hurts: 20,000 finished requests, each with its slot and attempt.

At 3 million rows the deadline query took 8 s for 20 overdue rows (a worker's statements end after 10 s: with a few more, no deadline
would ever have been kept), the evidence 5 s, and each run of the retention read everything that it was to keep.
"""

from __future__ import annotations

import re

import psycopg
import pytest

from requests_app import sql
from requests_app.states import Kind, Status
from requests_app.store.sweep import overdue
from tests.core.rows import insert_request

pytestmark = pytest.mark.django_db(transaction=True)
ROWS = 20_000


@pytest.fixture
def full(conn):
    conn.execute(
        "INSERT INTO user_decrypt_req (ext_job_id, int_job_id, status, req_type, gw_req_tx_hash, completed_at)"
        " SELECT gen_random_uuid(), sha256(g::text::bytea), 'completed', 'user_decrypt', sha256(('t' || g)::bytea), clock_timestamp()"
        f" FROM generate_series(1, {ROWS}) g"
    )
    conn.execute("INSERT INTO signer (chain_id, address) VALUES (1, '\\x01')")
    conn.execute(
        "INSERT INTO nonce_slot (signer_id, nonce, kind, subject_id, state, opened_epoch)"
        " SELECT s.id, r.id, 1, r.id, 'final', 1 FROM user_decrypt_req r, signer s"
    )
    conn.execute(
        "INSERT INTO tx_attempt (signer_id, nonce, seq, tx_hash, raw_tx, max_fee_per_gas, max_priority_fee, gas_limit, state, epoch)"
        " SELECT s.id, r.id, 1, r.gw_req_tx_hash, '\\x00', 1, 1, 1, 'final', 1 FROM user_decrypt_req r, signer s"
    )
    for status in (Status.QUEUED, Status.PROCESSING, Status.TX_IN_FLIGHT, Status.RECEIPT_RECEIVED):
        for _ in range(5):
            late = insert_request(conn, Kind.USER_DECRYPT, status)
            conn.execute(
                "UPDATE user_decrypt_req SET deadline_at = clock_timestamp() - interval '1 minute' WHERE id = %s",
                (late,),
            )
    conn.execute("VACUUM (ANALYZE) user_decrypt_req, nonce_slot, tx_attempt")
    return conn


def plan(conn, name, params, **parts):
    text = "EXPLAIN (ANALYZE, TIMING OFF) " + sql.statement("sweep", name, **parts)
    with conn.transaction(force_rollback=True):
        return "\n".join(row[0] for row in psycopg.Cursor(conn).execute(text, params).fetchall())


STATEMENTS = {
    "overdue": {"limit": 500},
    "attempts_of": {"kinds": [1] * 20, "ids": list(range(1, 21))},
    "purge_requests": {"seconds": 3600.0, "limit": 500, "kind": 1},
    "enqueue_lost": {"idle": 60.0, "limit": 100, "priority": 50},
}


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
def test_duties_read_what_they_act_on_and_nothing_else(full, mode):
    full.execute(f"SET plan_cache_mode = {mode}")
    for name, params in STATEMENTS.items():
        found = f"{name}:\n{plan(full, name, params, table='user_decrypt_req')}"
        assert not re.search(r"Seq Scan on (user_decrypt_req|nonce_slot|tx_attempt)", found), found
        assert all(int(n) < 100 for n in re.findall(r"Removed by Filter: (\d+)", found)), found


def test_rows_that_must_stay_overdue_do_not_hide_those_of_another_state(full):
    """While the chain is away thousands may wait for its word; a queued row past its deadline is settled all the same."""
    found = overdue(full, 2)
    assert {row.status for row in found} == {
        Status.QUEUED, Status.PROCESSING, Status.TX_IN_FLIGHT, Status.RECEIPT_RECEIVED,
    }  # fmt: skip
    assert len(found) == 8
