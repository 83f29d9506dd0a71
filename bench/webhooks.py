"""The figures of webhooks: `make bench-webhooks`. What the outbox costs an end without a webhook and with one, and deliveries claimed and recorded a second.

Runs on an embedded PostgreSQL of its own with default durability, in a directory that is removed afterwards. Nothing is posted.
"""

from __future__ import annotations

import argparse
import statistics
from time import perf_counter
from typing import Final

from bench.envelope_scene import Connection
from bench.ground import own_database
from bench.table import Table, leave, publish

BLOCK: Final = 500
ROUNDS: Final = 12
DELIVERIES: Final = 20_000
_ENDS: Final = (
    "INSERT INTO req_transition (kind, request_id, verb, to_status, actor)"
    " SELECT 1, g, 'complete', 'completed', 'chain' FROM generate_series(%s::int, %s::int) g"
)
_TRIGGERS: Final = "ALTER TABLE req_transition {} TRIGGER req_transition_told"


def ends(conn: Connection, start: int) -> float:
    """Milliseconds of a block's 500 ends."""
    began = perf_counter()
    conn.execute(_ENDS, (start, start + BLOCK - 1))
    return (perf_counter() - began) * 1000


def outbox(conn: Connection, table: Table) -> None:
    """A block of ends: without the trigger, with it and no webhook, with a webhook that hears all of them. In turns, for fairness."""
    account = conn.execute("INSERT INTO client_account (name) VALUES ('bench') RETURNING id").fetchall()[0][0]
    conn.execute(
        "INSERT INTO request_client (client_id, kind, request_id, ext_job_id)"
        " SELECT %s, 1, g, gen_random_uuid() FROM generate_series(1, %s) g",
        (account, 4 * ROUNDS * BLOCK),
    )
    conn.execute("ANALYZE request_client")
    bare, idle, told = [], [], []
    for one in range(ROUNDS):
        conn.execute(_TRIGGERS.format("DISABLE"))
        bare.append(ends(conn, 1))
        conn.execute(_TRIGGERS.format("ENABLE"))
        idle.append(ends(conn, 1))
        conn.execute(
            "INSERT INTO webhook (public_id, account_id, url, events, kinds, secret)"
            " VALUES (%s, %s, '', '{request.completed}', '{1}', '\\x00')",
            (f"wh_{one}", account),
        )
        told.append(ends(conn, 1 + one * BLOCK))
        conn.execute("DELETE FROM webhook")
    base = statistics.median(bare)
    table.most("ends of a block, no webhook / no trigger", statistics.median(idle) / base, "x", 1.1, f"{base:.1f} ms")
    table.most("one end told of one webhook", statistics.median(told) / BLOCK * 1000, "us")


def deliveries(conn: Connection, table: Table) -> None:
    """Claim and record in batches, of twenty receivers with a backlog each."""
    from requests_app.states import DeliveryState
    from requests_app.store import webhooks
    from requests_app.store.webhooks import Record

    conn.execute("TRUNCATE webhook_delivery")
    conn.execute(
        "INSERT INTO webhook (public_id, account_id, url, events, kinds, secret)"
        " SELECT 'wh_' || g, a.id, '', '{request.completed}', '{1}', '\\x00' FROM generate_series(1, 20) g, client_account a"
    )
    conn.execute(
        "INSERT INTO webhook_delivery (webhook_id, event, occurred_at)"
        " SELECT w.id, 'webhook.test', clock_timestamp() FROM webhook w, generate_series(1, %s)",
        (DELIVERIES // 20,),
    )
    conn.execute("VACUUM (ANALYZE) webhook_delivery")
    for batch in (16, 100):
        done, statements, began = 0, 0, perf_counter()
        while done < DELIVERIES // 2:
            due = webhooks.claim(conn, "bench", {}, limit=batch, each=max(4, batch // 20), lease_seconds=60.0)
            webhooks.record_deliveries(
                conn, [Record(one.id, one.attempt, DeliveryState.DELIVERED, 200, None, 0.0) for one in due]
            )
            done, statements = done + len(due), statements + 2
        rate = done / (perf_counter() - began)
        table.least(f"claimed and recorded by {batch}", rate, "rows/s", note=f"{statements / done:.3f} statements/row")


def main() -> None:
    """Run everything and print the table; exit code 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="also write the results there")
    options = parser.parse_args()
    table = Table()
    with own_database() as conn:
        conn.execute("SET statement_timeout = 0")
        outbox(conn, table)
        deliveries(conn, table)
        publish(table, options.json)
    leave(table)


if __name__ == "__main__":
    main()
