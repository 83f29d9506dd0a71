"""Appliers that learn about the same references at the same time (engine_spike T1 to T3; acceptance: 1,000 rounds)."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from requests_app.states import Kind
from requests_app.store.answers import RequestSeen, Share
from requests_app.store.session import connect, retry_serialization
from requests_app.transitions import answers
from requests_app.transitions.answers import Facts
from tests.listen import world
from tests.waiting import wait_until

THRESHOLD = 9
ROUNDS = 1000
LOST = """
  SELECT count(*) FROM gateway_ref g JOIN user_decrypt_req r ON r.id = g.request_id
   WHERE g.n >= g.threshold AND r.status <> 'completed'"""
Connection = psycopg.Connection[Any]


def shares(one: world.Ours, indexes: range) -> list[Share]:
    return [Share(one.ref, n, b"x", b"s", b"", b"t" * 32, n, THRESHOLD) for n in indexes]


def receipt(one: world.Ours) -> RequestSeen:
    return RequestSeen(one.ref, Kind.USER_DECRYPT, one.tx_hash, 1, b"b" * 32)


def apply(conn: Connection, facts: Facts) -> None:
    def work() -> None:
        with conn.transaction():
            answers.advance(conn, facts, answers.absorb(conn, facts))

    retry_serialization(work)


@pytest.fixture
def trio(log: Connection) -> Iterator[list[Connection]]:
    found = [connect("worker", name=f"applier{n}") for n in range(3)]
    yield found
    for conn in found:
        conn.close()


def test_disjoint_halves_and_receipts_a_thousand_times(log: Connection, trio: list[Connection]) -> None:
    """Two appliers store disjoint halves of the shares, a third the receipts, all at once: every row completes.

    Nothing is applied a second time before the count: a repair would hide what was lost (T3).
    """
    ours = world.sent(log, Kind.USER_DECRYPT, 2 * ROUNDS)
    barrier = threading.Barrier(3, timeout=120)
    failures: list[BaseException] = []

    def worker(conn: Connection, pages: list[Facts]) -> None:
        try:
            for facts in pages:
                barrier.wait()
                apply(conn, facts)
        except BaseException as error:
            failures.append(error)
            barrier.abort()

    dice = random.Random(1)
    pages: list[list[Facts]] = [[], [], []]
    for start in range(0, len(ours), 2):
        pair = ours[start : start + 2]
        dice.shuffle(pair)
        pages[0].append(Facts(shares=[item for one in pair for item in shares(one, range(7))]))
        pages[1].append(Facts(shares=[item for one in pair[::-1] for item in shares(one, range(7, 13))]))
        pages[2].append(Facts(requests=[receipt(one) for one in pair]))
    threads = [threading.Thread(target=worker, args=args) for args in zip(trio, pages, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=240)
    assert failures == []
    assert log.execute(LOST).fetchone() == (0,)
    assert log.execute("SELECT count(*) FROM user_decrypt_req WHERE status='completed'").fetchone() == (2 * ROUNDS,)
    assert log.execute("SELECT min(n), max(n) FROM gateway_ref").fetchone() == (13, 13)
    assert log.execute("SELECT verb, count(*) FROM req_transition GROUP BY 1 ORDER BY 1").fetchall() == [
        ("complete", 2 * ROUNDS), ("record_receipt", 2 * ROUNDS)
    ]  # fmt: skip


def behind(
    log: Connection, first: Connection, second: Connection, ahead: Callable[[], Any], late: Callable[[], Any]
) -> None:
    """Run `ahead` on `first` in an open transaction, start `late` on `second` so that it waits for it, then commit."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            late()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    with first.transaction():
        ahead()
        thread.start()
        blocked = "SELECT cardinality(pg_blocking_pids(%s)) > 0"
        wait_until(
            lambda: log.execute(blocked, (second.info.backend_pid,)).fetchone()[0], 60, "the second applier to wait"
        )
    thread.join(timeout=60)
    assert failures == []


