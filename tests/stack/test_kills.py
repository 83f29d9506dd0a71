"""kill -9 of each process in turn while 200 requests are in flight: all complete, each with exactly one request event.

A kill counts only when at least 20 rows are in processing and 20 in tx_in_flight at that moment. To make that moment last, blocks
come every second and each signer may have only a few transactions under way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any

import psutil
import pytest

from tests.stack.harness import Stack, kill, poll
from workers.devnet.traffic import FORMS, Form, Traffic

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]

REQUESTS = 200
IN_FLIGHT, USUAL = 24, 256
MIX: list[Form] = [FORMS[number % len(FORMS)] for number in range(REQUESTS)]


@pytest.fixture(scope="module", autouse=True)
def slow_chain(stack: Stack) -> None:
    """One block a second from here on: a pace below a second can only be given at the start."""
    stack.rpc.call("evm_setIntervalMining", 1)


@pytest.fixture(autouse=True)
def small_windows(stack: Stack) -> Iterator[None]:
    """Until the kill."""
    _limit(stack, IN_FLIGHT)
    yield
    _limit(stack, USUAL)


def _limit(stack: Stack, in_flight: int) -> bool:
    with stack.database() as conn:
        conn.execute("UPDATE signer SET max_inflight = %s", (in_flight,))
    return True


def settle_parent(stack: Stack) -> psutil.Process:
    return stack.first("relayer_cluster", "settle")


def sentinel(stack: Stack) -> psutil.Process:
    (found,) = settle_parent(stack).children()
    return found


def busy_pids(stack: Stack) -> set[int]:
    """The processes that work the settle cluster's slots now."""
    with stack.database() as conn:
        rows = conn.execute(
            "SELECT pid FROM worker_beat WHERE resource LIKE 'shift:settle%' AND at > clock_timestamp() - interval '5 seconds'"
        )
        return {row[0] for row in rows}


def busy_worker(stack: Stack) -> psutil.Process:
    workers = {child.pid: child for child in sentinel(stack).children()}
    return next(workers[pid] for pid in busy_pids(stack) if pid in workers)


def idle_worker(stack: Stack) -> psutil.Process:
    """Sentinel starts its workers first, so the idle one is among the three oldest children."""
    children = sorted(sentinel(stack).children(), key=lambda child: child.create_time())
    return next(child for child in children[:3] if child.pid not in busy_pids(stack))


def database_backend(stack: Stack) -> psutil.Process:
    """The server process behind the connection of a shift: its death makes PostgreSQL restart everything."""
    with stack.database() as conn:
        row = conn.execute(
            "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'relayer-%settle%' ORDER BY pid LIMIT 1"
        ).fetchone()
    assert row is not None
    return psutil.Process(row[0])


VICTIMS: dict[str, Callable[[Stack], psutil.Process]] = {
    "web": lambda stack: stack.first("relayer_site.web"),
    "q2 parent of settle": settle_parent,
    "q2 parent of sweep": lambda stack: stack.first("relayer_cluster", "sweep"),
    "sentinel": sentinel,
    "busy worker": busy_worker,
    "idle worker": idle_worker,
    "listener": lambda stack: stack.first("relayer_listener"),
    "watchdog": lambda stack: stack.first("relayer_watchdog"),
    "kms bots": lambda stack: stack.first("workers.devnet", "kms"),
    "coprocessor bots": lambda stack: stack.first("workers.devnet", "coprocessors"),
    "postgresql backend": database_backend,
}


@pytest.mark.parametrize("victim", VICTIMS)
def test_all_200_complete_with_one_request_event_each(stack: Stack, traffic: Traffic, victim: str) -> None:
    submissions = traffic.build(MIX)
    start = stack.block() + 1
    job_ids: list[str] = []
    posting = Thread(target=lambda: job_ids.extend(stack.post_all(submissions)))
    posting.start()
    at_kill = poll(lambda: _busy_moment(stack), 90, "20 in processing and 20 in flight")
    process = VICTIMS[victim](stack)
    kill(process)
    poll(lambda: _limit(stack, USUAL), 60, "the database, where it was the victim")  # the moment has been
    posting.join(90)
    assert len(job_ids) == len(set(job_ids)) == REQUESTS
    rows = stack.wait_final(job_ids, 180)
    print(f"{victim}: pid {process.pid} killed with {at_kill}; {len(rows)} final")
    assert {row.status for row in rows} == {"completed"}, [row for row in rows if row.status != "completed"]
    _one_event_each(stack, rows, start)
    poll(lambda: _whole_again(stack, process.pid), 90, "every process back without a hand")


def _busy_moment(stack: Stack) -> dict[str, int] | None:
    with stack.database() as conn:
        row = conn.execute(
            "SELECT sum((status = 'processing')::int)::int, sum((status = 'tx_in_flight')::int)::int FROM ("
            "SELECT status FROM user_decrypt_req UNION ALL SELECT status FROM public_decrypt_req"
            " UNION ALL SELECT status FROM input_proof_req) r"
        ).fetchone()
    assert row is not None
    processing, in_flight = row[0] or 0, row[1] or 0
    return {"processing": processing, "tx_in_flight": in_flight} if min(processing, in_flight) >= 20 else None


def _one_event_each(stack: Stack, rows: list[Any], start: int) -> None:
    events = stack.request_events(start)
    ids = [bytes.fromhex(event["topics"][1][2:]) for event in events]
    assert len(ids) == len(set(ids)) == REQUESTS
    assert set(ids) == {row.gw_reference_id for row in rows}
    assert {bytes.fromhex(event["transactionHash"][2:]) for event in events} == {row.gw_req_tx_hash for row in rows}


def _whole_again(stack: Stack, dead: int) -> bool:
    """Both clusters beat, everything that was there is there again, under another process id."""
    needed = [
        ("relayer_site.web",),
        ("relayer_cluster", "settle"),
        ("relayer_cluster", "sweep"),
        ("relayer_listener",),
        ("relayer_watchdog",),
        ("workers.devnet", "kms"),
        ("workers.devnet", "coprocessors"),
    ]
    found = [stack.find(*words) for words in needed]
    with stack.database() as conn:
        row = conn.execute(
            "SELECT count(*) FROM worker_beat WHERE resource LIKE 'shift:%' AND at > clock_timestamp() - interval '2 seconds'"
            " AND turn_at > clock_timestamp() - interval '3 seconds'"
        ).fetchone()
    assert row is not None
    return all(found) and dead not in {process.pid for group in found for process in group} and row[0] >= 4
