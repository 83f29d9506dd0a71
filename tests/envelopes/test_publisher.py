"""The publisher: order, one transaction, poison parked, stops at once, nothing lost whenever it ends."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from time import monotonic, time_ns
from typing import Any

import psycopg
import pytest

from requests_app.errors import RelayerError
from requests_app.store import publish
from requests_app.store.publish import NotAPublisher
from requests_app.store.session import connect
from requests_app.store.sqlstates import is_permanent
from tests.envelopes import scene
from tests.envelopes.scene import PUBLISHER, Connection
from workers import publisher
from workers.publisher import Outcome, PublishTurn
from workers.shift import ShiftContext, TurnLoop


class Context:
    """What a turn sees of its shift."""

    def __init__(self, conn: Connection, *, stop: bool = False) -> None:
        self.conn, self.stop = conn, stop

    def stopping(self) -> bool:
        return self.stop


def run(conn: Connection, batch: int = 100) -> int:
    return PublishTurn(PUBLISHER, batch=batch).run(Context(conn))  # type: ignore[arg-type]


def payloads(conn: Connection) -> list[bytes]:
    return [
        row[0]
        for row in conn.execute(
            "SELECT payload FROM envelope_blob WHERE source_id = %s ORDER BY position", (PUBLISHER,)
        )
    ]


def parked(conn: Connection) -> list[tuple[bytes, str]]:
    return conn.execute(
        "SELECT payload, error_class FROM staged_envelope WHERE parked_at IS NOT NULL ORDER BY id"
    ).fetchall()


@pytest.fixture
def payer(log: Connection) -> int:
    return scene.account(log)


def test_staged_envelopes_enter_the_log_in_order(log: Connection, payer: int) -> None:
    for n in range(7):
        scene.stage(log, payer, bytes([n]), topic=b"t%d" % n)
    assert run(log, batch=3) == 7
    assert scene.stored(log, PUBLISHER) == list(range(1, 8))
    assert payloads(log) == [bytes([n]) for n in range(7)]
    assert log.execute("SELECT count(*) FROM staged_envelope").fetchone() == (0,)
    assert log.execute("SELECT array_agg(position ORDER BY position) FROM published_envelope").fetchone() == (
        list(range(1, 8)),
    )
    assert [row[3] for row in scene.usage(log)] == [7]
    assert scene.congestion(log, PUBLISHER) == 7
    assert log.execute("SELECT DISTINCT expires_at FROM envelope_meta").fetchall() == [(None,)]


def test_poison_item_is_parked(log: Connection, payer: int, poison: None) -> None:
    """R-3, R-28: item 3 of 5: the others are published, it is parked once with its reason; a restart repeats nothing."""
    for payload in (b"1", b"2", b"bad", b"4", b"5"):
        scene.stage(log, payer, payload)
    assert run(log) == 5
    assert payloads(log) == [b"1", b"2", b"4", b"5"]
    assert scene.stored(log, PUBLISHER) == [1, 2, 3, 4]
    assert parked(log) == [(b"bad", "NumericValueOutOfRange")]
    assert run(log) == 0
    assert [row[3] for row in scene.usage(log)] == [4]


def test_rules_of_the_log_are_permanent(log: Connection, payer: int, settings: Any) -> None:
    """R-14, R-16: what is invalid parks before the log is asked; nothing else waits for it."""
    settings.ENVELOPE_MAX_PAYLOAD_BYTES = 10
    gone = scene.account(log)
    scene.stage(log, payer, b"expired", expires=datetime.now(UTC) - timedelta(seconds=1))
    scene.stage(log, payer, b"topic", topic=b"t" * 129)
    scene.stage(log, payer, b"empty", topic=b"")
    scene.stage(log, payer, b"long" * 9)
    scene.stage(log, gone, b"gone")
    scene.stage(log, payer, b"good")
    log.execute("UPDATE client_account SET status = 'disabled' WHERE id = %s", (gone,))
    assert run(log) == 6
    assert payloads(log) == [b"good"]
    assert {kind for _, kind in parked(log)} == {"NotPublishable"}
    assert len(parked(log)) == 5


def test_parked_publications_try_again_by_command(log: Connection, payer: int) -> None:
    staged = scene.stage(log, payer, b"x", topic=b"")
    run(log)
    log.execute("UPDATE staged_envelope SET topic = 'now good'")
    assert publish.parked_ids(log) == [staged]
    assert publish.unpark(log, staged) == 1
    assert run(log) == 1
    assert payloads(log) == [b"x"]


def test_transient_never_parked(log: Connection, payer: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-3, R-13, R-14: raised to the loop, which rests; after recovery everything is published."""
    scene.stage(log, payer, b"1")

    def refuse(*_: Any, **__: Any) -> None:
        raise psycopg.errors.DiskFull("no space")

    with monkeypatch.context() as patch:
        patch.setattr(publisher, "append", refuse)
        for _ in range(3):
            with pytest.raises(psycopg.errors.DiskFull):
                run(log)
    assert parked(log) == []
    assert run(log) == 1


