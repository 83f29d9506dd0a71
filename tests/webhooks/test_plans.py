"""What the statements of webhooks read where a wrong plan hurts: 20,000 deliveries, most of them waiting for two receivers."""

from __future__ import annotations

import re
from typing import Any

import psycopg
import pytest

from requests_app import sql
from requests_app.states import DeliveryState
from requests_app.store import webhooks as store
from requests_app.store.webhooks import Record
from tests.core.rows import insert_account
from tests.webhooks.rows import insert_webhook

pytestmark = pytest.mark.django_db(transaction=True)
Connection = psycopg.Connection[Any]
CLAIM = {"by": "a", "busy": [], "held": [], "limit": 16, "each": 4, "lease": 60.0}


@pytest.fixture
def full(conn: Connection) -> Connection:
    account = insert_account(conn)
    busy = [insert_webhook(conn, account) for _ in range(2)]
    quiet = [insert_webhook(conn, insert_account(conn)) for _ in range(30)]
    gone = insert_webhook(conn, account, state="removed")
    paused = insert_webhook(conn, account, state="paused")
    conn.execute(
        "INSERT INTO webhook_delivery (webhook_id, event, kind, subject_id, subject, occurred_at, state, next_attempt_at, ended_at)"
        " SELECT w, 'request.completed', 1, g, g::text, clock_timestamp(), s, clock_timestamp() - make_interval(secs => g %% 1000),"
        "        CASE WHEN s <> 'waiting' THEN clock_timestamp() END"
        "   FROM (VALUES (%s, 'waiting'), (%s, 'waiting'), (%s, 'waiting'), (%s, 'delivered'), (%s, 'failed')) AS v(w, s),"
        "        generate_series(1, 4000) g",
        (*busy, paused, *busy),
    )
    for webhook in (*quiet, gone):
        conn.execute(
            "INSERT INTO webhook_delivery (webhook_id, event, occurred_at) VALUES (%s, 'webhook.test', clock_timestamp())",
            (webhook,),
        )
    conn.execute("VACUUM (ANALYZE) webhook_delivery, webhook, client_account")
    return conn


def plan(conn: Connection, name: str, params: dict[str, Any], **parts: str) -> str:
    text = "EXPLAIN (ANALYZE, TIMING OFF) " + sql.statement("webhooks", name, **parts)
    with conn.transaction(force_rollback=True):
        return "\n".join(row[0] for row in psycopg.Cursor(conn).execute(text, params).fetchall())  # type: ignore[call-overload]


STATEMENTS: dict[str, dict[str, Any]] = {
    "claim": CLAIM,
    "drop_deliveries": {"source": "waiting", "target": "dropped", "reason": "gone", "limit": 500},
    "expire_deliveries": {"source": "waiting", "target": "failed", "reason": "old", "seconds": 3600.0, "limit": 500},
    "purge_deliveries": {"seconds": 3600.0, "limit": 500},
    "purge_webhooks": {"limit": 500},
    "page_deliveries": {"webhook": 1, "before": 2**60, "limit": 100},
    "insert_test": {"webhook": 3, "event": "webhook.test"},
}


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
def test_statements_read_what_they_act_on(full: Connection, mode: str) -> None:
    full.execute(f"SET plan_cache_mode = {mode}")  # type: ignore[call-overload]
    for name, params in STATEMENTS.items():
        found = f"{name}:\n{plan(full, name, params)}"
        assert not re.search(r"Seq Scan on webhook_delivery", found), found
        read = [int(rows) * int(loops) for rows, loops in re.findall(r"actual rows=(\d+)(?:\.\d+)? loops=(\d+)", found)]
        assert max(read) <= 600, found
        assert all(int(n) < 600 for n in re.findall(r"Removed by Filter: (\d+)", found)), found


def test_the_metrics_count_up_to_their_bound(full: Connection) -> None:
    found = store.webhook_figures(full)
    assert (found.waiting, found.failed) == (10_000, 4_000)
    assert found.oldest_due_seconds > 900


def test_a_block_of_ends_is_told_by_one_trigger_in_no_time(full: Connection) -> None:
    """500 answers of one block, of a client with 20,000 requests, with a plan that is cached after some rounds."""
    account = insert_account(full)
    webhook = insert_webhook(full, account)
    full.execute(
        "INSERT INTO request_client (client_id, kind, request_id, ext_job_id)"
        " SELECT %s, 1, g, gen_random_uuid() FROM generate_series(1, 20000) g",
        (account,),
    )
    full.execute("ANALYZE request_client")
    ends = (
        "EXPLAIN (ANALYZE, TIMING ON) INSERT INTO req_transition (kind, request_id, verb, to_status, actor)"
        " SELECT 1, g, 'complete', 'completed', 'chain' FROM generate_series(%s::int, %s::int) g"
    )
    took = []
    for start in range(1, 4001, 500):
        found = "\n".join(row[0] for row in full.execute(ends, (start, start + 499)).fetchall())
        (milliseconds,) = re.findall(r"req_transition_told: time=([\d.]+) calls=1", found)
        took.append(float(milliseconds))
    ((told,),) = full.execute("SELECT count(*) FROM webhook_delivery WHERE webhook_id = %s", (webhook,)).fetchall()
    assert told == 4000
    assert min(took) < 200, took


def test_a_batch_is_recorded_in_one_statement(full: Connection) -> None:
    taken = store.claim(full, "a", {}, limit=500, each=250, lease_seconds=60)
    assert len(taken) == 500
    records = [Record(due.id, due.attempt, DeliveryState.DELIVERED, 200, None, 1.0) for due in taken]
    assert len(store.record_deliveries(full, records)) == 500
