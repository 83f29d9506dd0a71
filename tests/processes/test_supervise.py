"""What supervisord is told."""

from __future__ import annotations

import configparser
import signal
import socket
from pathlib import Path

import pytest

from workers.management.commands.relayer_up import _configured
from workers.supervise import Program, StackError, configuration, kept_port, programs, socket_path


def _sections(var: Path, wanted: list[Program]) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser()
    parser.read_string(configuration(var, Path("/srv/relayer"), wanted))
    return parser


def test_every_program_restarts_and_is_killed_as_a_group(tmp_path: Path) -> None:
    wanted = programs(tmp_path, embedded=True, devnet=True, api_port=3000)
    parser = _sections(tmp_path, wanted)
    names = [name for name in parser.sections() if name.startswith("program:")]
    assert len(names) == len(wanted) == 9
    for name in names:
        assert parser[name]["autorestart"] == "true"
        assert parser[name]["killasgroup"] == "true"
        assert "workers.lifeline" in parser[name]["command"]
        assert parser[name]["environment"].count("PROMETHEUS_MULTIPROC_DIR=") == 1
    directories = {parser[name]["environment"].split("PROMETHEUS_MULTIPROC_DIR=")[1].split(",")[0] for name in names}
    assert len(directories) == len(names), "one directory of counters a program"


def test_chains_may_save_their_state_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    found = {program.name: program for program in programs(tmp_path, embedded=True, devnet=True, api_port=3000)}
    assert found["anvil-gateway"].on_supervisor_death == signal.SIGTERM
    assert found["web"].on_supervisor_death == signal.SIGKILL


def test_real_chains_and_a_real_database_need_neither_keeper_nor_bots(tmp_path: Path) -> None:
    names = [program.name for program in programs(tmp_path, embedded=False, devnet=False, api_port=3000)]
    assert names == ["web", "watchdog", "listener"]


def test_percent_signs_reach_the_program(tmp_path: Path) -> None:
    parser = _sections(tmp_path, [Program("p", ("echo", "100%"), environment={"SHARE": "5%"})])
    assert parser["program:p"]["command"].endswith("100%%'") or parser["program:p"]["command"].endswith("100%%")
    assert 'SHARE="5%%"' in parser["program:p"]["environment"]


def test_port_is_chosen_once_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "api-port"
    port = kept_port(path, "")
    assert port > 0
    assert kept_port(path, "") == port
    assert kept_port(path, "8123\n") == 8123, "the environment wins"
    for nonsense in ("http", "-1", "65536", "8²"):
        with pytest.raises(StackError, match="API_PORT is no port"):
            kept_port(path, nonsense)
    assert path.read_text().strip() == str(port)
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        assert kept_port(path, "") != port, "taken meanwhile by another program"


@pytest.mark.parametrize("depth", [1, 12])
def test_control_socket_path_is_short_enough(depth: int) -> None:
    assert len(str(socket_path(Path("/") / "/".join(["directory"] * depth)))) <= 100


def test_a_port_may_come_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As every setting: the web server reads it so, and the stack must wait for it there."""
    monkeypatch.setenv("API_PORT", "1")
    assert _configured("API_PORT") == "1"
    (tmp_path / "port").write_text("8124\n")
    monkeypatch.setenv("API_PORT_FILE", str(tmp_path / "port"))
    assert kept_port(tmp_path / "kept", _configured("API_PORT")) == 8124
    monkeypatch.setenv("API_PORT_FILE", str(tmp_path / "nowhere"))
    with pytest.raises(StackError, match="API_PORT_FILE cannot be read"):
        _configured("API_PORT")
