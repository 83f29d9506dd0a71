"""P7: who goes on when the owner of a signer, or the listener, is killed, stopped in order, or frozen, and how soon.

Forks with the product's own loops and leases of the full length; the times are printed. A frozen process that wakes up changes nothing.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from django.conf import settings

from requests_app.states import Kind, Status
from requests_app.transitions import sending
from tests.processes.children import Child
from tests.reported import say
from tests.send.conftest import KEYS, node
from tests.send.node import CHAIN_ID, Node
from tests.send.scenes import add_request, expire_leases
from tests.waiting import SHORTEST_PAUSE, wait_until
from workers import listener
from workers.chain.signer import LocalSigner
from workers.leases import LeaseKeeper
from workers.settle import SettleTurn
from workers.shift import ShiftContext, TurnLoop, new_instance

__all__ = ["node"]
pytestmark = pytest.mark.django_db(transaction=True)

Connection = psycopg.Connection[Any]
SIGNER = "signer:654321:0x" + LocalSigner(bytes.fromhex(KEYS[0][2:]), CHAIN_ID).address.hex()
LISTENER = "listener:1"
KILLED_SECONDS, ORDERLY_SECONDS, FROZEN_SECONDS = 3.0, 1.0, 10.0


@pytest.fixture(autouse=True)
def chain(node: Node) -> Node:
    """The node of the send tests, with headers that follow each other and no events."""

    def header(tag: str, full: bool) -> dict[str, str]:
        number = node.finalized if tag == "finalized" else node.block if tag == "latest" else int(tag, 16)
        hashes = ["0x" + (value + 1).to_bytes(32, "big").hex() for value in (number - 1, number)]
        return {"number": hex(number), "hash": hashes[1], "parentHash": hashes[0], "timestamp": "0x1"}

    node.eth_getBlockByNumber = header  # type: ignore[method-assign]
    node.eth_getLogs = lambda query: []  # type: ignore[attr-defined]
    assert settings.LEASE_SECONDS < FROZEN_SECONDS
    return node


class Process:
    """A fork that works one loop until SIGTERM. `rounds` counts how often it came round."""

    def __init__(self, work: Callable[[Process, Callable[[], bool]], None]) -> None:
        self.rounds = multiprocessing.get_context("fork").Value("i", 0)
        self._child = Child(lambda _say: self._live(work))
        self.pid = self._child.pid

    def _live(self, work: Callable[[Process, Callable[[], bool]], None]) -> None:
        stop: list[bool] = []
        signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
        work(self, lambda: bool(stop))

    def came_round(self) -> bool:
        """Told by the loop itself."""
        self.rounds.value += 1
        return False

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def end(self) -> None:
        """At the end of a test, whatever state it is in."""
        self._child.signal(signal.SIGKILL)


def send(process: Process, over: Callable[[], bool]) -> None:
    """A settle shift, as workers.slots works it."""
    instance = new_instance("settle")
    keeper = LeaseKeeper(instance, float(settings.LEASE_SECONDS))
    context = ShiftContext(instance, keeper, over)
    loop = TurnLoop(context, [SettleTurn()], 0.05, over=over, after_round=lambda: (process.came_round(), None)[1])
    loop.run()
    loop.close()
    context.close()
    keeper.close()


AT_THE_HEAD = """SELECT 1 FROM consumer_cursor k JOIN chain_cursor c ON c.source_id = k.source_id
 WHERE c.block = c.chain_head AND k.position = (c.block + 1 << 20) - 1"""


def listen(process: Process, over: Callable[[], bool]) -> None:
    """The listener's own loop."""
    listener.run(lambda: process.came_round() or over())


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    running: list[Process] = []

    def begin(work: Callable[[Process, Callable[[], bool]], None]) -> Process:
        running.append(Process(work))
        return running[-1]

    yield begin
    for process in running:
        process.end()