def ours_now(conn: Connection, facts: Facts) -> None:
    answers.advance(conn, facts, answers.absorb(conn, facts))


def lost(log: Connection) -> int:
    return int(log.execute(LOST).fetchone()[0])


@pytest.mark.parametrize("order", ["shares, shares", "receipt, shares", "shares, receipt"])
def test_the_second_applier_completes_what_the_first_could_not_see(
    log: Connection, trio: list[Connection], order: str
) -> None:
    first, second, _ = trio
    (one,) = world.sent(log, Kind.USER_DECRYPT)
    named = Facts(requests=[receipt(one)])
    if order == "shares, shares":
        apply(first, named)
        early, late = Facts(shares=shares(one, range(5))), Facts(shares=shares(one, range(5, 9)))
    else:
        early, late = named, Facts(shares=shares(one, range(9)))
    if order == "shares, receipt":
        early, late = late, early
    behind(log, first, second, lambda: ours_now(first, early), lambda: apply(second, late))
    assert lost(log) == 0
    assert world.status(log, one) == "completed"


# The mutations of T1 and T2: the same interleavings lose the row, so the tests above can fail.
ONE_STATEMENT = """
  WITH a AS MATERIALIZED (SELECT %(ref)s::bytea AS ref, i FROM generate_series(%(lo)s::int, %(hi)s::int) i),
   ins AS (INSERT INTO user_decrypt_share (gw_reference_id, share_index, share, kms_signature, extra_data, tx_hash, position)
     SELECT ref, i, 'x', 's', '', 't', i FROM a ON CONFLICT DO NOTHING RETURNING gw_reference_id),
   g AS (INSERT INTO gateway_ref AS x (gw_reference_id, n, threshold, kind) SELECT %(ref)s, count(*), 9, 1 FROM ins
     ON CONFLICT (gw_reference_id) DO UPDATE SET n = x.n + excluded.n, threshold = coalesce(x.threshold, excluded.threshold)
     RETURNING gw_reference_id, n, threshold, request_id)
  UPDATE user_decrypt_req r SET status = 'completed', completed_at = clock_timestamp() FROM g WHERE {join} AND {enough} AND {guard}"""
GUARD = "r.status = 'receipt_received'"
BY_COUNTER, BY_COLUMN = "r.id = g.request_id", "r.gw_reference_id = g.gw_reference_id"
COUNTED = "g.n >= g.threshold"
RECOUNTED = "(SELECT count(*) FROM user_decrypt_share s WHERE s.gw_reference_id = g.gw_reference_id) + (SELECT count(*) FROM ins) >= 9"


@pytest.mark.parametrize(
    ("join", "enough", "early", "losses"),
    [
        (BY_COUNTER, COUNTED, "receipt", 1),  # T1: guard judged on the snapshot from before the wait
        (BY_COLUMN, COUNTED, "receipt", 1),  # T2: the old version carries no reference yet
        (BY_COUNTER, RECOUNTED, "shares", 1),  # T2: count(*) does not see what the other one inserted
        (BY_COUNTER, COUNTED, "shares", 0),  # the counter row, without a wait for the receipt, is right
    ],
)
def test_mutations_lose_completions(
    log: Connection, trio: list[Connection], join: str, enough: str, early: str, losses: int
) -> None:
    first, second, _ = trio
    (one,) = world.sent(log, Kind.USER_DECRYPT)
    statement = ONE_STATEMENT.format(join=join, enough=enough, guard=GUARD)
    if early == "receipt":
        ahead: Callable[[], Any] = lambda: ours_now(first, Facts(requests=[receipt(one)]))  # noqa: E731
        span = (0, 8)
    else:
        apply(first, Facts(requests=[receipt(one)]))
        ahead = lambda: first.execute(statement, {"ref": one.ref, "lo": 0, "hi": 4})  # noqa: E731
        span = (5, 8)
    behind(log, first, second, ahead, lambda: second.execute(statement, {"ref": one.ref, "lo": span[0], "hi": span[1]}))
    assert lost(log) == losses
