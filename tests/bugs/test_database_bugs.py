"""Public bug reports about drivers and frameworks (queue_settle 5.4), each test named after its report."""

from __future__ import annotations

import os
from time import monotonic

import psycopg
import pytest
from django.db import connections

from requests_app.store.session import connect
from tests.send.test_settle import requests, statuses
from workers.leases import LeaseKeeper
from workers.settle import SettleTurn
from workers.shift import ShiftContext, TurnLoop, _clients

pytestmark = pytest.mark.django_db(transaction=True)


def test_b54_a_fork_uses_sessions_and_sockets_of_its_own(conn, node, start):
    """django-q 486, django-q2 142, 310: a connection inherited over fork, SSL bad record, the pusher dies."""
    connections["default"].ensure_connection()
    mine = connections["default"].connection.info.backend_pid
    _clients.cache_clear()
    _clients(os.getpid())
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        keeper = LeaseKeeper("child", 10)
        context = ShiftContext("child", keeper, lambda: False)
        answer = f"{context.conn.info.backend_pid} {_clients.cache_info().misses}"
        assert context.clients is not None
        os.write(writer, answer.encode())
        os._exit(0)
    os.waitpid(child, 0)
    pid, _ = os.read(reader, 100).split()
    os.close(reader)
    os.close(writer)
    assert int(pid) != mine
    assert connections["default"].connection.execute("SELECT 1").fetchone()[0] == 1


def test_b56_a_lost_session_costs_a_turn_and_never_a_second_send(conn, node, start):
    """procrastinate 1134, paperless 13363: "connection is closed" inside a long worker, for hours."""
    subjects = requests(conn, 2)
    _clients.cache_clear()
    keeper = LeaseKeeper("loop", 10)
    context = ShiftContext("loop", keeper, lambda: False)
    killed: list[int] = []

    def once(tx):
        if not killed:  # the session ends while the answer is on its way
            killed.append(context.conn.info.backend_pid)
            conn.execute("SELECT pg_terminate_backend(%s)", (killed[0],))

    node.after_send = once
    turn = SettleTurn()
    until = monotonic() + 60
    loop = TurnLoop(context, [turn], 0.01, over=lambda: monotonic() >= until or _all_accepted(conn))
    loop.run()
    loop.close()
    context.close()
    keeper.close()
    _clients.cache_clear()
    assert killed
    assert statuses(conn, subjects) == ["tx_in_flight"] * 2
    assert len(set(node.raws)) == 2
    assert _all_accepted(conn)


def _all_accepted(conn: psycopg.Connection[object]) -> bool:
    rows = conn.execute("SELECT state FROM tx_attempt").fetchall()
    return len(rows) == 2 and all(row == ("accepted",) for row in rows)


def test_b57_only_a_server_that_takes_writes_is_connected_to(conn):
    """gpustack 6105: three days of writing to a demoted primary."""
    with connect("worker") as own:
        assert "target_session_attrs=read-write" in own.info.dsn
    assert connections["default"].get_connection_params()["target_session_attrs"] == "read-write"
