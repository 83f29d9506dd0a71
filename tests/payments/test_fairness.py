"""Leasing in turn: one tenant's heap does not stand before another's job, one priority does not starve another."""

from __future__ import annotations

from itertools import pairwise
from time import monotonic
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from requests_app import sql
from requests_app.states import Kind
from requests_app.store import commands, publish, queue
from requests_app.store import turns as turns_module
from requests_app.store.queue import DEFERRED, READY, SEND, Subject
from requests_app.store.session import connect
from requests_app.store.signing import Fence
from requests_app.store.turns import COMMANDS, NEUTRAL_EVERY, STAGED, Turns

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def conn(transactional_db: None) -> Any:
    with connect("worker") as own:
        yield own


def heap(conn: psycopg.Connection[Any], tenant: int, count: int, *, priority: int = 100, delayed: bool = False) -> None:
    conn.execute(
        "INSERT INTO queue_job (queue, job_key, kind, subject_id, tenant_id, priority, visible_at) "
        "SELECT %s, %s || '/' || g, 4, g, %s, %s, clock_timestamp() + CASE WHEN %s THEN interval '1 hour' ELSE interval '0' END "
        "FROM generate_series(1, %s) g",
        (SEND, f"{tenant}-{priority}-{delayed}", tenant, priority, delayed, count),
    )


def tenants(deliveries: list[queue.Delivery]) -> list[int]:
    return [delivery.tenant_id for delivery in deliveries]


def test_each_tenant_gets_its_share_of_a_batch(conn: psycopg.Connection[Any]) -> None:
    heap(conn, 1, 1000)
    heap(conn, 2, 3)
    heap(conn, 3, 40)
    batch = tenants(queue.lease_jobs(conn, SEND, 30, "w", 30))
    assert {tenant: batch.count(tenant) for tenant in (1, 2, 3)} == {1: 14, 2: 3, 3: 13}


def test_one_tenant_alone_gets_whole_batches_in_the_order_of_enqueueing(conn: psycopg.Connection[Any]) -> None:
    heap(conn, 1, 100)
    known = Turns(SEND)
    first = queue.lease_jobs(conn, SEND, 60, "w", 30, turns=known)
    second = queue.lease_jobs(conn, SEND, 60, "w", 30, turns=known)
    assert [delivery.subject.id for delivery in first + second] == list(range(1, 101))


def test_a_hundred_thousand_jobs_of_one_client_delay_another_by_less_than_a_second(
    conn: psycopg.Connection[Any],
) -> None:
    heap(conn, 1, 100_000)
    known = Turns(SEND)
    queue.lease_jobs(conn, SEND, 100, "w", 30, turns=known)
    queue.enqueue_jobs(conn, SEND, [(Subject(Kind.PAYMENT, 1), 2)])
    asked, batches = monotonic(), 0
    while True:
        batch = queue.lease_jobs(conn, SEND, 100, "w", 30, turns=known)
        batches += 1
        queue.ack_jobs(conn, [delivery.receipt for delivery in batch])
        if 2 in tenants(batch):
            break
    waited = monotonic() - asked
    print(f"waited {waited:.3f} s, {batches} batches of 100 meanwhile")
    assert waited < 1.0


def test_more_tenants_than_turns_all_come_round(conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns_module, "MOST_TURNS", 4)
    for tenant in range(1, 12):
        heap(conn, tenant, 50)
    known, seen = Turns(SEND), set()
    for _ in range(6):
        seen |= set(tenants(queue.lease_jobs(conn, SEND, 8, "w", 30, turns=known)))
    assert seen == set(range(1, 12))


def test_a_truncated_scan_goes_on_where_it_stopped(
    conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns_module, "MOST_PAIRS", 3)
    monkeypatch.setattr(turns_module, "SCAN_SECONDS", 0.0)
    monkeypatch.setattr(turns_module, "SCAN_SHARE", 1.0)
    for tenant in range(1, 9):
        heap(conn, tenant, 5)
    known, seen = Turns(SEND), set()
    for _ in range(4):
        seen |= set(tenants(queue.lease_jobs(conn, SEND, 3, "w", 30, turns=known)))
    assert seen == set(range(1, 9))


