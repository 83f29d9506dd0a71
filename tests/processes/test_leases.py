"""Execution leases: the table of rules, take-over from the dead and from the frozen, fencing (design 5.1.4, 5.1.5; I5)."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any

import psycopg
import pytest

from requests_app.store import leases as table
from requests_app.store.leases import LeaseRef
from tests.processes.children import Child
from tests.waiting import SHORTEST_PAUSE, wait_until
from workers.leases import HeldLease, LeaseKeeper

pytestmark = pytest.mark.django_db(transaction=True)

Connection = psycopg.Connection[Any]
SIGNER = "signer:1:0xaa"
KILLED_SECONDS = 3.0  # P7
LOCKS = (
    "SELECT count(*) FROM pg_locks"
    " WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


@pytest.fixture
def keepers() -> Iterator[Callable[..., LeaseKeeper]]:
    made: list[LeaseKeeper] = []

    def keeper(name: str, seconds: float = 10, **options: Any) -> LeaseKeeper:
        made.append(LeaseKeeper(f"{name}:{os.getpid()}", seconds, **options))
        return made[-1]

    yield keeper
    for one in made:
        one.close()


def _claim(conn: Connection, instance: str, epoch: int, *, gone: bool = False, seconds: float = 10) -> int | None:
    return table.claim_lease(conn, SIGNER, instance, epoch, seconds, gone=gone, how="test")


def test_claim_renew_release_table(conn: Connection) -> None:
    assert table.look_at_lease(conn, SIGNER) is None
    table.open_lease(conn, SIGNER)
    table.open_lease(conn, SIGNER)  # a second candidate changes nothing
    assert table.look_at_lease(conn, SIGNER) == (0, "", True)
    assert _claim(conn, "a", 0) == 1
    assert table.look_at_lease(conn, SIGNER) == (1, "a", False)
    assert _claim(conn, "b", 1) is None, "a live lease is not for the taking"
    assert _claim(conn, "b", 0) is None, "nor with an old epoch"
    assert table.renew_leases(conn, "a", [LeaseRef(SIGNER, 1)], 10) == {LeaseRef(SIGNER, 1)}
    assert table.renew_leases(conn, "b", [LeaseRef(SIGNER, 1)], 10) == set(), "somebody else's lease"
    assert table.renew_leases(conn, "a", [LeaseRef(SIGNER, 2)], 10) == set(), "another epoch"
    assert not table.release_lease(conn, SIGNER, "b", 1)
    assert table.release_lease(conn, SIGNER, "a", 1)
    assert _claim(conn, "b", 1) == 2
    assert not table.release_lease(conn, SIGNER, "a", 1), "a late release of the former holder"
    assert _claim(conn, "c", 2, gone=True) == 3, "the holder's session is known to be gone"
    assert table.look_at_lease(conn, SIGNER) == (3, "c", False)


def test_one_successor_per_epoch(two_conns: tuple[Connection, Connection]) -> None:
    first, second = two_conns
    table.open_lease(first, SIGNER)
    assert _claim(first, "a", 0) == 1
    table.release_lease(first, SIGNER, "a", 1)
    assert [_claim(first, "b", 1), _claim(second, "c", 1)] == [2, None]


def test_stale_epoch_is_refused_by_the_fence(two_conns: tuple[Connection, Connection]) -> None:
    first, second = two_conns
    table.open_lease(first, SIGNER)
    _claim(first, "a", 0)
    with first.transaction():
        assert table.fence(first, SIGNER, "a", 1)
        # While the fenced transaction lives nobody takes over, not even with the knowledge that the holder is gone.
        second.execute("SET lock_timeout = '50ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            _claim(second, "b", 1, gone=True)
    assert _claim(second, "b", 1, gone=True) == 2
    with first.transaction():
        assert not table.fence(first, SIGNER, "a", 1)
        assert not table.fence(first, SIGNER, "a", 2)
        assert table.fence(first, SIGNER, "b", 2)


def test_idle_leases_are_those_of_the_family(conn: Connection) -> None:
    for resource in ("shift:x:0", "shift:x:1", "shift:y:0", "shift:x1:0"):
        table.open_lease(conn, resource)
    table.claim_lease(conn, "shift:x:1", "a", 0, 10, gone=False, how="test")
    assert table.idle_leases(conn, "shift:x:", 2) == [LeaseRef("shift:x:0", 0)]


def test_keeper_renews_in_time(keepers: Callable[..., LeaseKeeper], conn: Connection) -> None:
    lease = keepers("a", seconds=1.5).try_hold(SIGNER)
    assert lease is not None
    acquired = _until(conn)
    for _ in range(3):  # three renewals: well past the first length of the lease
        before = _until(conn)
        wait_until(lambda before=before: _until(conn) > before, 30, "a renewal")
    assert _until(conn) > acquired
    assert not lease.lost
    assert _epoch(conn) == 1


def test_release_hands_over_at_once(keepers: Callable[..., LeaseKeeper]) -> None:
    first, second = keepers("a"), keepers("b")
    lease = first.try_hold(SIGNER)
    assert lease is not None
    assert first.try_hold(SIGNER) is lease, "asked again, the holder keeps its lease and epoch"
    assert second.try_hold(SIGNER) is None
    lease.release()
    assert lease.lost
    taken = second.try_hold(SIGNER)
    assert taken is not None
    assert taken.epoch == 2


def test_successor_waits_for_its_own_epoch(keepers: Callable[..., LeaseKeeper]) -> None:
    first, second, third = keepers("a"), keepers("b"), keepers("c")
    lease = first.try_hold(SIGNER)
    assert lease is not None
    assert second.try_hold(SIGNER, after=1) is None, "the predecessor still holds it"
    lease.release()
    assert third.try_hold(SIGNER, after=0) is None, "made by another predecessor"
    successor = second.try_hold(SIGNER, after=1)
    assert successor is not None
    assert third.try_hold(SIGNER, after=1) is None


def test_a_candidate_looks_by_one_statement_and_keeps_no_lock_of_what_it_may_not_take(
    keepers: Callable[..., LeaseKeeper], conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The holder's session is gone: for another epoch's successor, or without the hint, that is nothing to find out."""
    table.open_lease(conn, SIGNER)
    assert _claim(conn, "gone", 0) == 1  # a row that names a holder, and nobody has its liveness lock
    asked: list[str] = []
    whole = table.fetch_one

    def counted(conn: Any, topic: str, name: str, *more: Any) -> Any:
        asked.append(name)
        return whole(conn, topic, name, *more)

    monkeypatch.setattr(table, "fetch_one", counted)
    candidate, cautious = keepers("b"), keepers("c")
    cautious._hint = False
    assert candidate.epoch_of(SIGNER) is None
    assert candidate.try_hold(SIGNER, after=7) is None
    assert candidate.epoch_of(SIGNER) == 1
    assert cautious.try_hold(SIGNER, after=1) is None
    assert asked == ["approach_lease", "approach_lease"]
    assert conn.execute(LOCKS).fetchone() == (0,)
    taken = candidate.try_hold(SIGNER, after=1)
    assert taken is not None
    assert taken.epoch == 2
    assert conn.execute(LOCKS).fetchone() == (1,), "its own"