def holder(conn: Connection, resource: str) -> int | None:
    """The process id of who holds the lease now."""
    row = conn.execute(
        "SELECT instance FROM exec_lease WHERE resource = %s AND lease_until > clock_timestamp()", (resource,)
    ).fetchone()
    return int(row[0].split(":")[1]) if row and row[0] else None


def pair(conn: Connection, start: Callable[..., Process], resource: str) -> tuple[Process, Process]:
    """The holder, and another process that stands by."""
    work = send if resource == SIGNER else listen
    first = start(work)
    wait_until(lambda: holder(conn, resource) == first.pid, 60, "the first holds it")
    second = start(work)
    wait_until(lambda: second.rounds.value >= 3, 60, "the second works")
    assert holder(conn, resource) == first.pid
    return first, second


def taken_over(conn: Connection, resource: str, by: Process, what: str, limit: float, since: float) -> None:
    """Wait until `by` holds it; the seconds since then are printed, and within the limit."""
    wait_until(lambda: holder(conn, resource) == by.pid, limit + 30, "take-over", longest_pause=SHORTEST_PAUSE)
    seconds = time.monotonic() - since
    say(f"take-over of {resource[:20]} after {what}: {seconds:.2f} s (at most {limit:.0f})")
    assert seconds <= limit


@pytest.mark.parametrize("resource", [SIGNER, LISTENER], ids=["signer", "listener"])
@pytest.mark.parametrize(
    ("number", "limit"),
    [(signal.SIGKILL, KILLED_SECONDS), (signal.SIGTERM, ORDERLY_SECONDS)],
    ids=["killed", "stopped"],
)
def test_an_owner_that_ends_is_followed(
    conn: Connection, start: Callable[..., Process], resource: str, number: signal.Signals, limit: float
) -> None:
    first, second = pair(conn, start, resource)
    first.signal(number)
    taken_over(conn, resource, second, number.name, limit, time.monotonic())
    assert conn.execute("SELECT epoch FROM exec_lease WHERE resource = %s", (resource,)).fetchone() == (2,)


def written(conn: Connection) -> list[Any]:
    """Everything that an owner writes, but the beats and the lease's own time."""
    return [
        conn.execute(statement).fetchall()
        for statement in (
            "SELECT resource, instance, epoch FROM exec_lease ORDER BY 1",
            "SELECT signer_id, nonce, seq, tx_hash, epoch FROM tx_attempt ORDER BY 1, 2, 3",
            "SELECT signer_id, nonce, kind, subject_id, state, opened_epoch FROM nonce_slot ORDER BY 1, 2",
            "SELECT id, next_nonce, status FROM signer ORDER BY 1",
            "SELECT kind, request_id, to_status, epoch FROM req_transition ORDER BY id",
            "SELECT source_id, position FROM consumer_cursor ORDER BY 1",
        )
    ]


@pytest.mark.parametrize("seconds", [0, pytest.param(60, marks=pytest.mark.full)])
def test_frozen_owners_are_followed_and_change_nothing_when_they_wake(
    conn: Connection, start: Callable[..., Process], chain: Node, seconds: float
) -> None:
    """Both at once: it takes a lease's length. They wake as soon as they were followed, or after a minute."""
    sender, next_sender = pair(conn, start, SIGNER)
    reader, next_reader = pair(conn, start, LISTENER)
    frozen_at = time.monotonic()
    sender.signal(signal.SIGSTOP)
    reader.signal(signal.SIGSTOP)
    subject = add_request(conn, Kind.PUBLIC_DECRYPT, Status.PROCESSING)
    taken_over(conn, SIGNER, next_sender, "SIGSTOP", FROZEN_SECONDS, frozen_at)
    taken_over(conn, LISTENER, next_reader, "SIGSTOP", FROZEN_SECONDS, frozen_at)
    wait_until(lambda: chain.raws, 60, "the second sends")
    wait_until(lambda: conn.execute(AT_THE_HEAD).fetchone(), 60, "the second has read everything")
    time.sleep(max(0.0, frozen_at + seconds - time.monotonic()))  # how long they are frozen is what is tested
    _nothing_more_comes_of(conn, (sender, reader))
    assert len(set(chain.raws)) == 1
    assert conn.execute("SELECT epoch FROM tx_attempt").fetchall() == [(2,)]
    assert conn.execute("SELECT subject_id FROM nonce_slot").fetchall() == [(subject.id,)]