def test_who_comes_to_have_jobs_is_found_although_nothing_known_is_looked_at_again(
    conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between, before and behind the known ones, while looking at everything anew is not due yet."""
    monkeypatch.setattr(turns_module, "SCAN_SECONDS", 0.0)
    monkeypatch.setattr(turns_module, "_rest", lambda _: 60.0)
    monkeypatch.setattr(turns_module, "LONGEST_MEMORY_SECONDS", 60.0)
    known, seen = Turns(SEND), []
    for tenant in (20, 40):
        heap(conn, tenant, 100)
    seen.append(set(tenants(queue.lease_jobs(conn, SEND, 6, "w", 30, turns=known))))
    for tenant in (10, 30, 50):
        heap(conn, tenant, 100)
    seen.append(set(tenants(queue.lease_jobs(conn, SEND, 6, "w", 30, turns=known))))
    assert seen == [{20, 40}, {10, 20, 30, 40, 50}]


def test_looking_anew_takes_a_tenth_of_the_time(conn: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes: a busy process goes on with what it knows, and still looks every few seconds."""
    clock = [100.0]
    monkeypatch.setattr(turns_module, "monotonic", lambda: clock[0])
    monkeypatch.setattr(turns_module, "SCAN_SHARE", 0.1)
    heap(conn, 1, 500)
    known, looks = Turns(SEND), []
    find = known._find

    def slow(*asked: Any) -> Any:
        clock[0] += 0.2 if len(asked[1]) == 1 else 0.0
        looks.extend([clock[0]] if len(asked[1]) == 1 else [])
        return find(*asked)

    monkeypatch.setattr(known, "_find", slow)
    for _ in range(100):
        (one,) = queue.lease_jobs(conn, SEND, 1, "w", 30, turns=known)
        queue.nack_jobs(conn, [one.receipt], [0.0])
        clock[0] += 0.1
    assert all(2.0 <= round(later - sooner, 3) <= 2.2 for sooner, later in pairwise(looks)), looks
    assert len(looks) >= 4


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> tuple[list[float], list[list[str]]]:
    """(the clock of the turns, the queues of each look at who has jobs)."""
    clock = [100.0]
    monkeypatch.setattr(turns_module, "monotonic", lambda: clock[0])
    looks: list[list[str]] = []
    find = turns_module._find_pairs

    def counted(conn: Any, queues: list[str], *bounds: Any, around: bool) -> Any:
        looks.append(queues)
        return find(conn, queues, *bounds, around=around)

    monkeypatch.setattr(turns_module, "_find_pairs", counted)
    return clock, looks


def test_one_look_answers_for_all_queues_of_a_board(
    conn: psycopg.Connection[Any], watched: tuple[list[float], list[list[str]]]
) -> None:
    """An idle round is one statement; what was seen for another queue is neither used twice nor later."""
    clock, looks = watched
    board = turns_module.Board(SEND, READY)
    send, ready = board.turns(SEND), board.turns(READY)
    assert not queue.lease_jobs(conn, SEND, 5, "w", 30, turns=send)
    heap(conn, 1, 5)
    assert not queue.lease_jobs(conn, READY, 5, "w", 30, turns=ready)
    assert looks == [[SEND, READY]], "the second queue was answered with the first"
    clock[0] += 1.0
    assert len(queue.lease_jobs(conn, SEND, 5, "w", 30, turns=send)) == 5
    assert not queue.lease_jobs(conn, READY, 5, "w", 30, turns=ready)
    assert len(looks) == 2
    heap(conn, 2, 5)
    clock[0] += 1.0
    assert len(queue.lease_jobs(conn, SEND, 5, "w", 30, turns=send)) == 5
    assert len(looks) == 3


def test_a_look_holds_with_what_this_loop_itself_has_moved(
    conn: psycopg.Connection[Any], watched: tuple[list[float], list[list[str]]]
) -> None:
    """Readiness admits for 50 ms, then its jobs are leased without another look; after a longer time somebody looks again."""
    clock, looks = watched
    board = turns_module.Board(READY, SEND)
    for tenant, wait, expected in ((1, 0.05, 1), (2, 1.0, 3)):
        assert not queue.lease_jobs(conn, READY, 5, "w", 30, turns=board.turns(READY))
        heap(conn, tenant, 5)
        clock[0] += wait
        board.note(SEND, {(100, tenant)})
        assert len(queue.lease_jobs(conn, SEND, 5, "w", 30, turns=board.turns(SEND))) == 5
        assert len(looks) == expected
        clock[0] += 10.0


def test_a_look_around_tells_of_publications_and_commands(
    conn: psycopg.Connection[Any], watched: tuple[list[float], list[list[str]]]
) -> None:
    """What it did not find need not be asked for; what it found, or has not looked for lately, must be."""
    clock, _ = watched
    board, alone = turns_module.Board(READY, SEND, around=True), turns_module.Board(READY)

    def look(at: turns_module.Board) -> list[bool]:
        clock[0] += 10.0
        assert not queue.lease_jobs(conn, READY, 5, "w", 30, turns=at.turns(READY))
        return [at.found_none(what, 0.5) for what in (STAGED, COMMANDS)]

    assert not board.found_none(COMMANDS, 1e9), "nobody has looked yet"
    assert look(board) == [True, True]
    assert look(alone) == [False, False], "it looks at its queues only"
    account = conn.execute("INSERT INTO client_account (name) VALUES ('p') RETURNING id").fetchone()
    publish.stage(conn, uuid4(), account[0], b"topic", b"payload", None)
    assert look(board) == [False, True]
    conn.execute("UPDATE staged_envelope SET parked_at = clock_timestamp(), error = 'e'")
    order = commands.NewCommand("c", commands.CommandKind.HITL, Kind.USER_DECRYPT, 1, commands.SINGLETON, "ann")
    commands.enqueue(conn, order)
    assert look(board) == [True, False]
    commands.claim(conn, Fence(commands.SINGLETON, "one", 1), ["c"])
    assert look(board) == [True, True], "somebody is at it"
    clock[0] += 1.0
    assert not board.found_none(STAGED, 0.5), "the last look is too long ago"


def test_priority_comes_first_and_every_tenth_claim_is_neutral(conn: psycopg.Connection[Any]) -> None:
    heap(conn, 1, 1000, priority=0)
    heap(conn, 1, 1000, priority=100)
    known = Turns(SEND)
    kinds = []
    for _ in range(NEUTRAL_EVERY):
        ids = [delivery.receipt.job_id for delivery in queue.lease_jobs(conn, SEND, 10, "w", 30, turns=known)]
        rows = conn.execute("SELECT count(*) FILTER (WHERE priority = 100) FROM queue_job WHERE id = ANY(%s)", (ids,))
        kinds.append(rows.fetchone()[0])
    assert kinds[:-1] == [0] * (NEUTRAL_EVERY - 1)
    assert kinds[-1] == 5


def test_deferred_jobs_come_last_even_then(conn: psycopg.Connection[Any]) -> None:
    heap(conn, 1, 500, priority=DEFERRED)
    heap(conn, 1, 500, priority=100)
    known = Turns(SEND)
    for _ in range(NEUTRAL_EVERY):
        ids = [delivery.receipt.job_id for delivery in queue.lease_jobs(conn, SEND, 10, "w", 30, turns=known)]
        row = conn.execute("SELECT max(priority) FROM queue_job WHERE id = ANY(%s)", (ids,)).fetchone()
        assert row == (100,)


def test_jobs_put_off_are_walked_over_once_a_scan(conn: psycopg.Connection[Any]) -> None:
    """The watermark: between two scans a claim begins at the tenant's own last claim, not at 20,000 jobs that wait."""
    heap(conn, 1, 20_000, delayed=True)
    heap(conn, 1, 400)
    conn.execute("ANALYZE queue_job")
    known = Turns(SEND)
    first = queue.lease_jobs(conn, SEND, 10, "w", 30, turns=known)
    (turn,) = known.known(conn, DEFERRED)
    assert turn.low == min(delivery.receipt.job_id for delivery in first)
    assert turn.low > 20_000


def test_an_expired_lease_below_the_watermark_is_found_by_the_next_scan(conn: psycopg.Connection[Any]) -> None:
    heap(conn, 1, 100)
    known = Turns(SEND)
    (early,) = queue.lease_jobs(conn, SEND, 1, "dies", 30, turns=known)
    queue.lease_jobs(conn, SEND, 20, "w", 30, turns=known)
    conn.execute("UPDATE queue_job SET visible_at = clock_timestamp() WHERE id = %s", (early.receipt.job_id,))
    until, again = monotonic() + 60, False
    while monotonic() < until and not again:
        batch = queue.lease_jobs(conn, SEND, 1, "w", 30, turns=known)
        again = early.receipt.job_id in [delivery.receipt.job_id for delivery in batch]
        queue.nack_jobs(conn, [one.receipt for one in batch if not again], [0.0] * (0 if again else len(batch)))
    assert again


@pytest.mark.parametrize("turns", [1, 2])
@pytest.mark.parametrize("name", ["lease_jobs", "lease_requests"])
def test_statistics_of_an_empty_queue_do_not_make_a_lease_slow(
    conn: psycopg.Connection[Any], name: str, turns: int
) -> None:
    """After a burst the table is large and analysed as all but empty: the planner then reads every row to find a hundred."""
    heap(conn, 1, 50_000)
    conn.execute("DELETE FROM queue_job")
    heap(conn, 9, 5)
    conn.execute("VACUUM ANALYZE queue_job")
    heap(conn, 1, 50_000)
    known = Turns(SEND)
    claim, parameters = known.claim(known.known(conn, DEFERRED)[:turns], 100, DEFERRED)
    text = sql.statement("queue", name, claim=claim, leased=sql.statement("queue", "leased"))
    parameters |= {"owner": "w", "seconds": 30.0}
    plan = "\n".join(row[0] for row in conn.execute(f"EXPLAIN {text}", parameters))
    assert "Seq Scan on queue_job" not in plan
    assert "Bitmap" not in plan
    assert "queue_job_claim" in plan