def _hold_and_wait(seconds: float) -> Callable[[Callable[[str], None]], None]:
    def work(say: Callable[[str], None]) -> None:
        lease = LeaseKeeper(f"child:{os.getpid()}", seconds).try_hold(SIGNER)
        assert lease is not None
        say(str(lease.epoch))
        signal.pause()

    return work


def _poll(keeper: LeaseKeeper) -> HeldLease:
    lease = wait_until(lambda: keeper.try_hold(SIGNER), 30, "take-over", longest_pause=SHORTEST_PAUSE)
    assert lease is not None
    return lease


def test_killed_holder_is_followed_at_once(keepers: Callable[..., LeaseKeeper], conn: Connection) -> None:
    child = Child(_hold_and_wait(30))
    assert child.hear() == "1"
    keeper = keepers("b", seconds=30)
    assert keeper.try_hold(SIGNER) is None
    child.signal(signal.SIGKILL)
    killed = monotonic()
    assert _poll(keeper).epoch == 2
    assert monotonic() - killed < KILLED_SECONDS, "and not when its lease was over"
    row = conn.execute("SELECT how FROM exec_lease WHERE resource = %s", (SIGNER,)).fetchone()
    assert row == ("session gone",)


def test_frozen_holder_is_followed_when_its_lease_expires(
    keepers: Callable[..., LeaseKeeper], conn: Connection
) -> None:
    child = Child(_hold_and_wait(0.9))
    child.hear()
    child.signal(signal.SIGSTOP)
    lease = _poll(keepers("b"))
    assert lease.epoch == 2
    row = conn.execute("SELECT how FROM exec_lease WHERE resource = %s", (SIGNER,)).fetchone()
    assert row == ("expired",)
    # The former holder dies only now: its session's end says nothing about the new epoch.
    child.signal(signal.SIGKILL)
    assert keepers("c").try_hold(SIGNER) is None
    assert not lease.lost


