"""What readiness admits for the send turn of its own loop: sent in the same round without a second lease, and never kept for nothing."""

from __future__ import annotations

from time import monotonic
from types import SimpleNamespace

import pytest

from requests_app.states import Kind, Status
from requests_app.store import queue
from requests_app.store.intents import SETTLE
from requests_app.store.queue import READY, SEND
from requests_app.store.turns import Board
from tests.send.scenes import add_request
from tests.send.test_readiness import Chains, queued
from workers.sharing import request_turns

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def loop(start, node, monkeypatch):
    """A settle loop that has come round once and holds its signer; `leases` are the queues of its lease statements."""
    Chains(node)
    leases = []
    whole = queue.fetch_all

    def counted(conn, topic, name, params, **parts):
        leases.extend([params["queue"]] if name == "lease_requests" else [])
        return whole(conn, topic, name, params, **parts)

    monkeypatch.setattr(queue, "fetch_all", counted)
    ready, settle = request_turns(Board(READY, SEND, SETTLE))
    scene = SimpleNamespace(context=start(), ready=ready, settle=settle, leases=leases)
    assert (ready.run(scene.context), settle.run(scene.context)) == (0, 0)
    settle.run(scene.context)
    assert settle._handover.room > 0
    return scene


def jobs(conn):
    return conn.execute("SELECT queue, leased_by, visible_at <= clock_timestamp() FROM queue_job").fetchall()


def statuses(conn):
    return [row[0] for row in conn.execute("SELECT status FROM public_decrypt_req ORDER BY id").fetchall()]


def post(conn, loop, count=1):
    for _ in range(count):
        queued(conn)
    loop.ready._board = loop.settle._board = Board(READY, SEND, SETTLE)  # a new one looks at once


def test_what_is_admitted_is_sent_without_another_lease(conn, loop):
    post(conn, loop, 3)
    assert loop.ready.run(loop.context) == 3
    assert jobs(conn) == [("send", loop.context.instance, False)] * 3
    assert loop.settle.run(loop.context) == 3
    assert loop.leases == [READY]
    assert statuses(conn) == ["tx_in_flight"] * 3
    assert jobs(conn) == []


def test_what_waits_in_the_queue_is_sent_beside_it(conn, loop):
    add_request(conn, Kind.INPUT_PROOF, Status.PROCESSING)
    post(conn, loop)
    loop.ready.run(loop.context)
    assert loop.settle.run(loop.context) == 2
    assert loop.leases == [READY, SEND]


def test_more_than_there_is_room_for_goes_into_the_queue(conn, loop):
    loop.settle._handover.room = 1
    post(conn, loop, 2)
    loop.ready.run(loop.context)
    assert jobs(conn) == [("send", None, True)] * 2
    assert loop.settle._handover.take() == []


def test_each_round_of_the_send_turn_gives_room_once(conn, loop):
    loop.settle._handover.room = 2
    post(conn, loop, 2)
    loop.ready.run(loop.context)
    post(conn, loop)
    loop.ready.run(loop.context)
    assert [owner for _, owner, _ in jobs(conn)].count(loop.context.instance) == 2
    assert ("send", None, True) in jobs(conn)


def test_what_no_signer_takes_is_there_for_others_at_once(conn, loop):
    post(conn, loop)
    loop.ready.run(loop.context)
    (lane,) = loop.settle._pool.lanes(loop.context)
    lane.send_at = monotonic() + 60
    assert loop.settle.run(loop.context) == 0
    assert jobs(conn) == [("send", None, True)]
    assert conn.execute("SELECT attempt FROM queue_job").fetchall() == [(0,)], "it was not tried"
    assert statuses(conn) == ["processing"]
    assert loop.settle._handover.room == 0, "it can send nothing"


def test_a_turn_that_fails_keeps_nothing_and_gets_nothing_more(conn, loop, monkeypatch):
    post(conn, loop)
    loop.ready.run(loop.context)
    with monkeypatch.context() as patched:
        patched.setattr(loop.settle, "_work_all", lambda context, lanes: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            loop.settle.run(loop.context)
    assert jobs(conn) == [("send", None, True)]
    post(conn, loop)
    loop.ready.run(loop.context)
    assert jobs(conn) == [("send", None, True)] * 2


def test_a_shift_that_ends_between_the_turns_puts_it_back(conn, loop):
    post(conn, loop)
    loop.ready.run(loop.context)
    loop.settle.close()
    assert jobs(conn) == [("send", None, True)]
