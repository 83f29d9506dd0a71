"""Shares of every extraData version: the threshold is the context's, a failed look-up delays, nothing is dropped (fhevm_http 13.5, 13.6).

The same over a devnet with real contexts: tests/wire/test_20_3_unified.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from requests_app.states import Kind
from requests_app.store.answers import unresolved_thresholds
from requests_app.store.session import connect
from requests_app.transitions.answers import resolve_thresholds
from tests.listen import world
from tests.listen.world import Ours, applier, record, requested, sent, share, status
from workers.chain.rpc_errors import RpcError, RpcUnavailable
from workers.thresholds import FRESH_SECONDS, RETRY_SECONDS, Thresholds

CONTEXT = (7 << 248) + 1
EPOCH = (8 << 248) + 1
VERSIONS = {
    0: b"\x00",
    1: b"\x01" + CONTEXT.to_bytes(32, "big"),
    2: b"\x02" + CONTEXT.to_bytes(32, "big") + EPOCH.to_bytes(32, "big"),
}


@pytest.fixture
def log(transactional_db: None) -> Iterator[psycopg.Connection]:
    with connect("worker") as conn:
        world.clean(conn)
        yield conn
        conn.execute("TRUNCATE envelope_meta, envelope_blob")


def stored(log: psycopg.Connection, one: Ours) -> int:
    found = log.execute("SELECT count(*) FROM user_decrypt_share WHERE gw_reference_id = %s", (one.ref,)).fetchone()
    assert found is not None
    return int(found[0])


@pytest.mark.parametrize(("version", "threshold"), [(0, 9), (1, 5), (2, 5)])
def test_each_version_completes_at_its_own_threshold(log: psycopg.Connection, version: int, threshold: int) -> None:
    asked: list[int] = []

    def look_up(context: int) -> int:
        asked.append(context)
        return 5

    (one,) = sent(log, Kind.USER_DECRYPT)
    shares = [share(one.ref, n, (2 + n, 0), extra=VERSIONS[version]) for n in range(threshold)]
    work = applier(look_up)
    record(log, 1, threshold, [requested(one, (1, 0)), *shares[:-1]])
    work.catch_up(log)
    assert status(log, one) == "receipt_received"
    record(log, threshold + 1, threshold + 1, shares[-1:])
    work.catch_up(log)
    assert status(log, one) == "completed"
    assert asked == ([] if version == 0 else [CONTEXT])


@pytest.mark.parametrize("error", [RpcUnavailable("down", sent=False), RpcError(3, "execution reverted")])
def test_a_failed_look_up_delays_and_keeps_every_share(log: psycopg.Connection, error: Exception) -> None:
    def fails(context: int) -> int:
        raise error

    (one,) = sent(log, Kind.USER_DECRYPT)
    record(log, 1, 2, [requested(one, (1, 0)), *[share(one.ref, n, (2, n), extra=VERSIONS[1]) for n in range(6)]])
    applier(fails).catch_up(log)
    assert (status(log, one), stored(log, one)) == ("receipt_received", 6)
    (waiting,) = unresolved_thresholds(log, 10)
    assert bytes(waiting.extra_data) == VERSIONS[1]
    assert resolve_thresholds(log, {one.ref: 6}) == 1
    assert status(log, one) == "completed"


def test_a_share_of_an_unknown_version_does_not_hide_what_the_others_say(log: psycopg.Connection) -> None:
    def fails(context: int) -> int:
        raise RpcUnavailable("down", sent=False)

    (one,) = sent(log, Kind.USER_DECRYPT)
    odd = [
        share(one.ref, n, (2, n), extra=extra) for n, extra in enumerate([b"\x09", b"\x01\x07", b"\x02" + b"\x07" * 5])
    ]
    good = [share(one.ref, n, (2, n), extra=VERSIONS[2]) for n in range(3, 6)]
    record(log, 1, 2, [requested(one, (1, 0)), *odd, *good])
    applier(fails).catch_up(log)
    assert stored(log, one) == 6
    (waiting,) = unresolved_thresholds(log, 10)
    assert bytes(waiting.extra_data) == VERSIONS[2]


def test_a_request_that_has_ended_is_no_longer_asked_about(log: psycopg.Connection) -> None:
    (one,) = sent(log, Kind.USER_DECRYPT)
    record(log, 1, 2, [requested(one, (1, 0)), share(one.ref, 0, (2, 0), extra=VERSIONS[1])])
    applier(None).catch_up(log)
    assert len(unresolved_thresholds(log, 10)) == 1
    log.execute("UPDATE user_decrypt_req SET status = 'timed_out', completed_at = clock_timestamp()")
    assert unresolved_thresholds(log, 10) == []


def test_an_answer_is_kept_for_a_while_and_a_failure_is_not() -> None:
    now, asked, answers = (
        [0.0],
        [0],
        iter([RpcUnavailable("down", sent=False), 4, 6, RpcUnavailable("down", sent=False)]),
    )

    def look_up(context: int) -> int:
        asked[0] += 1
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    found = Thresholds(9, look_up, clock=lambda: now[0])

    def ask() -> int | None:
        found.prepare([VERSIONS[1]])
        return found.known(VERSIONS[1])

    assert ask() is None
    now[0] += RETRY_SECONDS
    assert [ask(), ask(), asked[0]] == [4, 4, 2]
    now[0] += FRESH_SECONDS
    assert [ask(), asked[0]] == [6, 3]  # governance changed it
    now[0] += FRESH_SECONDS
    assert [ask(), asked[0]] == [6, 4]  # silent: the last answer stands