def test_keeper_learns_that_it_was_taken_over(keepers: Callable[..., LeaseKeeper], conn: Connection) -> None:
    lease = keepers("a", seconds=0.6).try_hold(SIGNER)
    assert lease is not None
    assert _claim(conn, "thief", 1, gone=True) == 2
    wait_until(lambda: lease.lost, 30, "lost")
    assert table.look_at_lease(conn, SIGNER)[1] == "thief"  # type: ignore[index]


def test_keeper_fails_closed_while_it_cannot_renew(keepers: Callable[..., LeaseKeeper], conn: Connection) -> None:
    lease = keepers("a", seconds=0.6).try_hold(SIGNER)
    assert lease is not None
    with conn.transaction():  # somebody sits on the row: no renewal comes through
        conn.execute("SELECT 1 FROM exec_lease WHERE resource = %s FOR SHARE", (SIGNER,))
        wait_until(lambda: lease.lost, 30, "lost")
    # Nobody took it meanwhile: it is ours again with the next renewal, at the same epoch.
    wait_until(lambda: not lease.lost, 30, "renewed")
    assert _epoch(conn) == 1


def test_keeper_survives_the_loss_of_its_session(keepers: Callable[..., LeaseKeeper], conn: Connection) -> None:
    lease = keepers("a", seconds=3).try_hold(SIGNER)
    assert lease is not None
    conn.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'relayer-leases' AND datname = current_database()"
    )
    before = _until(conn)
    wait_until(lambda: _until(conn) > before, 30, "a renewal over a new session")
    # The liveness lock is back as well: a candidate finds the holder alive.
    other = keepers("b")
    wait_until(lambda: not table.try_liveness(conn, SIGNER, 1) or table.drop_liveness(conn, SIGNER, 1) is None, 30)
    assert other.try_hold(SIGNER) is None
    assert not lease.lost


def test_keeper_survives_an_error_that_is_not_the_databases(
    keepers: Callable[..., LeaseKeeper], conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An embedded server that does not start is a RuntimeError; it used to end the renewing thread for good."""
    keeper = keepers("a", seconds=1.5)
    assert keeper.try_hold(SIGNER) is not None
    failed: list[str] = []

    def refuse(role: str, *, name: str) -> Any:
        failed.append(name)
        raise RuntimeError("the embedded PostgreSQL does not start")

    with monkeypatch.context() as patched:
        patched.setattr("workers.leases.connect", refuse)
        conn.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'relayer-leases' AND datname = current_database()"
        )
        wait_until(lambda: failed, 30, "a renewal without a server")
    before = _until(conn)
    wait_until(lambda: _until(conn) > before, 30, "renewed once the server is back")


def test_hung_loop_loses_its_lease_and_shows_it(
    keepers: Callable[..., LeaseKeeper], conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.leases.STALL_SECONDS", 0.2)
    keeper = keepers("a", seconds=0.6, beat="shift:x:0")
    keeper.turned()
    lease = keeper.try_hold(SIGNER)
    assert lease is not None
    wait_until(lambda: lease.lost, 30, "lost: the loop never came round again")
    shown = "SELECT 1 FROM worker_beat WHERE at - turn_at > interval '0.2 seconds'"
    wait_until(lambda: conn.execute(shown).fetchone(), 30, "a sign of life that shows it")


def _until(conn: Connection) -> Any:
    row = conn.execute("SELECT lease_until FROM exec_lease WHERE resource = %s", (SIGNER,)).fetchone()
    assert row is not None
    return row[0]


def _epoch(conn: Connection) -> int:
    row = conn.execute("SELECT epoch FROM exec_lease WHERE resource = %s", (SIGNER,)).fetchone()
    assert row is not None
    return int(row[0])
