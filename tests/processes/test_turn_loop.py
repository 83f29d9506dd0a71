"""The loop over turns: a turn that fails rests, the others go on, a broken connection is replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from workers.leases import LeaseKeeper
from workers.shift import A_LOT, ShiftContext, TurnLoop

pytestmark = pytest.mark.django_db(transaction=True)


class ScriptedTurn:
    """Runs one step after another; each returns a count or raises."""

    def __init__(self, name: str, *steps: Callable[[ShiftContext], int]) -> None:
        self.name = name
        self.steps = list(steps)
        self.runs = 0
        self.closed = False

    def run(self, context: ShiftContext) -> int:
        self.runs += 1
        return self.steps.pop(0)(context) if self.steps else 0

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def keeper(transactional_db: None) -> Iterator[LeaseKeeper]:
    with closing(LeaseKeeper("loop", 10.0)) as one:
        yield one


def _run(keeper: LeaseKeeper, turns: list[ScriptedTurn], over: Callable[[], bool]) -> int:
    with closing(ShiftContext("loop", keeper, over)) as context:
        loop = TurnLoop(context, turns, 0.001, over=over)
        with closing(loop):
            return loop.run()


def _fail(context: ShiftContext) -> int:
    raise ValueError("a poisoned item")


def test_a_failing_turn_rests_while_the_others_go_on(
    keeper: LeaseKeeper, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.shift._FIRST_REST", 4.0)
    bad = ScriptedTurn("bad", _fail)
    good = ScriptedTurn("good", *[lambda context: 2] * 5)
    assert _run(keeper, [bad, good], over=lambda: not good.steps) == 10
    assert bad.runs == 1, "within the time of five good runs the failed turn was still resting"
    assert bad.closed
    assert good.closed
    (record,) = [record for record in caplog.records if record.name == "relayer.shift"]
    assert record.exc_info is not None


def test_a_failing_turn_comes_back_and_is_forgiven(keeper: LeaseKeeper) -> None:
    turn = ScriptedTurn("t", _fail, _fail, lambda context: 3)
    assert _run(keeper, [turn], over=lambda: not turn.steps) == 3


def test_a_little_work_is_followed_at_a_pace_and_a_lot_at_once(
    keeper: LeaseKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes while a loop rests is one batch: thirty requests a second were thirty transactions."""
    rests: list[tuple[int, float]] = []
    turn = ScriptedTurn("t", *[lambda context, found=found: found for found in (1, A_LOT, 99, 0, 1)])  # type: ignore[misc]
    monkeypatch.setattr("workers.shift.time.sleep", lambda seconds: rests.append((turn.runs, seconds)))
    with closing(ShiftContext("loop", keeper, lambda: False)) as context:
        TurnLoop(context, [turn], 5.0, over=lambda: not turn.steps, pace_seconds=60.0).run()
    assert [run for run, _ in rests] == [1, 3, 4], "none after a lot of work, and none at the end"
    assert all(50 < seconds <= 60 for run, seconds in rests if run != 4)
    assert dict(rests)[4] <= 6, "an idle loop polls"


def test_a_lost_connection_is_replaced(keeper: LeaseKeeper) -> None:
    seen: list[int] = []

    def lose(context: ShiftContext) -> int:
        seen.append(context.conn.info.backend_pid)
        context.conn.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        return 0

    def use(context: ShiftContext) -> int:
        seen.append(context.conn.info.backend_pid)
        return 1

    turn = ScriptedTurn("t", lose, use)
    assert _run(keeper, [turn], over=lambda: not turn.steps) == 1
    assert seen[0] != seen[1]


def test_no_turn_inherits_an_open_transaction(keeper: LeaseKeeper) -> None:
    statuses: list[Any] = []

    def leave_open(context: ShiftContext) -> int:
        context.conn.execute("BEGIN")
        raise ValueError("between BEGIN and COMMIT")

    def look(context: ShiftContext) -> int:
        statuses.append(context.conn.info.transaction_status)
        return 1

    first, second = ScriptedTurn("first", leave_open), ScriptedTurn("second", look)
    _run(keeper, [first, second], over=lambda: not second.steps)
    assert statuses == [psycopg.pq.TransactionStatus.IDLE]


def test_a_turn_that_cannot_close_does_not_keep_the_others_open(keeper: LeaseKeeper) -> None:
    class Stubborn(ScriptedTurn):
        def close(self) -> None:
            raise RuntimeError("no")

    stubborn, other = Stubborn("stubborn"), ScriptedTurn("other")
    _run(keeper, [stubborn, other], over=lambda: other.runs > 0)
    assert other.closed