def test_a_killed_backend_loses_nothing(log: Connection, payer: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-13: the connection dies between two statements; the item is published by the next run, not parked."""
    scene.stage(log, payer, b"1")
    with connect("worker") as doomed:
        real = publish.lock_staged

        def die(conn: Connection, ids: Any) -> Any:
            log.execute("SELECT pg_terminate_backend(%s)", (doomed.info.backend_pid,))
            return real(conn, ids)

        with monkeypatch.context() as patch:
            patch.setattr(publish, "lock_staged", die)
            with pytest.raises(psycopg.OperationalError):
                run(doomed)
    assert parked(log) == []
    assert run(log) == 1


STATES = {
    "22001": True, "22003": True, "22021": True, "23502": True, "23503": True, "23505": True, "23514": True, "42601": True,
    "42703": True, "42P01": True, "55000": True, "40001": False, "40P01": False, "40003": False, "08000": False, "08001": False,
    "08003": False, "08006": False, "08007": False, "57P01": False, "57P02": False, "57P03": False, "53300": False,
    "53200": False, "53100": False, "55P03": False, "57014": False, "25P03": False,
}  # fmt: skip


@pytest.mark.parametrize(("state", "permanent"), STATES.items())
def test_sqlstate_table(state: str, permanent: bool) -> None:
    """R-13: by code; what is not known to be permanent is transient."""
    error = psycopg.errors.lookup(state)("text says permanent deadlock timeout")
    assert is_permanent(error) is permanent


def test_other_errors() -> None:
    """R-14: a rule of ours is permanent; an exception that nobody expected, a time-out or I/O is not."""
    assert is_permanent(RelayerError("no"))
    for error in (ValueError("x"), TimeoutError(), OSError(), psycopg.OperationalError("lost"), KeyError("x")):
        assert not is_permanent(error)


def test_no_classification_by_text() -> None:
    """R-14: no substring matching on error texts where outcomes are decided."""
    from pathlib import Path

    root = Path(__file__).parents[2]
    for name in (
        "requests_app/store/sqlstates.py",
        "requests_app/store/bands.py",
        "requests_app/store/appending.py",
        "workers/publisher.py",
        "workers/replay.py",
    ):
        text = (root / name).read_text()
        assert "in str(error" not in text
        assert "args[0]" not in text


def test_told_to_stop_it_begins_nothing(log: Connection, payer: int) -> None:
    """R-1, R-4: STOPPED is neither success nor failure, and leaves the database untouched."""
    scene.stage(log, payer)
    turn = PublishTurn(PUBLISHER)
    context: Any = Context(log, stop=True)
    assert turn.run(context) == 0
    assert set(turn.publish(context, publish.next_staged(log, 10)).values()) == {Outcome.STOPPED}
    assert scene.stored(log, PUBLISHER) == []


def loop(turn: Any, stop: threading.Event) -> TurnLoop:
    class Leases:
        def turned(self) -> None: ...

    context = ShiftContext("test", Leases(), stop.is_set)  # type: ignore[arg-type]
    return TurnLoop(context, [turn], 0.02, over=stop.is_set)


class Clock:
    """Time that passes only while the loop sleeps: no stall of the machine looks like a rest. Stop is set at `told`."""

    def __init__(self, told: float, stop: threading.Event) -> None:
        self.now, self.sleeps, self._told, self._stop = 0.0, 0, told, stop

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.sleeps, self.now = self.sleeps + 1, self.now + seconds
        if self.now >= self._told:
            self._stop.set()

    time_ns = staticmethod(time_ns)


class Failing:
    """A turn whose every attempt fails for a passing reason."""

    name = "publish"

    def __init__(self, clock: Clock) -> None:
        self.at: list[float] = []
        self._clock = clock

    def run(self, context: Any) -> int:
        self.at.append(self._clock.now)
        raise psycopg.OperationalError("away")

    def close(self) -> None: ...


def test_stop_during_permanent_db_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """R-1, R-2: growing rests, few attempts, no tight loop; after Stop it ends within a second with at most one attempt more."""
    stop, told = threading.Event(), 1.5
    clock = Clock(told, stop)
    turn = Failing(clock)
    monkeypatch.setattr("workers.shift.monotonic", clock.monotonic)
    monkeypatch.setattr("workers.shift.time", clock)
    loop(turn, stop).run()
    assert told <= clock.now < told + 1
    attempts = sum(at < told for at in turn.at)
    assert len(turn.at) - attempts <= 1
    assert 3 <= attempts <= 8
    assert clock.sleeps <= 1.5 * told / 0.02
    rests = [later - earlier for earlier, later in pairwise(turn.at)]
    assert all(later > earlier for earlier, later in pairwise(rests))


@pytest.mark.parametrize("name", ["PUBLISH_POLL_SECONDS", "SHIFT_POLL_SECONDS", "PUBLISH_WAIT_SECONDS"])
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_zero_backoff_rejected(settings: Any, name: str, value: float) -> None:
    """R-2: the settings check refuses a zero, negative or undefined pause."""
    from relayer_site.checks import values

    assert [one for one in values(None) if name in one.msg] == []
    setattr(settings, name, value)
    assert {one.id for one in values(None) if name in one.msg} == {"relayer.E008"}


def test_an_empty_stage_costs_few_statements(log: Connection, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-2: no tight loop while nothing waits."""
    settings.PUBLISH_POLL_SECONDS = 5
    asked: list[int] = []
    monkeypatch.setattr(publish, "next_staged", lambda conn, limit: asked.append(limit) or [])
    turn = PublishTurn(PUBLISHER)
    for _ in range(50):
        turn.run(Context(log))  # type: ignore[arg-type]
    assert len(asked) == 1


def test_position_order_is_commit_order(log: Connection) -> None:
    """S-13: four publishers, one tailing reader: no row appears below what was already read."""
    from requests_app.store.readers import read_envelopes

    payer = scene.account(log)
    publish.open_publisher(log, PUBLISHER)
    total = 120
    done = threading.Event()
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            with connect("worker") as conn:
                for n in range(total // 4):
                    scene.stage(conn, payer, b"%d/%d" % (seed, n))
                    run(conn, batch=5)
        except BaseException as error:
            failures.append(error)

    seen: list[int] = []

    def tail() -> None:
        clock: dict[int, int] = {}
        with connect("worker") as conn:
            while True:
                last = done.is_set()
                page = read_envelopes(conn, originators=[PUBLISHER], clock=clock)
                seen.extend(row.position for row in page.rows)
                clock = page.clock
                if last and not page.more:
                    return

    writers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    reader = threading.Thread(target=tail)
    for thread in (*writers, reader):
        thread.start()
    for thread in writers:
        thread.join(60)
    run(log)
    done.set()
    reader.join(120)
    assert failures == []
    assert seen == list(range(1, total + 1))


def test_a_busy_publisher_lets_others_pass(log: Connection, twin: Connection, payer: int) -> None:
    """Two publishers: the second one finds the head locked and comes back later, without waiting."""
    publish.open_publisher(log, PUBLISHER)
    scene.stage(log, payer)
    with twin.transaction():
        assert publish.lock_head(twin, PUBLISHER) == 0
        started = monotonic()
        assert run(log) == 0
        assert monotonic() - started < 2, "a session waits two seconds for a lock"
    assert run(log) == 1


def test_the_publisher_is_a_row_of_its_own(log: Connection) -> None:
    """5.4.5: a chain's id or a reserved one is not a publisher's; reserved ids exist and have no head."""
    publish.open_publisher(log, PUBLISHER)
    publish.open_publisher(log, PUBLISHER)
    for taken in (scene.CHAIN, next(iter(publish.RESERVED))):
        with pytest.raises(NotAPublisher):
            publish.open_publisher(log, taken)
    from requests_app.store.readers import list_originators

    roles = {row.source_id: (row.role, row.head) for row in list_originators(log)}
    assert roles[PUBLISHER] == ("publisher", 0)
    assert all(roles[number] == ("reserved", None) for number in publish.RESERVED)


def test_a_head_that_moved_refuses_the_transaction(log: Connection, payer: int) -> None:
    publish.open_publisher(log, PUBLISHER)
    staged = scene.stage(log, payer)
    with pytest.raises(RelayerError, match="moved under its lock"), log.transaction():
        publish.finish(log, PUBLISHER, 5, {staged: 6})
    assert log.execute("SELECT count(*) FROM staged_envelope").fetchone() == (1,)
