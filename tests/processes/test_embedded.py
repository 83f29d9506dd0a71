"""The embedded server: shared, stopped with its last user, back after every kind of unclean end."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from relayer_site import embedded
from relayer_site.embedded import DATABASE, EmbeddedPostgres
from tests.processes.children import Child, command_line, is_running
from tests.waiting import wait_until


@pytest.fixture
def var() -> Iterator[Path]:
    """A directory of its own: the other tests' server must not be killed.

    Not pytest's: as root the server runs as another user, and every pytest that starts on this machine closes those directories to others.
    """
    # The space: a checkout may lie anywhere, and pg_ctl hands its options to a shell.
    with tempfile.TemporaryDirectory(prefix="relayer embedded ") as directory:
        yield Path(directory)


@pytest.fixture
def use(var: Path) -> Iterator[Callable[[], Child]]:
    """Users of the server that end with the test, however that ends."""
    made: list[Child] = []

    def begin() -> Child:
        made.append(Child(_use(var)))
        return made[-1]

    yield begin
    for child in made:
        if is_running(child.pid):
            child.signal(signal.SIGKILL)


def _hang(server: psutil.Process) -> None:
    """Whatever stops it now waits for a checkpoint that does not come."""
    found = wait_until(
        lambda: [one for one in server.children() if "checkpointer" in command_line(one)], 60, "its name"
    )
    found[0].suspend()


def _use(var: Path) -> Callable[[Callable[[str], None]], None]:
    def work(say: Callable[[str], None]) -> None:
        server = EmbeddedPostgres(var)
        server.ensure()
        with psycopg.connect(server.url()) as conn:
            row = conn.execute("SELECT current_database(), current_setting('max_connections')").fetchone()
        assert row == (DATABASE, "200")
        say(str(_pid(var)))
        signal.pause()

    return work


def _pid(var: Path) -> int:
    return int((var / "pg" / "postmaster.pid").read_text().split("\n", 1)[0])


def _running(var: Path) -> bool:
    return EmbeddedPostgres(var).postmaster() is not None


def test_server_lives_from_its_first_user_to_its_last(var: Path) -> None:
    first, second = Child(_use(var)), Child(_use(var))
    assert first.hear(60) == second.hear(60), "both use the same server"
    first.signal(signal.SIGKILL)
    assert _running(var)
    second.signal(signal.SIGKILL)
    wait_until(lambda: not _running(var), 60, "the guard stops the server")
    third = Child(_use(var))
    third.hear(60)
    # Killed with its backends: the next ensure starts it again over the crashed data.
    server = psutil.Process(_pid(var))
    server.kill()
    server.wait(60)
    fourth = Child(_use(var))
    assert int(fourth.hear(60)) != server.pid
    third.signal(signal.SIGKILL)
    fourth.signal(signal.SIGKILL)
    wait_until(lambda: not _running(var), 60, "the guard stops the server")


def test_a_server_that_hangs_in_its_shutdown_is_replaced(
    var: Path, use: Callable[[], Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL 18.4 was seen to stay in "shutting down" after a stop during recovery, and its keeper waited for it for ever."""
    monkeypatch.setattr(embedded, "STOPPING_SECONDS", 1)
    hung = psutil.Process(int(use().hear(60)))
    _hang(hung)
    hung.send_signal(signal.SIGINT)  # fast
    wait_until(lambda: EmbeddedPostgres(var)._status() == "stopping", 60, "the server is shutting down")
    assert int(use().hear(60)) != hung.pid
    assert not is_running(hung.pid)


def test_the_guard_ends_a_server_that_hangs_in_its_shutdown(
    var: Path, use: Callable[[], Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "STOPPING_SECONDS", 1)
    user = use()
    _hang(psutil.Process(int(user.hear(60))))
    user.signal(signal.SIGKILL)
    wait_until(lambda: not _running(var), 60, "the guard stops the server without its checkpoint")


def test_another_programs_process_id_is_no_server(tmp_path: Path) -> None:
    (tmp_path / "pg").mkdir()
    (tmp_path / "pg" / "postmaster.pid").write_text(f"{psutil.Process().pid}\n{tmp_path / 'pg'}\n")
    assert EmbeddedPostgres(tmp_path).postmaster() is None


def test_a_long_directory_gets_a_short_socket_path() -> None:
    server = EmbeddedPostgres(Path("/") / ("x" * 60) / ("y" * 60))
    assert len(str(server.socket_directory / ".s.PGSQL.5432")) < 107
    assert server.socket_directory == EmbeddedPostgres(server.var).socket_directory