def test_an_owner_frozen_inside_its_transaction_lets_go_and_changes_nothing(
    conn: Connection, start: Callable[..., Process], chain: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds the lease row, rows and nonce when it stops: the server ends its transaction before the lease is over."""

    def freeze(name: str) -> None:
        if name == "before_prepare_send_commit":
            os.kill(os.getpid(), signal.SIGSTOP)

    with monkeypatch.context() as only_the_first:
        only_the_first.setattr(sending, "crash_point", freeze)
        freezing = start(send)
    wait_until(lambda: holder(conn, SIGNER) == freezing.pid, 60, "the first holds it")
    second = start(send)
    wait_until(lambda: second.rounds.value >= 3, 60, "the second works")
    add_request(conn, Kind.PUBLIC_DECRYPT, Status.PROCESSING)
    wait_until(lambda: _state_of(freezing.pid) == "T", 60, "the first is frozen in its transaction")
    taken_over(conn, SIGNER, second, "SIGSTOP inside TX1", FROZEN_SECONDS, time.monotonic())
    expire_leases(conn)  # the job's own lease takes half a minute
    wait_until(lambda: chain.raws, 60, "the second sends")
    _nothing_more_comes_of(conn, (freezing,))
    assert len(set(chain.raws)) == 1
    assert conn.execute("SELECT epoch, nonce FROM tx_attempt").fetchall() == [(2, 0)]


@pytest.mark.parametrize("hours", [1, -1])
def test_a_process_whose_clock_jumps_takes_nothing_that_is_held_and_works_as_before(
    conn: Connection, start: Callable[..., Process], chain: Node, hours: int
) -> None:
    """Ownership and delays are the database's; what a process times for itself is monotonic."""
    first = start(send)
    wait_until(lambda: holder(conn, SIGNER) == first.pid, 60, "the first holds it")

    def jumped(process: Process, over: Callable[[], bool]) -> None:
        right = time.time
        time.time = lambda: right() + (3600 * hours if process.rounds.value >= 3 else 0)
        send(process, over)

    second = start(jumped)
    wait_until(lambda: second.rounds.value >= 30, 60, "it came round often, before and after its clock jumped")
    assert holder(conn, SIGNER) == first.pid
    first.signal(signal.SIGKILL)
    taken_over(conn, SIGNER, second, f"SIGKILL, by one whose clock jumped {hours} h", KILLED_SECONDS, time.monotonic())
    add_request(conn, Kind.PUBLIC_DECRYPT, Status.PROCESSING)
    wait_until(lambda: conn.execute("SELECT 1 FROM tx_attempt WHERE state = 'accepted'").fetchone(), 60, "it sends")
    assert len(set(chain.raws)) == 1
    row = conn.execute("SELECT abs(extract(epoch FROM clock_timestamp() - prepared_at)) FROM tx_attempt").fetchone()
    assert row is not None
    assert row[0] < 60, "stamped by the database"


def _state_of(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rsplit(")", 1)[1].split()[0]


def _nothing_more_comes_of(conn: Connection, frozen: tuple[Process, ...]) -> None:
    """Wake them and let them come round: nothing is written by them."""
    wait_until(lambda: conn.execute("SELECT 1 FROM tx_attempt WHERE state = 'accepted'").fetchone(), 60, "recorded")
    before = written(conn)
    rounds = [process.rounds.value for process in frozen]
    for process in frozen:
        process.signal(signal.SIGCONT)
    for process, was in zip(frozen, rounds, strict=True):
        wait_until(lambda process=process, was=was: process.rounds.value >= was + 5, 60, "it goes on")  # type: ignore[misc]
    assert written(conn) == before
