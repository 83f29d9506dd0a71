"""Thousands of requests that wait for their ciphertexts, all due in one second: nobody ready waits for them, and the gateway is asked
in few requests (issue 3; fhevm_internals 7 measures the original: 250 such requests block it for minutes).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from eth_abi.abi import encode

from requests_app import runtime
from requests_app.store.session import connect
from tests.send.conftest import Context, node, start  # noqa: F401 - fixtures
from tests.send.node import Node
from workers.chain.acl import MULTICALL
from workers.readiness import ReadinessTurn

pytestmark = pytest.mark.django_db(transaction=True)
YES, NO = b"\0" * 31 + b"\1", b"\0" * 32
ALLOWED = "0x" + encode(["bytes[]"], [[YES]]).hex()
INTERVAL = 3.0
CALLS = 50
READY = "ee" * 20  # handles that hold this are ready
_ADD = """
WITH owner AS (INSERT INTO client_account (name) VALUES ('scale') ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING id),
 r AS (INSERT INTO public_decrypt_req (ext_job_id, int_job_id, status, deadline_at)
       SELECT gen_random_uuid(), sha256(gen_random_uuid()::text::bytea), 'queued', clock_timestamp() + interval '1 hour'
         FROM generate_series(1, %(count)s) RETURNING id),
 b AS (INSERT INTO request_payload (kind, request_id, body)
       SELECT 2, id, jsonb_build_object('extra_data', '0x00', 'handles',
                jsonb_build_array('0x' || rpad(%(mark)s || lpad(to_hex(id), 4, '0'), 44, '0') || '0000000000001f490400')) FROM r),
 v AS (INSERT INTO request_client (client_id, kind, request_id, ext_job_id) SELECT owner.id, 2, r.id, gen_random_uuid() FROM owner, r),
 j AS (INSERT INTO queue_job (queue, job_key, kind, subject_id, tenant_id, priority, attempt, visible_at)
       SELECT 'ready', '2/' || r.id, 2, r.id, owner.id, %(priority)s, %(attempt)s,
              clock_timestamp() + make_interval(secs => %(due)s) FROM owner, r)
SELECT id FROM r
"""


@pytest.fixture
def conn(transactional_db: None) -> Iterator[psycopg.Connection[Any]]:
    with connect("worker") as connection:
        yield connection


class Gateway:
    """The stub node's contracts; when each request with readiness views came, and how many views it held."""

    def __init__(self, node: Node) -> None:  # noqa: F811
        self.views = 0
        self.requests: list[float] = []
        self._fresh = threading.local()
        node.on_call, node.on_batch = self.answer, self.batch

    def batch(self, methods: list[str]) -> None:
        self._fresh.request = "eth_call" in methods

    def answer(self, call: dict[str, Any], tag: str) -> str:
        if call["data"].startswith("0x" + MULTICALL.selector.hex()):
            return ALLOWED
        if self._fresh.request:
            self._fresh.request = False
            self.requests.append(time.monotonic())
        self.views += 1
        return "0x" + (YES if READY in call["data"] else NO).hex()

    def busiest_interval(self) -> int:
        """The most requests within INTERVAL seconds."""
        times = sorted(self.requests)
        return max((sum(first <= other < first + INTERVAL for other in times) for first in times), default=0)


def add(
    conn: psycopg.Connection[Any], count: int, *, mark: str = "", deferred: bool = False, due: float = 0.0
) -> list[int]:
    parameters = {
        "count": count,
        "mark": mark,
        "priority": 200 if deferred else 100,
        "attempt": 1 if deferred else 0,
        "due": due,
    }
    return [row[0] for row in conn.execute(_ADD, parameters).fetchall()]


@pytest.fixture
def shifts(start: Callable[..., Context]) -> Iterator[Callable[[], None]]:  # noqa: F811
    """Two shifts of a worker, as one process group runs them."""
    stop = threading.Event()
    threads: list[threading.Thread] = []

    def work(context: Context) -> None:
        turn = ReadinessTurn()
        while not stop.is_set():
            if not turn.run(context):
                stop.wait(0.05)

    def begin() -> None:
        for context in (start(), start()):
            threads.append(threading.Thread(target=work, args=(context,)))
            threads[-1].start()

    yield begin
    stop.set()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("waiting", [1000, pytest.param(5000, marks=pytest.mark.full)])
def test_waiting_requests_delay_nobody_and_cost_few_calls(
    conn: psycopg.Connection[Any],
    node: Node,  # noqa: F811
    shifts: Callable[[], None],
    waiting: int,
) -> None:
    gateway = Gateway(node)
    add(conn, waiting, deferred=True, due=1.0)
    shifts()
    delays = []
    began = time.monotonic()
    while time.monotonic() - began < 1.0 + 2.2 * INTERVAL:
        asked = time.monotonic()
        (new,) = add(conn, 1, mark=READY)
        while conn.execute("SELECT status FROM public_decrypt_req WHERE id = %s", (new,)).fetchone() != ("processing",):
            assert time.monotonic() - asked < 20
            time.sleep(0.005)
        delays.append(time.monotonic() - asked)
        time.sleep(max(0.0, 0.3 - delays[-1]))
    rounds = conn.execute("SELECT min(attempt) - 1, max(attempt) - 1 FROM queue_job WHERE queue = 'ready'").fetchone()
    fresh, calls = sorted(delays), gateway.busiest_interval()
    print(
        f"\n{waiting} waiting: {len(fresh)} new ready requests took {fresh[-1]:.3f} s at most, {fresh[len(fresh) // 2]:.3f} s in the "
        f"middle; {calls} requests to the gateway in the busiest {INTERVAL:.0f} s; {gateway.views} views; rounds {rounds}"
    )
    assert fresh[-1] <= 1.0
    assert calls <= CALLS
    assert rounds is not None
    assert rounds[0] >= 1, "somebody was never asked again"


def test_repeated_checks_keep_to_their_budget_and_new_requests_do_not(
    conn: psycopg.Connection[Any],
    node: Node,  # noqa: F811
    start: Callable[..., Context],  # noqa: F811
) -> None:
    for name, value in (("readiness_calls_per_interval", 2), ("readiness_checks_per_call", 3)):
        runtime.change(conn, name, value, by="shell:test", reason="test")  # of two shifts each may ask once
    gateway, turn, context = Gateway(node), ReadinessTurn(), start()
    add(conn, 6, deferred=True)
    assert [turn.run(context), turn.run(context)] == [3, 0]
    add(conn, 2, mark=READY)
    assert turn.run(context) == 2
    assert (len(gateway.requests), gateway.views) == (2, 5)
    turn._budget._until = 0.0  # the next interval
    assert turn.run(context) == 3


def test_a_deferred_job_goes_on_with_the_usual_priority(
    conn: psycopg.Connection[Any],
    node: Node,  # noqa: F811
    start: Callable[..., Context],  # noqa: F811
) -> None:
    Gateway(node)
    add(conn, 1, deferred=True, mark=READY)
    assert ReadinessTurn().run(start()) == 1
    assert conn.execute("SELECT queue, priority, attempt FROM queue_job").fetchall() == [("send", 100, 0)]
